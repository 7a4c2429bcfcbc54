"""How long a plan will take: an estimate, made before anything runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from avbench.plan.cells import Cell, Plan, ServerGroup

# Reference engine on one core of a laptop, float32, shipped pair. A token takes a request about 3.3 ms at C=1, 6.4 ms
# at C=8, 32 ms at C=64, without speculation and HTTP included: a straight line.
SECONDS_PER_TOKEN = 0.0028
SECONDS_PER_TOKEN_AND_REQUEST = 0.00045
# On two slow shared cores it was 7.1, 13.5 and 57 ms, and deep drafts at C=64 take twice as long again: the quickstart
# took 7 min 18 s there. Time is reckoned between the two machines, prompts for the fast one: spare ones are cheap.
SLOWDOWN = 2.0
SERVER_START_SECONDS = 4.0  # 3 s with warm files, more without
# The first requests start together and wait for each other's prompts; then one request time passes.
WARMUP_REQUESTS = 1.25
# Arms that speculate send requests faster: reckon with more of them than plain decoding needs. Cost tables are those of
# GPUs, where verifying a few tokens more is almost free.
SPECULATION_SPEEDUP = 1.5
VIRTUAL_SPEEDUP = 2.5
# A CPU computes K more tokens in each step: 4.5 times the work at K=7 (about 5 measured at C=64). In real time the
# tokens gained make up for half of it; a virtual step does not wait for it.
WORK_PER_DRAFT = 0.5


@dataclass(frozen=True, kw_only=True)
class GroupTime:
    """Seconds that one server start with its cells is expected to take."""

    group: str
    start: float
    cells: float

    @property
    def total(self) -> float:
        """Start and cells."""
        return self.start + self.cells


@dataclass(frozen=True, kw_only=True)
class TimeEstimate:
    """Expected seconds by server start, in running order."""

    groups: tuple[GroupTime, ...]

    @property
    def total(self) -> float:
        """Seconds of the whole plan."""
        return sum(group.total for group in self.groups)


def estimate_seconds(plan: Plan) -> TimeEstimate:
    """Server starts, warm-ups, windows and drains; replayed cells take their time like measured ones."""
    return TimeEstimate(groups=tuple(_group_time(plan, group) for group in plan.groups))


def _group_time(plan: Plan, group: ServerGroup) -> GroupTime:
    cells = sum(cell_seconds(plan, cell) for cell in group.cells)
    return GroupTime(group=group.id, start=SERVER_START_SECONDS, cells=cells)


def _step_seconds(cell: Cell) -> float:
    """Expected time of an engine step of plain decoding on a fast machine: a token for each request."""
    return SECONDS_PER_TOKEN + SECONDS_PER_TOKEN_AND_REQUEST * cell.concurrency


def _virtual_step_seconds(plan: Plan, cell: Cell) -> float | None:
    """The same in virtual time, by the cost table; None if time is real."""
    if plan.costs is None:
        return None
    size = cell.concurrency
    return float(plan.costs.tables(kind="pass", depth=0, max_requests=size, max_tokens=size).verify[size]) / 1000.0


def cell_seconds(plan: Plan, cell: Cell) -> float:
    """Warm-up until the first requests have lost step with each other, the window, and the end of its last requests.

    Virtual seconds take as long as the models need for the steps in them.
    """
    virtual, slow = _virtual_step_seconds(plan, cell), SLOWDOWN * _step_seconds(cell)
    request = cell.workload.max_tokens * (virtual or slow)
    warmup = max(plan.spec.cell.warmup_seconds, WARMUP_REQUESTS * request)
    window = max(plan.spec.cell.seconds, plan.spec.cell.min_requests * request / cell.concurrency)
    total = warmup + window + request
    return total if virtual is None else total / virtual * slow * (1 + WORK_PER_DRAFT * cell.arm.k)


def requests_needed(plan: Plan, cell: Cell) -> int:
    """Measured requests that a cell sends until its window is long enough and full enough, at the pace of a good
    draft."""
    virtual = _virtual_step_seconds(plan, cell)
    request = cell.workload.max_tokens * (virtual or _step_seconds(cell))
    pace = (SPECULATION_SPEEDUP if virtual is None else VIRTUAL_SPEEDUP) * cell.concurrency / request
    return max(plan.spec.cell.min_requests, math.ceil(pace * plan.spec.cell.seconds))
