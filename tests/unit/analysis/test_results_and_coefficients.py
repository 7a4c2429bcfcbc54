"""Reading a results folder back, and the coefficient traces beside it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avbench.analysis.advice import advise
from avbench.analysis.coefficients import coefficient_traces
from avbench.analysis.results import arm_of_id, read_results, results_of
from avbench.errors import NotComparableError, UsageError
from avbench.spec.arm import Arm
from tests.factories import (
    ADAPTIVE,
    ARMS,
    FIXED_1,
    FIXED_3,
    NONE,
    failed_cell,
    make_emulated,
    make_manifest,
    make_measurement,
    make_measurements,
    make_results,
)
from tests.folders import make_trace_lines, write_results, write_server, write_sweep


def test_arms_workloads_and_loads_come_in_the_order_of_the_sweep(tmp_path: Path) -> None:
    arms = (ADAPTIVE, FIXED_3, NONE)
    results = read_results(write_sweep(tmp_path / "r", arms=arms, workloads=("prose", "code"), concurrencies=(8, 1)))
    assert results.arms == arms
    assert results.workloads == ("prose", "code")
    assert results.concurrencies == (1, 8)
    assert results.name == "toy"
    assert results.passes == 2
    assert [p.arm for p in results.points("code", 8)] == [arm.id for arm in arms]


def test_a_folder_without_results_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no results here"):
        read_results(tmp_path)


def test_a_manifest_without_the_sweep_is_made_up_from_the_cells() -> None:
    results = results_of(Path("somewhere/mine"), {}, make_measurements())
    assert results.arms == ARMS
    assert set(results.workloads) == {"code", "prose"}
    assert (results.pair, results.passes, results.name) == (None, None, "mine")


def test_unknown_keys_of_a_later_version_are_left_out() -> None:
    manifest = make_manifest()
    manifest["spec"]["pair"]["revision"] = "abc"
    manifest["spec"]["arms"][0]["colour"] = "red"
    results = results_of(Path("x"), manifest, [])
    assert results.pair is not None
    assert results.arms == ARMS


arms = st.one_of(
    st.just(Arm(kind="none")),
    st.builds(Arm, kind=st.just("fixed"), k=st.integers(min_value=1, max_value=64)),
    st.builds(
        Arm,
        kind=st.just("adaptive"),
        k=st.integers(min_value=1, max_value=64),
        source=st.sampled_from(["estimator", "head"]),
        refit_interval=st.none() | st.integers(min_value=1, max_value=1000),
        depth=st.none() | st.just("nested"),
    ),
)


@given(arms)
def test_an_arm_is_read_back_from_its_id(arm: Arm) -> None:
    assert arm_of_id(arm.id) == arm


def test_what_is_no_arm_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected `none`, `fixed-K`"):
        arm_of_id("turbo-9")


def test_a_real_sweep_has_no_cost_table(tmp_path: Path) -> None:
    results = read_results(write_sweep(tmp_path / "r", workloads=("code",)))
    assert (results.emulated, results.costs, results.cost_table) == (False, None, {})
    assert results.throughput_unit == "tok/s per engine"


def test_an_emulated_sweep_knows_its_cost_table() -> None:
    results = make_emulated()
    assert (results.emulated, results.costs) == (True, "toy table")
    assert results.cost_table["notes"] == ["drafting is free"]
    assert results.throughput_unit == "tok/s (virtual)"
    assert advise(results, unranked={}).costs == "toy table"
    nameless = results_of(Path("x"), {**results.manifest, "costs": None}, [])
    assert (nameless.emulated, nameless.costs) == (True, "a cost table without a name")


@pytest.mark.parametrize("emulated", [True, False])
def test_real_and_emulated_cells_never_stand_side_by_side(tmp_path: Path, emulated: bool) -> None:
    results = make_emulated() if emulated else make_results()
    own, other = ("emulated", "real") if emulated else ("real", "emulated")
    odd = dataclasses.replace(results.measurements[3], clock=None if emulated else "emulated")
    cells = [*results.measurements[:3], odd, *results.measurements[4:]]
    write_results(tmp_path / "r", cells, dict(results.manifest))
    with pytest.raises(NotComparableError) as caught:
        read_results(tmp_path / "r")
    assert caught.value.message == (
        f"{tmp_path / 'r'}: the clock of this sweep is {own}, but 1 cell was measured with the {other} one, such as "
        f"`{odd.cell_id}`"
    )
    assert "a results folder of their own" in (caught.value.hint or "")


def test_a_failed_cell_has_no_clock(tmp_path: Path) -> None:
    results = make_emulated()
    cells = [dataclasses.replace(failed_cell(results.measurements[0]), clock=None), *results.measurements[1:]]
    write_results(tmp_path / "r", cells, dict(results.manifest))
    assert read_results(tmp_path / "r").emulated


def test_arms_that_share_a_label_are_shown_with_their_refit_interval() -> None:
    slow = dataclasses.replace(ADAPTIVE, refit_interval=100)
    results = results_of(Path("x"), make_manifest(arms=(ADAPTIVE, slow, FIXED_1)), [])
    assert [results.label(arm.id) for arm in results.arms] == ["AV 7 refit 25", "AV 7 refit 100", "K=1"]


def test_the_draft_is_named_as_the_engine_got_it(tmp_path: Path) -> None:
    assert read_results(write_sweep(tmp_path / "r", workloads=("code",))).draft_model == "/models/toy-draft"
    assert results_of(tmp_path / "none", make_manifest(), []).draft_model == "toy-draft"


def test_commands_that_are_missing_or_odd_are_none(tmp_path: Path) -> None:
    results = results_of(tmp_path, make_manifest(), [])
    assert results.command("fixed-3-p1") is None
    for text in ("{", "[]", '{"argv": 3}', '{"argv": [], "env": []}'):
        (tmp_path / "servers" / "odd").mkdir(parents=True, exist_ok=True)
        (tmp_path / "servers" / "odd" / "command.json").write_text(text)
        assert results.command("odd") is None


def test_coefficients_over_time_with_the_borders_of_their_cells(tmp_path: Path) -> None:
    results = read_results(write_sweep(tmp_path / "r"))
    traces = coefficient_traces(results)
    assert [(trace.server, trace.pass_number) for trace in traces] == [
        ("adaptive-7-refit25-p1", 1),
        ("adaptive-7-refit25-p2", 2),
    ]
    first = traces[0]
    assert len(first.times) == len(first.slopes) == len(first.intercepts) == len(first.log_losses) == 60
    assert first.steps[:2] == (25, 50)
    assert {len(row) for row in first.intercepts} == {7}
    # The trace begins 5 s before the first cell; cells follow each other every 15 s, windows are at 2 to 12 s.
    assert [round(cell.start, 3) for cell in first.cells] == [5.0, 20.0, 35.0, 50.0, 65.0, 80.0]
    assert first.cells[0].label == "code · C=1"
    assert first.cells[0].window == (pytest.approx(7.0), pytest.approx(17.0))


def test_a_restarted_server_has_two_traces_each_with_its_own_cells(tmp_path: Path) -> None:
    early = make_measurement(ADAPTIVE, "code", 1, started=1_700_000_010.0)
    late = make_measurement(ADAPTIVE, "code", 8, started=1_700_000_110.0)
    root = write_results(tmp_path / "r", [early, late], make_manifest(arms=(ADAPTIVE,)))
    write_server(root, early.server, make_trace_lines(1_700_000_100.0, refits=4))
    older = [json.dumps(line) for line in make_trace_lines(1_700_000_000.0, refits=9)]
    (root / "servers" / early.server / "trace.jsonl.1").write_text("\n".join(older))
    traces = coefficient_traces(read_results(root))
    assert [(len(trace.times), [cell.label for cell in trace.cells]) for trace in traces] == [
        (9, ["code · C=1"]),
        (4, ["code · C=8"]),
    ]


def test_no_trace_no_coefficients(tmp_path: Path) -> None:
    root = write_results(tmp_path / "r", make_measurements(arms=(ADAPTIVE,)), make_manifest(arms=(ADAPTIVE,)))
    assert coefficient_traces(read_results(root)) == ()
