"""The global throughput-interactivity front of one workload, over all arms and loads.

A dominates B if A is no worse on either axis within noise and better on at least one beyond noise. ("Better on both
beyond noise" would keep noisy losers.) Noise is a comparison interval: 95 % of a difference between two equal points,
split evenly between them, so that two intervals that do not overlap show a difference at about that level. Intervals
have no cycles, so the front is never empty. Exact ties keep the simpler arm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from avbench.analysis.estimate import estimate_point
from avbench.analysis.noise import FEW_PASSES, Variance, concurrency_class
from avbench.analysis.passes import PassTable, Point
from avbench.analysis.results import Results
from avbench.spec.arm import Arm


@dataclass(frozen=True, kw_only=True)
class FrontPoint:
    """One arm at one load on the two axes. `noise_*` are half widths of comparison intervals on logarithms, >= 0."""

    point: Point
    arm: Arm
    interactivity: float  # tok/s/user, median over requests
    throughput: float  # tok/s per GPU (per engine on a CPU)
    noise_interactivity: float = 0.0
    noise_throughput: float = 0.0

    @property
    def preference(self) -> tuple[tuple[int, int], int, str]:
        """Sorts the simpler arm first, then the lower load."""
        return self.arm.simplicity, self.point.concurrency, self.arm.id


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """Of one workload."""

    workload: str
    points: tuple[FrontPoint, ...]
    front: tuple[FrontPoint, ...]  # by rising interactivity
    dominated_by: Mapping[Point, Point]  # one witness for each point off the front
    on_front: Mapping[str, tuple[int, int]]  # arm id: on the front at n of m measured concurrencies

    def holds(self, point: Point) -> bool:
        """The point is on the front."""
        return any(kept.point == point for kept in self.front)


def build_frontier(results: Results, workload: str) -> Frontier:
    """Front of one workload; empty if nothing was measured."""
    points = front_points(results, workload)
    front = undominated(points)
    kept = {entry.point for entry in front}
    loads = {arm.id: [entry.point for entry in points if entry.arm.id == arm.id] for arm in results.arms}
    return Frontier(
        workload=workload,
        points=points,
        front=front,
        dominated_by={entry.point: _witness(entry, points) for entry in points if entry.point not in kept},
        on_front={arm: (sum(point in kept for point in own), len(own)) for arm, own in loads.items() if own},
    )


def front_points(results: Results, workload: str) -> tuple[FrontPoint, ...]:
    """All points of a workload that have both axes; the passes of one point are one point."""
    rates, speeds = results.table("steady_throughput"), results.table("interactivity")
    found = []
    for point in results.points(workload):
        rate, speed = estimate_point(rates, point), estimate_point(speeds, point)
        if rate is None or speed is None:
            continue
        found.append(
            FrontPoint(
                point=point,
                arm=results.arm(point.arm),
                interactivity=speed.value,
                throughput=rate.value / results.gpus,
                noise_interactivity=_comparison_half_width(speeds, point),
                noise_throughput=_comparison_half_width(rates, point),
            )
        )
    return tuple(found)


def _comparison_half_width(table: PassTable, point: Point) -> float:
    """Half of the 95 % half width of a difference between two such points; 0 where there is no noise estimate."""
    values = [value for value in table.values[point].values() if value > 0]
    noise = table.noise.get(concurrency_class(point.concurrency))
    if len(values) < 2 or noise is None:
        return 0.0
    variance = noise.contrast or noise.total
    if len(values) >= FEW_PASSES:
        mean = math.fsum(map(math.log, values)) / len(values)
        own = math.fsum((math.log(value) - mean) ** 2 for value in values) / (len(values) - 1)
        variance = Variance(value=own, df=len(values) - 1)
    return 0.0 if variance is None else variance.half_width(len(values)) / math.sqrt(2)


def undominated(points: Iterable[FrontPoint]) -> tuple[FrontPoint, ...]:
    """The points that no other dominates, each once, by rising interactivity."""
    distinct = _without_ties(points)
    kept = [entry for entry in distinct if not any(dominates(other, entry) for other in distinct)]
    return tuple(sorted(kept, key=lambda entry: (entry.interactivity, entry.throughput, entry.preference)))


def dominates(a: FrontPoint, b: FrontPoint) -> bool:
    """`a` is no worse than `b` within noise on both axes and better on one beyond noise."""
    no_worse = not (_faster(b, a) or _fuller(b, a))
    return no_worse and (_faster(a, b) or _fuller(a, b))


def _faster(a: FrontPoint, b: FrontPoint) -> bool:
    gap = math.log(a.interactivity) - math.log(b.interactivity)
    return gap > a.noise_interactivity + b.noise_interactivity


def _fuller(a: FrontPoint, b: FrontPoint) -> bool:
    return math.log(a.throughput) - math.log(b.throughput) > a.noise_throughput + b.noise_throughput


def _without_ties(points: Iterable[FrontPoint]) -> Sequence[FrontPoint]:
    """One point for each place on the plane: the simplest arm's."""
    simplest: dict[tuple[float, float], FrontPoint] = {}
    for entry in points:
        place = (entry.interactivity, entry.throughput)
        if place not in simplest or entry.preference < simplest[place].preference:
            simplest[place] = entry
    return list(simplest.values())


def _witness(loser: FrontPoint, points: Sequence[FrontPoint]) -> Point:
    """Who pushed the point off: the dominating point with the highest throughput, or the simpler one at its place."""
    winners = [entry for entry in points if dominates(entry, loser)] or [
        entry
        for entry in points
        if (entry.interactivity, entry.throughput) == (loser.interactivity, loser.throughput)
        and entry.preference < loser.preference
    ]
    return max(winners, key=lambda entry: entry.throughput).point
