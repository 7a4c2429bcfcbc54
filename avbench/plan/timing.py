"""How long a plan will take: an estimate, made before anything runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from avbench.plan.cells import Cell, Plan, ServerGroup

# Reference engine on one core of a laptop, float32, shipped pair. A server is ready after about 6 s; a token takes a
# request about 3.3 ms at C=1, 6.4 ms at C=8, 32 ms at C=64, without speculation and HTTP included: a straight line.
SERVER_START_SECONDS = 6.0
SECONDS_PER_TOKEN = 0.0028
SECONDS_PER_TOKEN_AND_REQUEST = 0.00045
# The first requests start together and wait for each other's prompts; then one request time passes.
WARMUP_REQUESTS = 1.25
# Arms that speculate send requests faster: reckon with more of them than plain decoding needs.
SPECULATION_SPEEDUP = 1.5


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


def request_seconds(cell: Cell) -> float:
    """Expected end-to-end time of one request that uses its whole output limit."""
    return cell.workload.max_tokens * (SECONDS_PER_TOKEN + SECONDS_PER_TOKEN_AND_REQUEST * cell.concurrency)


def cell_seconds(plan: Plan, cell: Cell) -> float:
    """Warm-up until the first requests have lost step with each other, the window, and the end of its last requests."""
    request = request_seconds(cell)
    warmup = max(plan.spec.cell.warmup_seconds, WARMUP_REQUESTS * request)
    return warmup + _window_seconds(plan, cell) + request


def _window_seconds(plan: Plan, cell: Cell) -> float:
    protocol = plan.spec.cell
    return max(protocol.seconds, protocol.min_requests * request_seconds(cell) / cell.concurrency)


def requests_needed(plan: Plan, cell: Cell) -> int:
    """Measured requests that a cell sends until its window is long enough, at the pace of a good draft."""
    pace = SPECULATION_SPEEDUP * cell.concurrency / request_seconds(cell)
    return math.ceil(pace * _window_seconds(plan, cell))
