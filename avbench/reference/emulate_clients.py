"""Closed loop in virtual time: C clients that send a request, wait for its end, and send the next at that moment.

Virtual time has no jitter. C clients that start together would stay in step for ever: all their prompts in one step,
then none for as long as a request lasts, which no server under lasting load sees. So the first request of the i-th
client is cut to i/C of its output, and the clients are spread over the length of a request from the start.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal, Protocol

from avbench.reference.clock import VirtualClock
from avbench.reference.core import Emit
from avbench.reference.emulate_counters import Counters
from avbench.reference.emulate_job import CellJob, Draw
from avbench.reference.emulate_request import Request, RequestPhase
from avbench.reference.emulate_window import Window
from avbench.reference.fields import ApiError
from avbench.reference.messages import StepOutput, Submit

Phase = Literal["warmup", "measure", "drain"]
FAILURE_PAUSE = 0.05  # virtual s before a client goes on after a refusal, so that time passes


class Engine(Protocol):
    """What clients need of an `EngineCore`."""

    @property
    def idle(self) -> bool:
        """No request runs or waits."""

    def add(self, submit: Submit) -> None:
        """Queue a request."""

    def abort(self, request_id: int) -> None:
        """Drop a request."""

    def step(self, emit: Emit) -> None:
        """One engine step."""


class ClosedLoop:
    """One cell: warm-up, window, drain. `run` may be called once; then `result` says what happened."""

    def __init__(
        self,
        cell: CellJob,
        engine: Engine,
        clock: VirtualClock,
        counters: Counters,
        make: Callable[[Draw, int], Submit],
        numbers: Iterator[int],
        on_phase: Callable[[Phase], None],
    ) -> None:
        """`make` turns a draw and one of `numbers` into a request, or raises ApiError as the server would answer."""
        self._cell, self._engine, self._clock, self._counters = cell, engine, clock, counters
        self._make, self._numbers, self._on_phase = make, numbers, on_phase
        self._warmup, self._measured = cell.warmup.draws(), cell.measured.draws()
        self._coming = next(self._measured, None)  # one ahead, so that the last dispatch is known as such
        self._sent: dict[RequestPhase, int] = {"warmup": 0, "measured": 0}
        self._waking = [(0.0, client) for client in range(cell.concurrency)]  # when which client sends next
        self._under_way: dict[int, Request] = {}  # by number
        self._window = Window(cell)
        self._requests: list[Request] = []  # all but the filling ones
        self._before = self._after = counters.copy()  # at both ends of the window
        self._steps = [clock.steps, clock.steps]

    def run(self) -> None:
        """Drive the loop to its end; what is under way then is cut off."""
        self._clock.restart()
        if self._coming is None:
            self._window.failure = ("no_prompts", "there is no prompt to measure with")
        else:
            self._on_phase("warmup")
        self._wake()
        while not self._over():
            if self._engine.idle:
                self._clock.wait_until(self._waking[0][0])
            else:
                self._engine.step(self._take)
            self._wake()
        for number in self._under_way:
            self._engine.abort(number)

    def result(self) -> dict[str, object]:
        """Everything about the cell, fit for JSON. Seconds from the cell's start; `origin` is that start, in seconds
        from the engine's."""
        window, (first, behind) = self._window, self._steps
        whole = window.failure is None and window.closed is not None
        enough = window.long_enough(window.closed or 0.0, self._sent["measured"])
        return {
            "origin": self._clock.origin,
            "window": [window.opened, window.closed] if whole else None,
            "exhausted": whole and not enough,
            "failure": dict(zip(("kind", "reason"), window.failure, strict=True)) if window.failure else None,
            "steps": [first, behind - 1] if whole and behind > first else None,
            "counters": self._after.since(self._before) if whole else None,
            "requests": [request.record() for request in self._requests if request.ended],
        }

    def _over(self) -> bool:
        done = self._window.closed is not None and all(request.filling for request in self._under_way.values())
        return done or self._window.failure is not None

    def _wake(self) -> None:
        """Let every client send whose moment has come: the end of its last request, not that of the engine's step."""
        while self._waking and self._waking[0][0] <= self._clock.seconds and not self._over():
            moment, client = heapq.heappop(self._waking)
            self._send(client, moment)

    def _send(self, client: int, now: float) -> None:
        draw, phase = self._next(now)
        request = Request(
            index=self._sent[phase] - 1,
            prompt_id=draw.prompt_id,
            sample=draw.sample,
            seed=draw.seed,
            phase=phase,
            sent=now,
            client=client,
            filling=self._window.closed is not None,
        )
        self._window.sent(request)
        if not request.filling:
            self._requests.append(request)
        self._dispatch(request, draw)
        last = self._coming is None or self._window.long_enough(now, self._sent["measured"])
        if phase == "measured" and last:
            self._window.closed = now
            self._after, self._steps[1] = self._counters.copy(), self._clock.steps
            self._on_phase("drain")

    def _next(self, now: float) -> tuple[Draw, RequestPhase]:
        if self._window.opened is None and self._window.warm(now):
            self._window.opened = now
            self._before, self._steps[0] = self._counters.copy(), self._clock.steps
            self._on_phase("measure")
        if self._window.opened is None or self._window.closed is not None or self._coming is None:
            self._sent["warmup"] += 1
            return next(self._warmup), "warmup"
        self._sent["measured"] += 1
        draw, self._coming = self._coming, next(self._measured, None)
        return draw, "measured"

    def _dispatch(self, request: Request, draw: Draw) -> None:
        number = next(self._numbers)
        try:
            submit = self._make(draw, number)
        except ApiError as error:
            request.error, request.status = str(error), error.code
            self._window.ended(request, too_long=error.too_long)
            heapq.heappush(self._waking, (request.sent + FAILURE_PAUSE, request.client))
            return
        request.prompt_tokens = len(submit.prompt)
        self._under_way[number] = request
        self._engine.add(self._spread(submit))

    def _spread(self, submit: Submit) -> Submit:
        """The first request of each client is cut so that the clients do not stay in step."""
        clients, place = self._cell.concurrency, sum(self._sent.values())
        if place > clients:
            return submit
        return replace(submit, max_tokens=max(1, submit.max_tokens * place // clients))

    def _take(self, output: StepOutput) -> None:
        now = self._clock.seconds
        self._counters.add(output)
        for tokens in output.requests:
            request = self._under_way[tokens.request_id]
            request.take(now, len(tokens.tokens), tokens.finish)
            if tokens.finish is not None:
                del self._under_way[tokens.request_id]
                self._window.ended(request)
                heapq.heappush(self._waking, (now, request.client))
