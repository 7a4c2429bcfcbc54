"""What is left of a plan when some cells are done, or only some are wanted.

Cells of a server that learns nothing (no estimator) do not influence each other, so the ones that are left are run.
A server that learns is different: what it learned at earlier loads is part of a later cell's identity. Running a
whole pass again would repeat records that exist; starting in the middle would measure another state under one name.
So the cells before the last wanted one are *replayed*: run in the same order for the same time, but neither
measured nor recorded. Nothing is lost, no done record is repeated, and the price is time only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from avbench.errors import UsageError
from avbench.plan.cells import Cell, Plan, ServerGroup
from avbench.spec.nearest import did_you_mean, nearest

Choice = Callable[[Cell], bool]
ONLY_KEYS = ("arm", "workload", "concurrency", "pass")


def remaining_plan(plan: Plan, done: Collection[str], wanted: Choice | None = None) -> Plan:
    """The plan without the cells whose identity is in `done` and without those that are not wanted."""
    groups = (remaining_group(group, done, wanted) for group in plan.groups)
    return replace(plan, groups=tuple(group for group in groups if group is not None))


def remaining_group(group: ServerGroup, done: Collection[str], wanted: Choice | None = None) -> ServerGroup | None:
    """What one server start still has to do; None if nothing is left to measure."""
    cells = tuple(replace(cell, replayed=not _is_open(cell, done, wanted)) for cell in group.cells)
    last = max((index for index, cell in enumerate(cells) if not cell.replayed), default=None)
    if last is None:
        return None
    if group.arm.learns:
        return replace(group, cells=cells[: last + 1])
    return replace(group, cells=_side_by_side([cell for cell in cells if not cell.replayed]))


def _is_open(cell: Cell, done: Collection[str], wanted: Choice | None) -> bool:
    return not cell.replayed and cell.identity not in done and (wanted is None or wanted(cell))


def _side_by_side(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """With `loads_before` as it will really be on the new server."""
    loads = [cell.load for cell in cells]
    return tuple(replace(cell, loads_before=tuple(loads[:index])) for index, cell in enumerate(cells))


def parse_only(options: Sequence[str], plan: Plan) -> Choice | None:
    """The choice made by `--only KEY=VALUE` options: values of one key are alternatives, keys must all fit.

    Keys are `arm` (id, as in `avbench plan`), `workload`, `concurrency`, `pass`; values may be listed with commas.
    None without options. Raises UsageError for an unknown key, or a value that no cell of the plan has.
    """
    chosen: dict[str, set[str]] = {}
    for option in options:
        key, separator, values = option.partition("=")
        if not separator or key not in ONLY_KEYS:
            hint = f"write `--only KEY=VALUE` with a key of {', '.join(ONLY_KEYS)}, such as `--only arm=none`."
            raise UsageError(f"`--only {option}`: expected KEY=VALUE", hint=hint)
        for value in values.split(","):
            chosen.setdefault(key, set()).add(_known_value(option, key, value.strip(), plan))
    return (lambda cell: all(_value(cell, key) in values for key, values in chosen.items())) if chosen else None


def _value(cell: Cell, key: str) -> str:
    values = {
        "arm": cell.arm.id,
        "workload": cell.workload.name,
        "concurrency": str(cell.concurrency),
        "pass": str(cell.pass_number),
    }
    return values[key]


def _known_value(option: str, key: str, value: str, plan: Plan) -> str:
    known = list(dict.fromkeys(_value(cell, key) for cell in plan.cells))
    if value in known:
        return value
    hint = did_you_mean(nearest(value, known), f"It can be: {', '.join(known)}.")
    raise UsageError(f"`--only {option}`: no cell has {key} `{value}`", hint=hint)
