"""What a plan will not be able to say, found before hours are spent on it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from avbench.plan.cells import Cell, Plan
from avbench.plan.timing import requests_needed
from avbench.prompts import split_prompts
from avbench.spec.sweep import Workload
from avbench.units import format_count


@dataclass(frozen=True, kw_only=True)
class PlanWarning:
    """A doubt about a plan: what and where, and what to do about it."""

    kind: str
    text: str
    advice: str


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """How far a workload's prompts reach. `needed` is an estimate for the most demanding load."""

    workload: str
    prompts: int
    warmup: int
    measured: int
    samples: int
    needed: int
    needed_at: int  # the concurrency that needs them

    @property
    def requests(self) -> int:
        """Most measured requests of one cell; when they run out the window ends."""
        return self.measured * self.samples


def prompt_capacities(plan: Plan) -> tuple[Capacity, ...]:
    """One entry for each workload that the plan measures."""
    demanding: dict[str, Cell] = {}
    for cell in plan.measured_cells:
        best = demanding.setdefault(cell.workload.name, cell)
        if requests_needed(plan, cell) > requests_needed(plan, best):
            demanding[cell.workload.name] = cell
    return tuple(_capacity(plan, cell) for cell in demanding.values())


def _capacity(plan: Plan, cell: Cell) -> Capacity:
    split = split_prompts(plan.prompt_sets[cell.workload.name], seed=plan.spec.seed)
    return Capacity(
        workload=cell.workload.name,
        prompts=len(split.warmup) + len(split.measured),
        warmup=len(split.warmup),
        measured=len(split.measured),
        samples=cell.workload.samples_per_prompt,
        needed=requests_needed(plan, cell),
        needed_at=cell.concurrency,
    )


def plan_warnings(plan: Plan) -> tuple[PlanWarning, ...]:
    """All doubts, the ones about the whole sweep first."""
    return (*_passes(plan), *_watched(plan), *_rivals(plan), *_prompts(plan), *_workloads(plan), *_replays(plan))


def _passes(plan: Plan) -> Iterator[PlanWarning]:
    if plan.spec.passes == 1:
        yield PlanWarning(
            kind="one_pass",
            text="one pass: no noise estimate, so no difference between arms can be shown",
            advice="set `passes: 2`, better 4.",
        )
    elif plan.spec.passes % 2 == 1 and not plan.spec.emulated:  # virtual time does not drift
        yield PlanWarning(
            kind="odd_passes",
            text=f"{plan.spec.passes} passes: one more forward than reversed, so linear drift does not cancel",
            advice=f"set `passes: {plan.spec.passes + 1}`.",
        )


def _watched(plan: Plan) -> Iterator[PlanWarning]:
    if plan.spec.labels and not plan.spec.emulated:
        yield PlanWarning(
            kind="labels",
            text="`labels` takes time in every arm that drafts and none in plain decoding: speeds are not comparable",
            advice="use these results for a study; measure speed without `labels`.",
        )
    if plan.spec.observe:
        yield PlanWarning(
            kind="observe",
            text="`observe` trims nothing: adaptive arms are as slow as fixed ones, and will not be ranked",
            advice="use these results for a study; measure speed without `observe`.",
        )


def _rivals(plan: Plan) -> Iterator[PlanWarning]:
    arms = plan.spec.arms
    fixed = {arm.k for arm in arms if arm.kind == "fixed"}
    lone = sorted({arm.k for arm in arms if arm.kind == "adaptive"} - fixed)
    if lone and not plan.spec.observe:
        ks = ", ".join(map(str, lone))
        yield PlanWarning(
            kind="no_rival",
            text=f"adaptive verification with K={ks} has no arm with the same K and AV off to be compared with",
            advice=f"add {ks} to `fixed`.",
        )
    if len(arms) > 1 and all(arm.kind != "none" for arm in arms):
        yield PlanWarning(
            kind="no_plain",
            text="no arm without speculation: whether speculation pays at all stays open",
            advice="add `none` to `arms`.",
        )


def _prompts(plan: Plan) -> Iterator[PlanWarning]:
    for capacity in prompt_capacities(plan):
        if capacity.requests < capacity.needed:
            enough = math.ceil(capacity.needed / capacity.measured)
            yield PlanWarning(
                kind="too_few_prompts",
                text=f"workload `{capacity.workload}`: a cell at concurrency {capacity.needed_at} needs about "
                f"{format_count(capacity.needed)} measured requests and has {format_count(capacity.requests)} "
                f"({capacity.measured} prompts x {capacity.samples}): its window may end early",
                advice=f"set `samples_per_prompt: {enough}`, or use a larger set.",
            )
        most = max(cell.concurrency for cell in plan.measured_cells if cell.workload.name == capacity.workload)
        if most > capacity.measured:
            yield PlanWarning(
                kind="same_prompts_in_flight",
                text=f"workload `{capacity.workload}`: at concurrency {most} the same prompt is in flight more than "
                f"once (the set has {capacity.measured} measured prompts)",
                advice="use a larger set, or a lower concurrency.",
            )


def _workloads(plan: Plan) -> Iterator[PlanWarning]:
    workloads = list(dict.fromkeys(cell.workload for cell in plan.measured_cells))
    repeated = [workload for workload in workloads if workload.samples_per_prompt > 1]
    if repeated:
        most = max(workload.samples_per_prompt for workload in repeated)
        yield PlanWarning(
            kind="repeated_prompts",
            text=f"{_named(repeated)}: a cell sends each prompt up to {most} times, with distinct seeds",
            advice="keep prefix caching off (the reference engine has none); a larger set is better evidence.",
        )
    forced = [workload for workload in workloads if workload.ignore_eos]
    if forced:
        yield PlanWarning(
            kind="ignore_eos",
            text=f"{_named(forced)}: `ignore_eos` generates past the natural end, where text and acceptance are not "
            "those of real traffic",
            advice="remove `ignore_eos` unless you need equal lengths.",
        )


def _named(workloads: list[Workload]) -> str:
    names = ", ".join(f"`{workload.name}`" for workload in workloads)
    return f"workload{'s' if len(workloads) > 1 else ''} {names}"


def _replays(plan: Plan) -> Iterator[PlanWarning]:
    replayed = sum(cell.replayed for cell in plan.cells)
    if replayed:
        yield PlanWarning(
            kind="replays",
            text=f"{replayed} cells of adaptive arms are run again unmeasured, to bring their estimators back to the "
            "state in which the cells that are left expect them",
            advice="nothing to do; records that exist are kept.",
        )
