"""The emulated clock and its cost table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from avbench.errors import UsageError
from avbench.spec.arm import Arm
from avbench.spec.document import Location
from avbench.spec.finding import Finding
from avbench.spec.schema import SweepFile
from avbench.spec.step_costs import draft_kind, read_costs

_COSTS = ("engine", "costs")


def clock_findings(file: SweepFile, base: Path, arms: Sequence[tuple[Location, Arm]]) -> Iterator[Finding]:
    """A table that is missing, not needed, damaged, or that does not reach the loads. `base`: its path starts there."""
    costs = file.engine.costs
    if file.engine.clock == "emulated":
        if costs is None:
            yield Finding(
                location=_COSTS,
                message="missing, but `clock: emulated` takes the time of every step from a cost table",
                hint="add `costs: FILE`, as `sweeps/emulated-b300.yaml` does, or remove `clock`.",
            )
        else:
            yield from _table(file, costs, base, max(arm.k for _, arm in arms))
    elif costs is not None:
        yield Finding(
            location=_COSTS,
            message=f"got `{costs}`, but the clock is real: the engine measures its own costs",
            hint="add `clock: emulated`, or remove `costs`.",
        )


def _table(file: SweepFile, costs: str, base: Path, k: int) -> Iterator[Finding]:
    """`k`: of the deepest arm, 0 if none drafts."""
    kind = draft_kind(file.pair.method) if k else None
    try:
        read_costs(costs, base).check_covers(max(file.load.concurrency), k=k, kind=kind)
    except UsageError as error:
        yield Finding(location=_COSTS, message=error.message, hint=error.hint or "")
