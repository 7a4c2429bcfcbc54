"""Each doubt is raised by records that deserve it and by no others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from avbench.analysis.caution import Caution
from avbench.analysis.checks import check_results, unranked_points
from avbench.analysis.results import Results, read_results, results_of
from avbench.record.measurement import Measurement
from tests.factories import (
    ADAPTIVE,
    ARMS,
    FIXED_3,
    NONE,
    failed_cell,
    make_counters,
    make_emulated,
    make_manifest,
    make_measurement,
    make_measurements,
    make_percentiles,
    make_results,
)
from tests.folders import make_requests, make_trace_lines, write_results, write_server, write_sweep

Change = Callable[[Measurement], Measurement]


def found(results: Results, kind: str) -> list[Caution]:
    return [caution for caution in check_results(results) if caution.kind == kind]


def kinds(results: Results) -> set[str]:
    return {caution.kind for caution in check_results(results)}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep on disk that deserves no doubt."""
    return write_sweep(tmp_path_factory.mktemp("results") / "clean")


def with_cells(clean: Path, change: Change, *, manifest: dict[str, Any] | None = None) -> Results:
    """The clean sweep with changed records; traces, commands and raw requests stay."""
    results = read_results(clean)
    return results_of(clean, results.manifest if manifest is None else manifest, map(change, results.measurements))


def only(arm: str, load: int, **changes: Any) -> Change:
    """Replaces fields of the summary of one arm at one load."""

    def change(cell: Measurement) -> Measurement:
        if (cell.arm, cell.concurrency) != (arm, load) or cell.summary is None:
            return cell
        return dataclasses.replace(cell, summary=dataclasses.replace(cell.summary, **changes))

    return change


def counters_of(arm: str, **changes: Any) -> Change:
    """Replaces counters of one arm."""

    def change(cell: Measurement) -> Measurement:
        if cell.arm != arm or cell.counters is None:
            return cell
        return dataclasses.replace(cell, counters=dataclasses.replace(cell.counters, **changes))

    return change


def test_a_clean_sweep_raises_no_doubt(clean: Path) -> None:
    assert [caution.kind for caution in check_results(read_results(clean))] == []


SUMMARY_CASES: Sequence[tuple[str, dict[str, Any]]] = [
    ("all_requests_failed", {"failed": 5, "requests": 5, "output_tokens": 0, "finish_reasons": {}}),
    ("some_requests_failed", {"failed": 2}),
    ("too_long_prompts", {"too_long": 3}),
    ("ends_only_by_length", {"finish_reasons": {"length": 100}}),
    ("cold_first_requests", {"ttft": make_percentiles(0.01, mean=0.05)}),
    ("acceptance_near_one", {"acceptance_length": 1.01}),
    ("starved_concurrency", {"requests": 20}),
]


@pytest.mark.parametrize(("kind", "changes"), SUMMARY_CASES, ids=[kind for kind, _ in SUMMARY_CASES])
def test_what_a_summary_alone_can_tell(clean: Path, kind: str, changes: dict[str, Any]) -> None:
    (caution,) = found(with_cells(clean, only(FIXED_3.id, 8, **changes)), kind)
    assert all("K=3 · " in place and "C=8" in place for place in caution.where)
    assert len(caution.where) == 4  # 2 workloads x 2 passes
    assert caution.text
    assert caution.advice


def test_emulated_steps_are_said() -> None:
    (caution,) = found(make_emulated(), "emulated_steps")
    assert "cost table `toy table`" in caution.text
    assert caution.advice.startswith("Compare the arms with each other and never with measured figures")


def test_a_machine_cannot_drift_in_virtual_time() -> None:
    drifting = {"pass_noise": 0.3, "noise": 0.001, "passes": 3}
    assert {"machine_drift", "odd_passes"} <= kinds(make_results(**drifting))
    assert not {"machine_drift", "odd_passes"} & kinds(make_emulated(**drifting))


def watched(clean: Path, **keys: bool) -> Results:
    manifest = read_results(clean).manifest
    return with_cells(clean, lambda cell: cell, manifest={**manifest, "spec": {**manifest["spec"], **keys}})


