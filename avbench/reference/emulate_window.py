"""When a cell's steady window opens and closes. The rules are those of the HTTP load driver, in virtual seconds."""

from __future__ import annotations

from avbench.reference.emulate_job import CellJob
from avbench.reference.emulate_request import Request

FAILURES_IN_A_ROW = 20  # without any success (and at least 2 C) end a cell


class Window:
    """Told of every request that is sent and of every one that ends."""

    def __init__(self, cell: CellJob) -> None:
        self._cell = cell
        self._first: list[Request] = []  # the first C requests
        self._seconds = 0.0  # summed over the requests that ended well
        self._well = self._ended = self._failed_in_a_row = 0
        self._only_too_long = True
        self.opened: float | None = None
        self.closed: float | None = None
        self.failure: tuple[str, str] | None = None  # kind, reason

    def sent(self, request: Request) -> None:
        """A request is on its way."""
        if len(self._first) < self._cell.concurrency:
            self._first.append(request)

    def ended(self, request: Request, *, too_long: bool = False) -> None:
        """A request ended; `too_long`: it was refused because its prompt exceeds the context."""
        self._ended += 1
        if request.error is None:
            self._well += 1
            self._seconds += request.chunk_times[-1] - request.sent
            self._failed_in_a_row = 0
        elif not too_long:
            self._only_too_long = False
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= max(FAILURES_IN_A_ROW, 2 * self._cell.concurrency):
                kind = "requests_failed" if self._well else "all_requests_failed"
                reason = f"{self._failed_in_a_row} requests in a row failed; the last one: {request.error}"
                self.failure = (kind, reason)

    def warm(self, now: float) -> bool:
        """The warm-up rule is met and the first C requests have lost step with each other."""
        if now < self._cell.warmup_seconds:
            return False
        if not self._well:  # only refusals; unless the prompts are to blame the cell will end as failed
            return self._only_too_long and self._ended >= self._cell.concurrency
        if self._well < self._cell.concurrency or not all(request.started for request in self._first):
            return False
        all_started = max(request.chunk_times[0] if request.chunk_times else 0.0 for request in self._first)
        return now >= all_started + self._seconds / self._well

    def long_enough(self, now: float, measured: int) -> bool:
        """Whether the window may close at `now`, with so many measured requests sent."""
        return now - (self.opened or 0.0) >= self._cell.seconds and measured >= self._cell.min_requests
