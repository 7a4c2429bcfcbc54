"""Doubts about speculation: a draft wired wrongly, counters that disagree, adaptive verification that does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from avbench.analysis.caution import Caution, measured, where_true
from avbench.analysis.passes import Point, point_of
from avbench.analysis.results import Results
from avbench.record.measurement import Measurement, Summary
from avbench.spec.arm import Arm

NEAR_ONE = 1.05  # acceptance length; a useful draft is above 1.3 even on high-entropy text
TRIMMED_AWAY = 0.2  # verified drafts per request-step below which adaptive verification has all but switched off
SMALL_RISE = 0.01  # of the drafts: engines may count a step's positions in two places
COUNTER_TOLERANCE = 0.005  # relative
IDENTICAL_CELLS = 3


def points_without_drafts(results: Results) -> tuple[Point, ...]:
    """Points of speculating arms for which the server's counters say that nothing was drafted."""
    found = (point_of(cell) for cell, _, arm in measured(results) if arm.k > 0 and _drafts(cell) == 0)
    return tuple(dict.fromkeys(found))


def _drafts(cell: Measurement) -> int | None:
    return None if cell.counters is None else cell.counters.drafts


def nothing_drafted(results: Results) -> Iterator[Caution]:
    """Speculation is asked for, but off in fact: such an arm is not ranked."""
    where = where_true(results, lambda cell, _, arm: arm.k > 0 and _drafts(cell) == 0)
    if where:
        yield Caution(
            kind="nothing_drafted",
            where=where,
            text="The arm speculates, but the server drafted nothing: these cells are plain decoding in disguise.",
            advice="Compare the command in `servers/` with the server's log; these points are not ranked.",
        )


def acceptance_near_one(results: Results) -> Iterator[Caution]:
    """A draft that is never right is wired wrongly. Adaptive verification that trims nearly all is another matter."""

    def useless(_: Measurement, summary: Summary, arm: Arm) -> bool:
        length, verified = summary.acceptance_length, summary.verified_per_request_step
        trimmed_away = arm.kind == "adaptive" and verified is not None and verified < TRIMMED_AWAY
        return arm.k > 0 and length is not None and length < NEAR_ONE and not trimmed_away

    where = where_true(results, useless)
    if where:
        yield Caution(
            kind="acceptance_near_one",
            where=where,
            text="Acceptance length is about 1.0 although drafts are made: almost none is right.",
            advice="Check that target and draft share tokenizer and template, and that the draft's weights loaded.",
        )


def rising_acceptance(results: Results) -> Iterator[Caution]:
    """Position k + 1 is accepted only where k was: unconditional rates cannot rise."""

    def rises(cell: Measurement, _: Summary, __: Arm) -> bool:
        if cell.counters is None:
            return False
        accepted, slack = cell.counters.accepted_per_position, SMALL_RISE * cell.counters.drafts
        return any(later > earlier + slack for earlier, later in pairwise(accepted))

    where = where_true(results, rises)
    if where:
        yield Caution(
            kind="rising_acceptance",
            where=where,
            text="Acceptance rises from one draft position to the next, which no prefix rule allows.",
            advice="The counters are not what they seem (engines mixed, or another metric): do not quote acceptance.",
        )


def disagreeing_counters(results: Results) -> Iterator[Caution]:
    """Acceptance length = 1 + sum of the per-position rates, by definition."""

    def disagrees(cell: Measurement, summary: Summary, _: Arm) -> bool:
        counters = cell.counters
        if counters is None or not counters.drafts or not counters.accepted_per_position:
            return False
        expected = 1 + sum(counters.accepted_per_position) / counters.drafts
        lengths = [1 + counters.accepted / counters.drafts, summary.acceptance_length]
        return any(length is not None and abs(length / expected - 1) > COUNTER_TOLERANCE for length in lengths)

    where = where_true(results, disagrees)
    if where:
        yield Caution(
            kind="disagreeing_counters",
            where=where,
            text="Counters do not satisfy acceptance length = 1 + sum of the acceptance rates per position.",
            advice="Do not quote acceptance from these cells; look for restarts or a second engine behind `/metrics`.",
        )