def test_labels_take_time_in_arms_that_draft(clean: Path) -> None:
    (caution,) = found(watched(clean, labels=True), "labelled_drafts")
    assert caution.where == ("K=1", "K=3", "K=7", "AV 7")
    emulated = make_emulated()
    manifest = {**emulated.manifest, "spec": {**emulated.manifest["spec"], "labels": True}}
    assert "labelled_drafts" not in kinds(results_of(Path("x"), manifest, emulated.measurements))


def test_observed_arms_are_named_and_not_ranked(clean: Path) -> None:
    results = watched(clean, observe=True)
    (caution,) = found(results, "observed_drafts")
    assert caution.where == ("AV 7",)
    unranked = unranked_points(results)
    assert {point.arm for point in unranked} == {ADAPTIVE.id}
    assert len(unranked) == 6  # 2 workloads x 3 loads
    assert set(unranked.values()) == {"`observe` was on, so nothing was trimmed"}


def test_what_observe_asked_for_is_not_a_second_doubt(clean: Path) -> None:
    untrimmed = counters_of(ADAPTIVE.id, verified=7000, draft_tokens=7000)
    manifest = read_results(clean).manifest
    observed = {**manifest, "spec": {**manifest["spec"], "observe": True}}
    assert "nothing_trimmed" in kinds(with_cells(clean, untrimmed))
    assert "nothing_trimmed" not in kinds(with_cells(clean, untrimmed, manifest=observed))


def test_plain_decoding_is_not_blamed_for_having_no_acceptance(clean: Path) -> None:
    assert "acceptance_near_one" not in kinds(with_cells(clean, only(NONE.id, 8, acceptance_length=1.0)))


def test_adaptive_verification_that_trims_all_is_not_a_wiring_fault(clean: Path) -> None:
    trimmed = only(ADAPTIVE.id, 64, acceptance_length=1.02, verified_per_request_step=0.03)
    assert "acceptance_near_one" not in kinds(with_cells(clean, trimmed))
    wired = only(ADAPTIVE.id, 64, acceptance_length=1.02, verified_per_request_step=3.0)
    assert "acceptance_near_one" in kinds(with_cells(clean, wired))


def test_a_short_window_is_not_called_starved(clean: Path) -> None:
    short = only(FIXED_3.id, 8, requests=2, window_seconds=0.4)
    assert "starved_concurrency" not in kinds(with_cells(clean, short))


def test_failed_cells_are_named_with_their_reason(clean: Path) -> None:
    def fail(cell: Measurement) -> Measurement:
        return (
            failed_cell(cell, "engine_died", "killed by signal 9") if cell.cell_id == "fixed-3__code__c8__p2" else cell
        )

    (caution,) = found(with_cells(clean, fail), "failed_cells")
    assert caution.where == ("K=3 · code · C=8 · pass 2",)
    assert "engine_died" in caution.text
    assert "killed by signal 9" in caution.text


def test_cells_that_were_never_measured_are_missing(clean: Path) -> None:
    results = read_results(clean)
    kept = [cell for cell in results.measurements if not (cell.arm == "none" and cell.pass_number == 2)]
    (caution,) = found(results_of(clean, results.manifest, kept), "missing_cells")
    assert len(caution.where) == 6
    assert caution.where[0] == "none · code · C=1 · pass 2"


def test_rising_acceptance(clean: Path) -> None:
    rising = counters_of(FIXED_3.id, accepted=1800, accepted_per_position=(600, 500, 700))
    assert found(with_cells(clean, rising), "rising_acceptance")


def test_counters_that_do_not_add_up(clean: Path) -> None:
    odd = counters_of(FIXED_3.id, accepted=1900)
    assert found(with_cells(clean, odd), "disagreeing_counters")


def test_a_summary_that_disagrees_with_its_counters(clean: Path) -> None:
    assert found(with_cells(clean, only(FIXED_3.id, 8, acceptance_length=2.9)), "disagreeing_counters")


def test_prescribed_acceptance_is_noticed(clean: Path) -> None:
    def prescribe(cell: Measurement) -> Measurement:
        if cell.arm != FIXED_3.id or cell.summary is None:
            return cell
        counters = make_counters(3)
        summary = dataclasses.replace(cell.summary, acceptance_length=1 + counters.accepted / counters.drafts)
        return dataclasses.replace(cell, counters=counters, summary=summary)

    (caution,) = found(with_cells(clean, prescribe), "identical_acceptance")
    assert set(caution.where) == {"K=3 · code", "K=3 · prose"}


