"""Terminal tables: they fit, they read without colour, and they say what is missing."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shlex
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from avbench.analysis.advice import advise
from avbench.analysis.passes import Point
from avbench.analysis.results import Results, results_of
from avbench.report.tables import advice_json, render_advice, render_tables
from avbench.spec.arm import Arm
from tests.factories import (
    ADAPTIVE,
    FIXED_3,
    FIXED_7,
    NONE,
    PAIR,
    failed_cell,
    make_emulated,
    make_manifest,
    make_measurements,
    make_results,
)


def printed(renderable: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False, no_color=True)
    console.print(renderable, crop=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def advice_of(results: Results) -> RenderableType:
    return render_advice(advise(results, unranked={}))


def rows(text: str) -> list[str]:
    """Lines of the tables that carry figures."""
    return [line for line in text.splitlines() if re.search(r"±|none +[0-9]", line)]


@pytest.mark.parametrize("width", [80, 120])
def test_every_line_fits_and_no_figure_is_cut(width: int) -> None:
    text = printed(render_tables(make_results()), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    assert len(rows(text)) == 2 * 5 * 3


def test_large_figures_and_long_labels_still_fit_at_80_columns() -> None:
    slow = dataclasses.replace(ADAPTIVE, refit_interval=100)
    results = make_results(
        arms=(NONE, FIXED_7, ADAPTIVE, slow), concurrencies=(256, 1024), truth=lambda *_: 123_456.0, noise=0.2
    )
    text = printed(render_tables(results), 80)
    assert "…" not in text
    assert "AV 7 refit 100" in text


def test_a_row_shows_the_figures_of_its_point() -> None:
    text = printed(render_tables(make_results(noise=0.0)))
    (row,) = [line for line in rows(text) if line.split()[:2] == ["64", "none"]][:1]
    # 300 x 64^0.55 = 2,955 tok/s; TPOT and tok/s/user follow from the factory's rules.
    assert row.split() == ["64", "none", "2,955", "±0.0", "%", "50.8", "19.7", "39.4", "-", "-", "0.0", "%"]


def test_the_best_of_each_load_and_its_equals_carry_signs() -> None:
    text = printed(render_tables(make_results(noise=0.001)))
    best = [line.split("★")[1].split()[0:2] for line in text.splitlines() if "★" in line and "±" in line]
    assert best == [["K=7", "563"], ["AV", "7"], ["AV", "7"]] * 2 or len(best) == 6
    assert "≈" not in "".join(rows(text))
    tied = printed(render_tables(make_results(truth=lambda *_: 1000.0, noise=0.02)))
    per_load = [line for line in rows(tied) if "★" in line or "≈" in line]
    assert len([line for line in per_load if "★" in line]) == 6
    assert len(per_load) > 20


def test_the_table_says_which_differences_it_cannot_tell() -> None:
    text = " ".join(printed(render_tables(make_results())).split())
    found = re.search(r"only if it is ahead by more than C=1: ([\d.]+) %, C=8: ([\d.]+) %, C=64: ([\d.]+) %", text)
    assert found
    assert all(1 < float(value) < 15 for value in found.groups())


def test_one_pass_says_that_it_has_no_noise_estimate() -> None:
    text = printed(render_tables(make_results(passes=1)))
    assert "One pass, no noise estimate" in text
    assert "±" not in text


def test_the_refit_interval_is_said() -> None:
    assert "refit interval 25" in " ".join(printed(render_tables(make_results())).split())
    assert "refit interval" not in printed(render_tables(make_results(arms=(NONE, FIXED_3))))


NESTED = dataclasses.replace(ADAPTIVE, depth="nested", refit_interval=None)
HEAD = Arm(kind="adaptive", k=7, source="head")
HEAD_NESTED = dataclasses.replace(HEAD, depth="nested")


def test_the_longest_labels_fit_at_80_columns() -> None:
    slow = dataclasses.replace(NESTED, refit_interval=100)
    arms = (NONE, HEAD, HEAD_NESTED, NESTED, slow)
    for make in (make_results, make_emulated):
        text = printed(render_tables(make(arms=arms, concurrencies=(256, 1024), truth=lambda *_: 123_456.0)), 80)
        assert max(cell_len(line) for line in text.splitlines()) <= 80
        assert "…" not in text
        words = [line.split() for line in text.splitlines()]
        assert sum(["AV", "7", "nested"] in (row[1:4], row[2:5]) for row in words) == 8
        assert sum(row[-1:] == ["100"] for row in words) == 4  # figures are never cut, a long label takes two lines


def test_nested_depth_is_called_an_extension() -> None:
    text = " ".join(printed(render_tables(make_results(arms=(NONE, ADAPTIVE, NESTED)))).split())
    assert "AV 7 nested: nested depth is an extension of avbench. It chooses the draft depth together with" in text
    assert "extension" not in printed(render_tables(make_results()))


def test_emulated_figures_say_so_over_every_table() -> None:
    results = make_emulated()
    text = printed(render_tables(results))
    assert "code (emulated: toy table)" in text
    assert "prose (emulated: toy table)" in text
    assert text.count("(virtual)") == 4  # throughput and interactivity of two tables
    pick = printed(advice_of(results))
    assert "Best arm at each load (emulated: toy table)" in pick
    assert "Least regret over all loads (emulated: toy table): AV 7" in pick
    data = advice_json(advise(results, unranked={}))
    assert (data["clock"], data["costs"]) == ("emulated", "toy table")


def test_real_figures_do_not_speak_of_emulation() -> None:
    results = make_results()
    assert "emulated" not in printed(render_tables(results)) + printed(advice_of(results))
    data = advice_json(advise(results, unranked={}))
    assert (data["clock"], data["costs"]) == ("real", None)


def blocks(*arms: Arm) -> Results:
    """Arms of a drafter of blocks; the adaptive one wins everywhere."""
    manifest = make_manifest(arms=arms, pair=dataclasses.replace(PAIR, method="dspark"))
    cells = make_measurements(arms=arms, truth=lambda arm, *_: 2000.0 if arm.kind == "adaptive" else 1000.0)
    return results_of(Path("x"), manifest, cells)


@pytest.mark.parametrize(
    ("arm", "remark"),
    [
        (
            HEAD,
            "AV 7 head: on the embedded engine also set `AVBENCH_CONFIDENCE_SOURCE=head`; vLLM uses the head of a "
            "draft that has one by itself.",
        ),
        (
            ADAPTIVE,
            "AV 7: on the embedded engine also set `AVBENCH_CONFIDENCE_SOURCE=estimator`; vLLM always uses the head "
            "of a draft that has one.",
        ),
        (
            NESTED,
            "AV 7 nested: on the embedded engine also set `AVBENCH_DEPTH=nested`; an extension of avbench, vLLM always "
            "drafts K.",
        ),
    ],
)
def test_the_pick_names_the_variables_that_belong_to_it(arm: Arm, remark: str) -> None:
    results = blocks(NONE, arm)
    assert remark in " ".join(printed(advice_of(results), 200).split())
    assert remark.split("`")[1] in str(advice_json(advise(results, unranked={}))["picks"][0]["environment"]).replace(
        "': '", "="
    )


def test_a_pick_that_needs_no_variable_names_none() -> None:
    assert "also set" not in printed(advice_of(make_results()))


def test_failed_cells_are_dashes_and_break_nothing() -> None:
    cells = [failed_cell(c) if c.arm == FIXED_3.id and c.concurrency == 8 else c for c in make_measurements()]
    text = printed(render_tables(results_of(Path("x"), make_manifest(), cells)))
    dashes = [line for line in text.splitlines() if "K=3" in line and re.fullmatch(r" *K=3( +-)+ *", line)]
    assert len(dashes) == 2


def test_nothing_measured_says_so() -> None:
    empty = results_of(Path("x"), make_manifest(), [])
    assert "Nothing has been measured yet." in printed(render_tables(empty))
    assert "No arm can be recommended" in printed(advice_of(empty))


def test_no_colour_codes_without_colour() -> None:
    assert "\x1b" not in printed(render_tables(make_results())) + printed(advice_of(make_results()))


@pytest.mark.parametrize("width", [80, 120])
def test_the_pick_names_arm_gain_and_flag(width: int) -> None:
    text = printed(advice_of(make_results(noise=0.001)), width)
    assert "Least regret over all loads: AV 7" in text
    assert "difference shown" in text
    flags = [line for line in text.splitlines() if line.startswith(("K=7: --spec", "AV 7: --spec"))]
    assert len(flags) == 2
    words = shlex.split(flags[0].partition(": ")[2])
    assert words[0] == "--speculative-config"
    assert json.loads(words[1])["num_speculative_tokens"] == 7


def test_an_arm_that_wins_everywhere_says_at_how_many_loads_this_is_shown() -> None:
    def adaptive_wins(arm: Arm, _: str, __: int) -> float:
        return 2000.0 if arm == ADAPTIVE else 1000.0

    text = " ".join(printed(advice_of(make_results(truth=adaptive_wins, noise=0.01))).split())
    assert "It has the highest figure at every load, beyond noise of all rivals at 6 of 6 loads." in text


def test_plain_decoding_needs_no_flag() -> None:
    text = printed(advice_of(make_results(truth=lambda *_: 1000.0, noise=0.03, seed=5)))
    assert "none: (no --speculative-config)" in text


def test_arms_left_out_are_named() -> None:
    cells = [failed_cell(c) if c.arm == FIXED_3.id and c.concurrency == 8 else c for c in make_measurements()]
    results = results_of(Path("x"), make_manifest(), cells)
    refused = {Point(arm=NONE.id, workload="code", concurrency=1): "outputs differ"}
    text = " ".join(printed(render_advice(advise(results, unranked=refused))).split())
    assert "K=3 has no figure at 2 of 6 loads: it has no regret." in text
    assert "not ranked: none · code · C=1: outputs differ" in text


def test_the_advice_as_json_holds_the_same() -> None:
    advice = advise(make_results(noise=0.001), unranked={})
    data = json.loads(json.dumps(advice_json(advice), allow_nan=False))
    assert [pick["arm"] for pick in data["picks"]] == [pick.arm.id for pick in advice.picks]
    first = data["picks"][0]
    assert first["gain"]["verdict"] == "difference shown"
    assert first["difference_shown"] is True
    assert first["throughput"]["low"] < first["throughput"]["value"] < first["throughput"]["high"]
    assert data["least_regret"]["arm"] == ADAPTIVE.id
    assert data["least_regret"]["speculative_config"]["enable_adaptive_verification"] is True
    assert 0.3 < data["least_regret"]["worst_shortfall"] < 0.4


def test_one_pass_as_json_has_nulls_instead_of_bounds() -> None:
    data = advice_json(advise(make_results(passes=1), unranked={}))
    assert data["picks"][0]["gain"]["low"] is None
    assert data["picks"][0]["difference_shown"] is False
