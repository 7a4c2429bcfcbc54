"""Which arm to run: the best at each load, and the one arm with the least regret over all loads.

At one load the arm with the highest steady throughput is compared with every rival at once (Bonferroni over the
rivals, because it was chosen for being the highest). Rivals that cannot be told from it are its equals, and the
simplest of the equals is recommended. Regret is an arm's worst shortfall against the highest arm of a load.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from avbench.analysis.compare import Gain, compare_points
from avbench.analysis.estimate import ONE_PASS, Estimate, estimate_point
from avbench.analysis.passes import Point
from avbench.analysis.results import Results
from avbench.errors import UsageError
from avbench.spec.arm import Arm
from avbench.spec.speculative import SpeculativeConfig, needed_environment, speculative_config


@dataclass(frozen=True, kw_only=True)
class Pick:
    """The recommended arm at one load."""

    workload: str
    concurrency: int
    arm: Arm
    throughput: Estimate  # of `arm`, tok/s
    fastest: Arm  # highest figure; another arm than `arm` if a simpler one is not told from it
    equals: tuple[Arm, ...]  # not told from `fastest`, without it, simplest first
    runner_up: Arm | None  # the best of the others; None if nothing else was measured
    gain: Gain | None  # of `arm` over `runner_up`
    config: SpeculativeConfig | None  # None: leave `--speculative-config` away
    reason: str  # why this arm, in one sentence
    environment: Mapping[str, str] = field(default_factory=dict)  # what the embedded engine needs beside `config`

    @property
    def shown(self) -> bool:
        """`arm` is beyond noise of every rival."""
        return self.gain is not None and self.gain.shown and not self.equals


@dataclass(frozen=True, kw_only=True)
class Regret:
    """How far an arm falls behind the best arm of a load, at worst. Shortfalls are fractions: 0.03 = 3 % slower."""

    arm: Arm
    worst: float
    where: Point | None  # None: it is the best arm everywhere
    behind: Arm | None
    gain: Gain | None  # of the arm over the best one there
    config: SpeculativeConfig | None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What a sweep recommends, and what it could not rank."""

    picks: tuple[Pick, ...]  # by workload and rising load
    regrets: tuple[Regret, ...]  # least first; only arms that were measured at every load
    incomplete: Mapping[Arm, int] = field(default_factory=dict)  # arm: loads at which it has no figure
    unranked: Mapping[Point, str] = field(default_factory=dict)  # measured, but not comparable: why
    labels: Mapping[str, str] = field(default_factory=dict)  # short names by arm id, unique in the sweep
    costs: str | None = None  # the cost table's name if time was emulated

    def label(self, arm: Arm) -> str:
        """The arm's short name."""
        return self.labels.get(arm.id, arm.label)

    @property
    def least_regret(self) -> Regret | None:
        """The one arm to run if the load is not known."""
        return self.regrets[0] if self.regrets else None


def advise(results: Results, *, unranked: Mapping[Point, str] | None = None) -> Advice:
    """Ranks the arms of a sweep. `unranked` (see `checks.unranked_points`) names points that must not be ranked."""
    if unranked is None:
        from avbench.analysis.checks import unranked_points

        unranked = unranked_points(results)
    ranked = {
        (workload, load): tuple(point for point in results.points(workload, load) if point not in unranked)
        for workload in results.workloads
        for load in results.concurrencies
    }
    loads = {key: points for key, points in ranked.items() if points}
    picks = tuple(_pick(results, points) for points in loads.values())
    missing = {arm: sum(all(p.arm != arm.id for p in points) for points in loads.values()) for arm in results.arms}
    regrets = [_regret(results, arm, loads.values()) for arm, absent in missing.items() if loads and not absent]
    return Advice(
        picks=picks,
        regrets=tuple(sorted(regrets, key=lambda regret: (regret.worst, regret.arm.simplicity, regret.arm.id))),
        incomplete={arm: absent for arm, absent in missing.items() if absent},
        unranked=dict(unranked),
        labels={arm.id: results.label(arm.id) for arm in results.arms},
        costs=results.costs,
    )