def test_an_arm_that_drafts_nothing_is_not_ranked(clean: Path) -> None:
    silent = counters_of(FIXED_3.id, drafts=0, draft_tokens=0, accepted=0, accepted_per_position=(0, 0, 0), verified=0)
    results = with_cells(clean, silent)
    assert found(results, "nothing_drafted")
    assert {point.arm for point in unranked_points(results)} == {FIXED_3.id}


def test_adaptive_verification_that_trims_nothing(clean: Path) -> None:
    assert found(with_cells(clean, counters_of(ADAPTIVE.id, verified=7000)), "nothing_trimmed")


def test_trimming_is_read_from_the_trace_where_counters_do_not_say(tmp_path: Path) -> None:
    cell = make_measurement(ADAPTIVE, counters=make_counters(7, verified=None))
    cell = dataclasses.replace(cell, counters=dataclasses.replace(make_counters(7), verified=None))
    for admitted, expected in ((20, False), (56, True)):
        root = write_results(tmp_path / str(admitted), [cell], make_manifest(arms=(ADAPTIVE,)))
        lines = make_trace_lines(cell.clock_epoch - 5, seconds=60)
        lines[-1]["admitted"] = [admitted] * 100
        write_server(root, cell.server, lines)
        assert ("nothing_trimmed" in kinds(read_results(root))) is expected


def test_a_missing_and_a_damaged_trace_are_told_apart(tmp_path: Path) -> None:
    root = write_sweep(tmp_path / "r", workloads=("code",))
    (root / "servers" / "adaptive-7-refit25-p1" / "trace.jsonl").unlink()
    damaged = root / "servers" / "adaptive-7-refit25-p2" / "trace.jsonl"
    damaged.write_text('{"event":"refit","time":"noon"}\n')
    results = read_results(root)
    (missing,) = found(results, "missing_trace")
    assert missing.where == ("adaptive-7-refit25-p1",)
    (torn,) = found(results, "damaged_trace")
    assert "adaptive-7-refit25-p2" in torn.where[0]


def test_positions_that_the_estimator_never_saw(tmp_path: Path) -> None:
    cells = make_measurements(arms=(ADAPTIVE,), workloads=("code",), passes=1)
    root = write_results(tmp_path / "r", cells, make_manifest(arms=(ADAPTIVE,), workloads=("code",), passes=1))
    write_server(root, cells[0].server, make_trace_lines(cells[0].clock_epoch - 5, seen=5))
    (caution,) = found(read_results(root), "unobserved_positions")
    assert caution.where == ("adaptive-7-refit25-p1: position 6, 7",)


def test_workload_settings_that_misstate_acceptance(clean: Path) -> None:
    manifest = make_manifest()
    manifest["spec"]["workloads"][0] |= {"ignore_eos": True, "samples_per_prompt": 3}
    results = with_cells(clean, lambda cell: cell, manifest=manifest)
    assert [caution.where for caution in found(results, "ignore_eos")] == [("code",)]
    assert [caution.where for caution in found(results, "repeated_prompts")] == [("code (3 times)",)]


def test_a_server_limit_below_the_load_is_a_cap(clean: Path) -> None:
    manifest = make_manifest()
    manifest["spec"]["engine"]["args"] = {"max-num-seqs": 32}
    (caution,) = found(with_cells(clean, lambda cell: cell, manifest=manifest), "capped_concurrency")
    assert all("C=64" in place for place in caution.where)


def test_preempted_requests_are_a_cap(clean: Path) -> None:
    assert found(with_cells(clean, counters_of(FIXED_3.id, preemptions=4)), "capped_concurrency")


def test_notes_of_the_measuring_code_are_passed_on(clean: Path) -> None:
    def note(cell: Measurement) -> Measurement:
        return dataclasses.replace(cell, notes=("prompts ran out",)) if cell.concurrency == 64 else cell

    (caution,) = found(with_cells(clean, note), "noted")
    assert caution.text == "prompts ran out"
    assert len(caution.where) == 20


@pytest.mark.parametrize(("passes", "kind"), [(1, "one_pass"), (3, "odd_passes")])
def test_numbers_of_passes(tmp_path: Path, passes: int, kind: str) -> None:
    results = read_results(write_sweep(tmp_path / "r", passes=passes, workloads=("code",)))
    assert {"one_pass", "odd_passes"} & kinds(results) == {kind}