def identical_acceptance(results: Results) -> Iterator[Caution]:
    """Real acceptance is a random figure: the same digits in every load mean that it was prescribed."""
    by_arm: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for cell, summary, arm in measured(results):
        if arm.k > 0 and summary.acceptance_length is not None and summary.acceptance_length > 1:
            found = (cell.concurrency, round(summary.acceptance_length, 6))
            by_arm.setdefault((cell.arm, cell.workload), []).append(found)
    where = tuple(
        f"{results.label(arm)} · {workload}"
        for (arm, workload), found in by_arm.items()
        if len({load for load, _ in found}) >= IDENTICAL_CELLS and len({length for _, length in found}) == 1
    )
    if where:
        yield Caution(
            kind="identical_acceptance",
            where=where,
            text="Acceptance length is the same to six digits at every load: it looks prescribed, not measured.",
            advice="Check for synthetic acceptance (`rejection_sample_method`) or an emulated engine.",
        )


def nothing_trimmed(results: Results) -> Iterator[Caution]:
    """Adaptive verification that verifies every scheduled draft is fixed K with overhead."""

    def untrimmed(cell: Measurement, _: Summary, arm: Arm) -> bool:
        counts = _scheduled_and_verified(results, cell)
        return arm.kind == "adaptive" and counts is not None and counts[0] > 0 and counts[1] >= counts[0]

    where = where_true(results, untrimmed)
    if where and not results.observed:
        yield Caution(
            kind="nothing_trimmed",
            where=where,
            text="Adaptive verification was on, but every scheduled draft was verified: nothing was trimmed.",
            advice="Right at low load, where verifying is cheap. At high load look at the cost curves in the trace and "
            "at the server's log.",
        )


def _scheduled_and_verified(results: Results, cell: Measurement) -> tuple[int, int] | None:
    """Drafts scheduled and verified in the window: from the counters, else from the trace, else unknown."""
    if cell.counters is not None and cell.counters.verified is not None:
        return cell.counters.draft_tokens, cell.counters.verified
    trace = results.trace_of(cell)
    if trace is None or cell.window is None:
        return None
    steps = trace.steps_between(cell.clock_epoch + cell.window[0], cell.clock_epoch + cell.window[1])
    return sum(step.scheduled for step in steps), sum(step.admitted for step in steps)


def _adaptive_servers(results: Results, *, estimator_only: bool = False) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(
            cell.server
            for cell, _, arm in measured(results)
            if arm.kind == "adaptive" and not (estimator_only and arm.source == "head")
        )
    )


def missing_trace(results: Results) -> Iterator[Caution]:
    """Without a trace nothing proves that the estimator ran."""
    found = {server: results.traces(server) for server in _adaptive_servers(results)}
    where = tuple(server for server, files in found.items() if not files.traces and not files.damage)
    if where:
        yield Caution(
            kind="missing_trace",
            where=where,
            text="These adaptive servers wrote no trace: coefficients and budgets are unknown, and nothing proves that "
            "adaptive verification was active.",
            advice="Check that the engine sees `AVBENCH_TRACE_DIR` and may write there.",
        )
    damage = tuple(text for files in found.values() for text in files.damage)
    if damage:
        yield Caution(
            kind="damaged_trace",
            where=damage,
            text="Traces of adaptive servers cannot be read; their coefficients are left out.",
            advice="The rest of the report does not need them; measure these cells again if you do.",
        )


def unobserved_positions(results: Results) -> Iterator[Caution]:
    """A position that is never admitted is never observed, keeps its first intercept and stays out (lock-in)."""
    where = []
    for server in _adaptive_servers(results, estimator_only=True):
        refits = [refit for trace in results.traces(server).traces for refit in trace.refits]
        totals = [sum(counts) for counts in zip(*(refit.counts for refit in refits), strict=True)]
        unseen = [str(position) for position, total in enumerate(totals, start=1) if total == 0]
        if unseen:
            where.append(f"{server}: position {', '.join(unseen)}")
    if where:
        yield Caution(
            kind="unobserved_positions",
            where=tuple(where),
            text="The estimator never saw a label at these draft positions: they keep their first intercept (-0.2) and "
            "are likely to stay out.",
            advice="Compare with a smaller K; start the server at a low load, where deep positions are verified.",
        )