def _pick(results: Results, points: tuple[Point, ...]) -> Pick:
    table = results.table("steady_throughput")
    figures = {point: _estimate(results, point) for point in points}
    by_value = sorted(points, key=lambda point: (-figures[point].value, results.arm(point.arm).simplicity))
    best, rivals = by_value[0], by_value[1:]
    gains = {rival: compare_points(table, best, rival, comparisons=len(rivals)) for rival in rivals}
    equals = [rival for rival, gain in gains.items() if gain is not None and gain.verdict == "no difference shown"]
    chosen = min([best, *equals], key=lambda point: results.arm(point.arm).simplicity)
    runner_up = next((point for point in by_value if point != chosen), None)
    gain = None if runner_up is None else compare_points(table, chosen, runner_up, comparisons=len(rivals))
    pick = Pick(
        workload=best.workload,
        concurrency=best.concurrency,
        arm=results.arm(chosen.arm),
        throughput=figures[chosen],
        fastest=results.arm(best.arm),
        equals=tuple(sorted((results.arm(p.arm) for p in equals), key=lambda other: other.simplicity)),
        runner_up=None if runner_up is None else results.arm(runner_up.arm),
        gain=gain,
        config=_config(results, results.arm(chosen.arm)),
        reason="",
        environment=_environment(results, results.arm(chosen.arm)),
    )
    return replace(pick, reason=_reason(results, pick, len(rivals)))


def _reason(results: Results, pick: Pick, rivals: int) -> str:
    if pick.runner_up is None:
        return "the only arm measured at this load"
    if pick.gain is None:
        return f"highest figure; shares no pass with {results.label(pick.runner_up.id)}"
    if pick.gain.low is None:
        return f"highest figure; {ONE_PASS}"
    if pick.shown:
        return f"ahead of {results.label(pick.runner_up.id)} beyond noise"
    if pick.arm == pick.fastest:
        return f"highest figure and simplest of its equals; no difference shown to {_names(results, pick.equals)}"
    if len(pick.equals) == rivals:
        highest = results.label(pick.fastest.id)
        return f"no arm can be told from {highest}, the highest figure: the simplest is named"
    others = tuple(arm for arm in pick.equals if arm != pick.arm)
    rest = f" (nor are {_names(results, others)})" if others else ""
    return f"simplest arm; not told from {results.label(pick.fastest.id)}, the highest figure{rest}"


def _regret(results: Results, arm: Arm, loads: Collection[tuple[Point, ...]]) -> Regret:
    """The worst load is chosen after the fact, among all rivals: its gain is read against all of them at once."""
    table = results.table("steady_throughput")
    comparisons = max(1, sum(len(points) - 1 for points in loads))
    worst, where, behind = 0.0, None, None
    for points in loads:
        own = next(point for point in points if point.arm == arm.id)
        best = max(points, key=lambda point: _estimate(results, point).value)
        shortfall = 1 - _estimate(results, own).value / _estimate(results, best).value
        if shortfall > worst:
            worst, where, behind = shortfall, own, best
    return Regret(
        arm=arm,
        worst=worst,
        where=where,
        behind=None if behind is None else results.arm(behind.arm),
        gain=None if where is None or behind is None else compare_points(table, where, behind, comparisons=comparisons),
        config=_config(results, arm),
        environment=_environment(results, arm),
    )


def _estimate(results: Results, point: Point) -> Estimate:
    estimate = estimate_point(results.table("steady_throughput"), point)
    assert estimate is not None, f"{point} was listed as measured"
    return estimate


def _config(results: Results, arm: Arm) -> SpeculativeConfig | None:
    """None also where the manifest does not name the pair: then nothing can be made ready."""
    try:
        return None if results.pair is None else speculative_config(results.pair, arm, model=results.draft_model)
    except UsageError:
        return None


def _environment(results: Results, arm: Arm) -> Mapping[str, str]:
    return {} if results.pair is None else needed_environment(results.pair, arm)


def _names(results: Results, arms: tuple[Arm, ...]) -> str:
    labels = [results.label(arm.id) for arm in arms]
    return labels[0] if len(labels) == 1 else ", ".join(labels[:-1]) + " and " + labels[-1]