def test_passes_further_apart_than_the_gain() -> None:
    rows = {NONE: (1000.0, 1100.0), FIXED_3: (1010.0, 1080.0)}
    cells = [
        make_measurement(arm, pass_number=number, throughput=value)
        for arm, row in rows.items()
        for number, value in enumerate(row, start=1)
    ]
    manifest = make_manifest(arms=(NONE, FIXED_3), workloads=("code",), concurrencies=(8,))
    (caution,) = found(results_of(Path("x"), manifest, cells), "passes_apart")
    assert caution.where[0].startswith("code · C=8: ")
    assert "passes 9.5 % apart" in caution.where[0]


def test_a_machine_that_drifted_between_passes() -> None:
    drifted = make_measurements(noise=0.004, pass_noise=0.2, seed=2)
    (caution,) = found(results_of(Path("x"), make_manifest(), drifted), "machine_drift")
    assert len(caution.where) == 3
    steady = make_measurements(noise=0.02, seed=2)
    assert not found(results_of(Path("x"), make_manifest(), steady), "machine_drift")


def other_lengths(cells: Sequence[Measurement], arm: str, tokens: float) -> dict[str, Any]:
    return {cell.cell_id: make_requests(tokens=tokens, seed=i) for i, cell in enumerate(cells) if cell.arm == arm}


def test_an_arm_that_writes_shorter_texts_is_not_ranked(tmp_path: Path) -> None:
    cells = make_measurements(workloads=("code",))
    manifest = make_manifest(workloads=("code",))
    shorter = write_results(tmp_path / "r", cells, manifest, requests=other_lengths(cells, FIXED_3.id, 40))
    results = read_results(shorter)
    (caution,) = found(results, "unequal_outputs")
    assert caution.where[0].startswith("K=3 · code: output tokens 40.")
    assert "40 prompts" in caution.where[0]
    refused = unranked_points(results)
    assert {(point.arm, point.concurrency) for point in refused} == {(FIXED_3.id, load) for load in (1, 8, 64)}


def test_an_arm_cut_by_length_more_often_is_not_ranked(tmp_path: Path) -> None:
    cells = make_measurements(workloads=("code",))
    cut = {
        cell.cell_id: [dataclasses.replace(r, finish_reason="length") for r in make_requests(seed=i)]
        for i, cell in enumerate(cells)
        if cell.arm == ADAPTIVE.id
    }
    root = write_results(tmp_path / "r", cells, make_manifest(workloads=("code",)), requests=cut)
    (caution,) = found(read_results(root), "unequal_outputs")
    assert "cut by length 100.0 %" in caution.where[0]


@pytest.mark.parametrize("seed", range(5))
def test_sampling_noise_in_lengths_is_no_difference(tmp_path: Path, seed: int) -> None:
    cells = make_measurements(workloads=("code",))
    noisy = {cell.cell_id: make_requests(seed=1000 * seed + i) for i, cell in enumerate(cells)}
    root = write_results(tmp_path / "r", cells, make_manifest(workloads=("code",)), requests=noisy)
    assert not found(read_results(root), "unequal_outputs")


def test_raw_requests_that_are_gone_are_said_to_be(tmp_path: Path) -> None:
    root = write_sweep(tmp_path / "r", arms=(NONE, FIXED_3), workloads=("code",), concurrencies=(8,))
    (root / "cells" / "none__code__c8__p1" / "requests.parquet").unlink()
    (root / "cells" / "none__code__c8__p2" / "requests.parquet").write_bytes(b"not parquet")
    (caution,) = found(read_results(root), "unreadable_requests")
    assert caution.where == ("none · code · C=8 · pass 1", "none · code · C=8 · pass 2")


def test_every_kind_has_a_test() -> None:
    """Kinds are written as literals in the checks; each must appear in this file."""
    import re

    from avbench.analysis import check_passes, check_requests, check_speculation, comparable

    modules = (check_passes, check_requests, check_speculation, comparable)
    source = "".join(Path(str(module.__file__)).read_text() for module in modules)
    declared = set(re.findall(r'kind="(\w+)"', source))
    tested = set(re.findall(r'"(\w+)"', Path(__file__).read_text()))
    assert len(declared) > 20
    assert declared <= tested
    assert len(ARMS) == 5
