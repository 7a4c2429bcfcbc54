"""The one loop that measures a plan."""

from __future__ import annotations

from avbench.runner.loop import Outcome, Ports, run_plan
from avbench.runner.watch import Watch

__all__ = ["Outcome", "Ports", "Watch", "run_plan"]
