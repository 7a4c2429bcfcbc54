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
    failed_cell,
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
