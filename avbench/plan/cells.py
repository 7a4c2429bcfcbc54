"""What a sweep will do: server groups, cells, order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from avbench.prompts import PromptSet
from avbench.spec.arm import Arm
from avbench.spec.sweep import SweepSpec, Workload

if TYPE_CHECKING:
    from avbench.adaptive.cost_file import CostFile


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Arm x workload x load x pass: the unit that is measured, stored, resumed."""

    arm: Arm
    workload: Workload
    concurrency: int
    pass_number: int  # from 1
    loads_before: tuple[str, ...]  # `code@8` for each cell that ran before on the same server
    identity: str  # hash, see `identity.py`
    # Run like any cell but neither measured nor recorded: only to bring an estimator to the state in which a later
    # cell of the same server expects it (see `resume.py`).
    replayed: bool = False

    @property
    def id(self) -> str:
        """Readable and stable: `fixed-3__code__c8__p1`; the name of its folder."""
        return f"{self.arm.id}__{self.workload.name}__c{self.concurrency}__p{self.pass_number}"

    @property
    def load(self) -> str:
        """`code@8`: how other cells on the same server name this one in `loads_before`."""
        return f"{self.workload.name}@{self.concurrency}"


@dataclass(frozen=True, kw_only=True)
class ServerGroup:
    """Cells that share one server start, in the order they run."""

    arm: Arm
    pass_number: int
    cells: tuple[Cell, ...]

    @property
    def id(self) -> str:
        """`fixed-3-p1`; the name of its folder under `servers/`."""
        return f"{self.arm.id}-p{self.pass_number}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The whole sweep in order, or what remains of it."""

    spec: SweepSpec
    groups: tuple[ServerGroup, ...]
    prompt_sets: Mapping[str, PromptSet] = field(default_factory=dict, compare=False, repr=False)  # by workload name
    costs: CostFile | None = field(default=None, compare=False, repr=False)  # of the emulated clock

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells in running order, replayed ones included."""
        return tuple(cell for group in self.groups for cell in group.cells)

    @property
    def measured_cells(self) -> tuple[Cell, ...]:
        """The cells that end in a record."""
        return tuple(cell for cell in self.cells if not cell.replayed)
