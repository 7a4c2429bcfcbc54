"""Who runs: requests wait in order of arrival for a slot, and keep it until they end."""

from __future__ import annotations

import heapq
from collections import deque

from avbench.reference.sequence import Sequence

MAX_PREFILL_TOKENS = 2048  # prompts begun in one step, so that a burst of arrivals does not stall all streams at once


class Scheduler:
    """Waiting queue and slots. The lowest free slot goes first, so that the running ones lie close together."""

    def __init__(self, slots: int) -> None:
        self._free = list(range(slots))
        self._waiting: deque[Sequence] = deque()
        self.running: dict[int, Sequence] = {}  # by request id

    @property
    def waiting(self) -> int:
        """Requests without a slot."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Nothing to do."""
        return not self.running and not self._waiting

    def add(self, sequence: Sequence) -> None:
        """Queue a request."""
        self._waiting.append(sequence)

    def start(self) -> list[Sequence]:
        """Give free slots to waiting requests, up to the prefill limit; at least one if a slot is free."""
        started: list[Sequence] = []
        tokens = 0
        while self._waiting and self._free:
            tokens += self._waiting[0].prompt_length
            if started and tokens > MAX_PREFILL_TOKENS:
                break
            sequence = self._waiting.popleft()
            sequence.slot = heapq.heappop(self._free)
            self.running[sequence.request_id] = sequence
            started.append(sequence)
        return started

    def finish(self, sequence: Sequence) -> None:
        """Free a running request's slot."""
        del self.running[sequence.request_id]
        heapq.heappush(self._free, sequence.slot)

    def abort(self, request_id: int) -> None:
        """Drop a request wherever it is; unknown ids are ignored (it may just have ended)."""
        if request_id in self.running:
            self.finish(self.running[request_id])
        else:
            self._waiting = deque(s for s in self._waiting if s.request_id != request_id)
