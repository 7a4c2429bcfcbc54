"""What the runner tells whoever looks on; `avbench/progress.py` shows it to people."""

from __future__ import annotations

from typing import Protocol

from avbench.load.driver import Phase
from avbench.plan import Cell, ServerGroup
from avbench.record.measurement import Measurement


class Watch(Protocol):
    """Called in the order in which things happen, from the runner's thread."""

    def starting(self, group: ServerGroup) -> None:
        """A server start begins."""

    def ready(self, group: ServerGroup) -> None:
        """It is ready, and it is ours."""

    def phase(self, cell: Cell, phase: Phase) -> None:
        """A cell goes on to its next phase."""

    def replayed(self, cell: Cell) -> None:
        """A cell that leaves no record has ended."""

    def recorded(self, cell: Cell, measurement: Measurement) -> None:
        """A cell's record is on the disk."""

    def stopped(self, group: ServerGroup) -> None:
        """The server is down and nothing of it is left."""

    def trouble(self, text: str) -> None:
        """Something failed; what is done about it."""
