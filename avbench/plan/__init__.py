"""The plan of a sweep: which cells, on which servers, in which order, and what is known about it beforehand."""

from __future__ import annotations

from avbench.plan.cells import Cell, Plan, ServerGroup
from avbench.plan.doubts import Capacity, PlanWarning, plan_warnings, prompt_capacities
from avbench.plan.expand import expand_plan
from avbench.plan.identity import PROTOCOL_VERSION
from avbench.plan.resume import Choice, parse_only, remaining_group, remaining_plan
from avbench.plan.timing import GroupTime, TimeEstimate, estimate_seconds

__all__ = [
    "PROTOCOL_VERSION",
    "Capacity",
    "Cell",
    "Choice",
    "GroupTime",
    "Plan",
    "PlanWarning",
    "ServerGroup",
    "TimeEstimate",
    "estimate_seconds",
    "expand_plan",
    "parse_only",
    "plan_warnings",
    "prompt_capacities",
    "remaining_group",
    "remaining_plan",
]
