"""From a sweep to all its cells, in the order that lets drift cancel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from avbench.errors import UsageError
from avbench.plan.cells import Cell, Plan, ServerGroup
from avbench.plan.identity import Revisions, identified_cell
from avbench.prompts import PromptSet, load_prompts
from avbench.spec.arm import Arm
from avbench.spec.models import model_fingerprint, resolve_model
from avbench.spec.step_costs import costs_fingerprint, read_costs
from avbench.spec.sweep import SweepSpec, Workload

if TYPE_CHECKING:
    from avbench.adaptive.cost_file import CostFile

Item = TypeVar("Item")


def expand_plan(spec: SweepSpec) -> Plan:
    """One server group per arm and pass. Odd passes run arms, workloads and loads in the sweep's order, even passes run
    all of them reversed, so that linear drift cancels and an estimator meets the loads from both ends.

    Reads the prompt files and the cost table, and hashes the models. Raises UsageError if one of them is missing or
    unfit.
    """
    prompt_sets = {workload.name: _prompts(spec, workload) for workload in spec.workloads}
    costs = _costs(spec)
    revisions = _revisions(spec, prompt_sets, costs)
    groups = [
        _group(spec, revisions, arm, pass_number)
        for pass_number in range(1, spec.passes + 1)
        for arm in _in_order(spec.arms, pass_number)
    ]
    return Plan(spec=spec, groups=tuple(groups), prompt_sets=prompt_sets, costs=costs)


def _costs(spec: SweepSpec) -> CostFile | None:
    return read_costs(spec.engine.costs, spec.path.parent) if spec.emulated and spec.engine.costs else None


def _in_order(items: tuple[Item, ...], pass_number: int) -> tuple[Item, ...]:
    return items if pass_number % 2 == 1 else items[::-1]


def _group(spec: SweepSpec, revisions: Revisions, arm: Arm, pass_number: int) -> ServerGroup:
    loads = tuple((workload, concurrency) for workload in spec.workloads for concurrency in spec.concurrency)
    cells: list[Cell] = []
    for workload, concurrency in _in_order(loads, pass_number):
        cell = identified_cell(
            spec,
            revisions,
            arm=arm,
            workload=workload,
            concurrency=concurrency,
            pass_number=pass_number,
            loads_before=tuple(before.load for before in cells),
        )
        cells.append(cell)
    return ServerGroup(arm=arm, pass_number=pass_number, cells=tuple(cells))


def _prompts(spec: SweepSpec, workload: Workload) -> PromptSet:
    prompts = load_prompts(workload.prompts, spec.path.parent)
    conversation = next((prompt for prompt in prompts.prompts if prompt.messages is not None), None)
    if conversation is not None and not workload.chat:
        raise UsageError(
            f"{spec.path}: workload `{workload.name}`: `chat: false` needs plain text, but prompt `{conversation.id}` "
            f"of `{workload.prompts}` is a list of messages",
            hint="remove `chat: false`, or use prompts with text.",
        )
    return prompts


def _revisions(spec: SweepSpec, prompt_sets: Mapping[str, PromptSet], costs: CostFile | None) -> Revisions:
    base, pair = spec.path.parent, spec.pair
    drafts = any(arm.kind != "none" for arm in spec.arms)
    return Revisions(
        target=model_fingerprint(resolve_model(pair.target, base)),
        draft=model_fingerprint(resolve_model(pair.draft, base)) if pair.draft is not None and drafts else None,
        prompts={name: prompts.fingerprint for name, prompts in prompt_sets.items()},
        costs=None if costs is None else costs_fingerprint(costs),
    )
