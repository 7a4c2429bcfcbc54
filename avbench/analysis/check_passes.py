"""Doubts about repetition: too few passes, passes that disagree, a machine that drifted between them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from avbench.analysis.caution import Caution
from avbench.analysis.estimate import estimate_point
from avbench.analysis.noise import concurrency_class
from avbench.analysis.passes import PassTable, Point
from avbench.analysis.results import Results
from avbench.units import format_percent, format_signed_percent

DRIFT_LEVEL = 0.01


def passes_of(results: Results) -> int:
    """Planned, else the largest number seen."""
    return results.passes or max((cell.pass_number for cell in results.measurements), default=0)


def one_pass(results: Results) -> Iterator[Caution]:
    """One pass has no spread."""
    if passes_of(results) == 1:
        yield Caution(
            kind="one_pass",
            where=(),
            text="One pass, no noise estimate: no difference between arms can be shown.",
            advice="Set `passes: 2` (arms run forward, then backward) and run the sweep again; the first pass is kept.",
        )


def odd_passes(results: Results) -> Iterator[Caution]:
    """Forward and backward passes cancel a steady drift only in pairs. Virtual time does not drift."""
    passes = passes_of(results)
    if passes > 1 and passes % 2 and not results.emulated:
        yield Caution(
            kind="odd_passes",
            where=(),
            text=f"{passes} passes: arms run forward in odd and backward in even ones, so a steady drift of the "
            "machine does not cancel.",
            advice=f"Set `passes: {passes + 1}` and run the sweep again.",
        )


def passes_apart(results: Results) -> Iterator[Caution]:
    """The spread between passes of either arm exceeds the gain between the two best arms of a load."""
    from avbench.analysis.advice import advise

    table, where = results.table("steady_throughput"), []
    for pick in advise(results, unranked={}).picks:
        if pick.gain is None or pick.gain.passes < 2:
            continue
        spreads = [_spread(table, point) for point in (pick.gain.of, pick.gain.over)]
        if max(spreads) > abs(pick.gain.ratio - 1):
            gain = format_signed_percent(pick.gain.ratio - 1)
            where.append(
                f"{pick.workload} · C={pick.concurrency}: {results.label(pick.arm.id)} {gain} "
                f"against {results.label(pick.gain.over.arm)}, passes {format_percent(max(spreads))} apart"
            )
    if where:
        yield Caution(
            kind="passes_apart",
            where=tuple(where),
            text="Passes of one arm lie further apart than the gain between the two best arms.",
            advice="Read these loads as ties, or add passes (an even number) before a decision depends on them.",
        )


def _spread(table: PassTable, point: Point) -> float:
    estimate = estimate_point(table, point)
    return 0.0 if estimate is None or estimate.spread is None else estimate.spread


def machine_drift(results: Results) -> Iterator[Caution]:
    """All arms moved together between passes (F test of the pass effect, 1 %). In virtual time that is the prompts."""
    from scipy.special import fdtrc

    if results.emulated:
        return
    table, where = results.table("steady_throughput"), []
    for name, noise in table.noise.items():
        if noise.drift is None or noise.drift_df is None:
            continue
        if fdtrc(*noise.drift_df, noise.drift) < DRIFT_LEVEL:
            where.append(f"C={name}: passes up to {format_percent(_pass_range(table, name))} apart on average")
    if where:
        yield Caution(
            kind="machine_drift",
            where=tuple(where),
            text="All arms moved together from pass to pass: the machine changed between them. Comparisons stay valid "
            "(they are made within passes); absolute figures carry the drift.",
            advice="Run nothing else on the machine, let it warm up, fix clock speeds where you can.",
        )


def _pass_range(table: PassTable, class_name: str) -> float:
    """Largest ratio between two passes' geometric means over the class's complete cells, minus 1."""
    rows = [by_pass for point, by_pass in table.values.items() if concurrency_class(point.concurrency) == class_name]
    full = max(len(row) for row in rows)
    complete = [row for row in rows if len(row) == full]
    numbers = set.intersection(*(set(row) for row in complete))
    means = [sum(math.log(row[number]) for row in complete) / len(complete) for number in numbers]
    return math.expm1(max(means) - min(means)) if means else 0.0
