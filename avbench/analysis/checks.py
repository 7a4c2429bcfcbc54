"""All checks of a sweep, in the order in which a reader needs them: what is missing, what is wrong, what is weak."""

from __future__ import annotations

from collections.abc import Mapping

from avbench.analysis import check_passes, check_protocol, check_requests, check_speculation
from avbench.analysis.caution import Caution, Check
from avbench.analysis.comparable import differing_outputs, output_differences, unreadable_requests
from avbench.analysis.passes import Point
from avbench.analysis.results import Results

CHECKS: tuple[Check, ...] = (
    check_requests.failed_cells,
    check_requests.missing_cells,
    check_requests.all_requests_failed,
    check_requests.some_requests_failed,
    check_requests.too_long_prompts,
    differing_outputs,
    unreadable_requests,
    check_protocol.emulated_steps,
    check_protocol.observed_drafts,
    check_protocol.labelled_drafts,
    check_requests.ends_only_by_length,
    check_requests.ignored_end,
    check_requests.repeated_prompts,
    check_requests.capped_concurrency,
    check_requests.starved_concurrency,
    check_requests.cold_first_requests,
    check_speculation.nothing_drafted,
    check_speculation.acceptance_near_one,
    check_speculation.rising_acceptance,
    check_speculation.disagreeing_counters,
    check_speculation.identical_acceptance,
    check_speculation.nothing_trimmed,
    check_speculation.missing_trace,
    check_speculation.unobserved_positions,
    check_passes.one_pass,
    check_passes.odd_passes,
    check_passes.passes_apart,
    check_passes.machine_drift,
    check_requests.measuring_notes,
)


def check_results(results: Results) -> tuple[Caution, ...]:
    """Every doubt that the records support."""
    return tuple(caution for check in CHECKS for caution in check(results))


def unranked_points(results: Results) -> Mapping[Point, str]:
    """Points that must not be ranked, with the reason: they did another work than the arm's name says."""
    refused: dict[Point, str] = {}
    for difference in output_differences(results):
        for load in results.concurrencies:
            point = Point(arm=difference.arm.id, workload=difference.workload, concurrency=load)
            refused[point] = f"outputs differ from {results.label(difference.reference.id)}'s: {difference.what}"
    for point in check_speculation.points_without_drafts(results):
        refused[point] = "speculation is on, but nothing was drafted"
    for point in check_protocol.observed_points(results):
        refused[point] = check_protocol.OBSERVED
    measured = results.table("steady_throughput").values
    return {point: reason for point, reason in refused.items() if point in measured}
