"""One row of the tables: an arm at one load, with its figures as people read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from avbench.analysis.advice import Advice
from avbench.analysis.compare import smallest_difference
from avbench.analysis.estimate import Estimate, estimate_point
from avbench.analysis.passes import Point, QuantityName
from avbench.analysis.results import Results
from avbench.units import (
    MISSING,
    format_decimal,
    format_ms,
    format_percent,
    format_significant,
    format_spread,
)

BEST, EQUAL = "★", "≈"  # signs, so that colour never carries meaning alone


@dataclass(frozen=True, kw_only=True)
class Row:
    """Formatted figures; `mark` is BEST, EQUAL (not told from the best) or empty. Latencies in ms."""

    point: Point
    label: str
    mark: str
    throughput: str
    half_width: str  # of the 95 % interval, relative
    interactivity: str
    tpot: str
    ttft: str
    acceptance: str
    verified: str
    spread: str  # between passes
    passes: int


def table_rows(results: Results, advice: Advice, workload: str) -> Iterator[Row]:
    """By rising load, arms in the order of the sweep. Points without figures give a row of dashes."""
    for load in results.concurrencies:
        for arm in results.arms:
            point = Point(arm=arm.id, workload=workload, concurrency=load)
            if results.cells(point):
                yield _row(results, point, mark_of(advice, point))


def mark_of(advice: Advice, point: Point) -> str:
    """The sign of a point within its load."""
    for pick in advice.picks:
        if (pick.workload, pick.concurrency) == (point.workload, point.concurrency):
            if point.arm == pick.fastest.id:
                return BEST
            return EQUAL if any(arm.id == point.arm for arm in pick.equals) else ""
    return ""


def figure(results: Results, quantity: QuantityName, point: Point) -> Estimate | None:
    """The estimate of one quantity at a point; None if it was not measured there."""
    return estimate_point(results.table(quantity), point)


def _row(results: Results, point: Point, mark: str) -> Row:
    throughput = figure(results, "steady_throughput", point)
    return Row(
        point=point,
        label=results.label(point.arm),
        mark=mark,
        throughput=format_significant(_value(throughput)),
        half_width=format_spread(None if throughput is None else throughput.half_width),
        interactivity=format_significant(_value(figure(results, "interactivity", point))),
        tpot=format_ms(_value(figure(results, "tpot", point)), unit=False),
        ttft=format_ms(_value(figure(results, "ttft", point)), unit=False),
        acceptance=format_decimal(_value(figure(results, "acceptance_length", point))),
        verified=format_decimal(_value(figure(results, "verified_per_request_step", point))),
        spread=MISSING if throughput is None else format_percent(throughput.spread),
        passes=0 if throughput is None else throughput.n,
    )


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value


def telling_differences(results: Results) -> dict[int, float | None]:
    """By load: the smallest difference between the best arm and its rivals that this sweep could show (0.04 = 4 %)."""
    table = results.table("steady_throughput")
    found: dict[int, float | None] = {}
    for load in results.concurrencies:
        cells = [by_pass for point, by_pass in table.values.items() if point.concurrency == load]
        if cells:
            passes = max(len(by_pass) for by_pass in cells)
            rivals = max(1, len({point.arm for point in table.values if point.concurrency == load}) - 1)
            found[load] = smallest_difference(table, load, passes, comparisons=rivals)
    return found
