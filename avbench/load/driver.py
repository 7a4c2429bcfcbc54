"""Closed loop at one concurrency: C requests are always under way, from the first warm-up to the last measured token.

The steady window follows the definition "from the moment the first C requests all have their first token, plus one mean
request time to lose step with each other, until the last request is dispatched". The first C requests of the loop are
warm-up ones: there is no pause between warm-up and measurement in which the batch would run empty and fall into step
again, so that time is not spent twice. When the warm-up rule is met too (C ended requests, `warmup_seconds`) the window
opens and every request dispatched from then on is a measured one.

After the last measured dispatch the load is kept up with warm-up prompts until the measured requests have ended, and
these are then cut off: in a plain drain the requests that end late would run in an ever smaller batch and look faster
than the load they are reported for.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import uvloop

from avbench.load.client import Client, RawAnswer
from avbench.load.interrupt import signals_cancel
from avbench.prompts import Draw
from avbench.record.measurement import TOO_LONG, CellFailure, RequestTrace
from avbench.spec.sweep import CellProtocol, Workload

Phase = Literal["warmup", "measure", "drain"]
RequestPhase = Literal["warmup", "measured"]
WATCH_INTERVAL = 0.2  # s between two looks at the server process
FAILURES_IN_A_ROW = 20  # without any success (and at least 2 C) end a cell
FAILURE_PAUSE = 0.05  # s before a worker goes on after a failed request, so that refusals do not spin


@dataclass(frozen=True, kw_only=True)
class LoadJob:
    """What to send where. `warmup` never ends; `measured` may: the window then ends with it."""

    url: str
    model: str
    workload: Workload
    concurrency: int
    protocol: CellProtocol
    warmup: Iterator[Draw]
    measured: Iterator[Draw]


@dataclass(frozen=True, kw_only=True)
class LoadResult:
    """What the client saw. Times on the cell's clock, which read 0 at Unix time `clock_epoch`."""

    traces: tuple[RequestTrace, ...]  # warm-up and measured, in dispatch order within their phase
    window: tuple[float, float] | None
    clock_epoch: float
    exhausted: bool  # the measured prompts ran out before the window was long enough
    exact_tokens: bool  # the server gave token counts in every chunk
    metrics_before: str | None  # /metrics at the start and the end of the window
    metrics_after: str | None
    failure: CellFailure | None


def run_load(
    job: LoadJob,
    *,
    alive: Callable[[], bool] = lambda: True,
    on_phase: Callable[[Phase], None] = lambda _: None,
) -> LoadResult:
    """Warm up, measure, drain. `alive` says whether the server process runs; a dead one ends the cell at once."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, _quiet_memory():
        return runner.run(_run(job, alive, on_phase))


@contextmanager
def _quiet_memory() -> Iterator[None]:
    """No garbage collection while streams are timed: a full collection takes tens of milliseconds."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


async def _run(job: LoadJob, alive: Callable[[], bool], on_phase: Callable[[Phase], None]) -> LoadResult:
    limit = job.protocol.timeout
    with signals_cancel():
        async with Client(job.url, job.model, job.workload, connections=job.concurrency, timeout=limit) as client:
            await client.open_connections()
            return await ClosedLoop(job, client, on_phase).run(alive)


class ClosedLoop:
    """The state of one cell's loop. `run` may be called once."""

    def __init__(self, job: LoadJob, client: Client, on_phase: Callable[[Phase], None]) -> None:
        self._job, self._client, self._on_phase = job, client, on_phase
        self._over = asyncio.Event()
        self._failure: CellFailure | None = None
        self._coming = next(job.measured, None)  # one ahead, so that the last dispatch is known as such
        self._sent = {"warmup": 0, "measured": 0}
        self._first: list[RawAnswer] = []  # the first C requests of the loop
        self._durations: list[float] = []  # of the requests that ended well
        self._ended = self._open = self._failed_in_a_row = 0
        self._only_too_long = True
        self._traces: list[RequestTrace] = []
        self._exact = True
        self._opened: float | None = None
        self._closed: float | None = None
        self._scrapes: list[asyncio.Task[str | None]] = []
        self._under_way: dict[int, RawAnswer] = {}  # by `id`
        self._fault: Exception | None = None  # of this program, not of the server

    async def run(self, alive: Callable[[], bool]) -> LoadResult:
        """Drive the loop to its end, whatever the server does."""
        epoch = self._client.restart_clock()
        if self._coming is None:
            self._fail("no_prompts", "there is no prompt to measure with")
            return await self._result(epoch)
        self._on_phase("warmup")
        tasks = [asyncio.create_task(self._work()) for _ in range(self._job.concurrency)]
        tasks.append(asyncio.create_task(self._watch(alive)))
        try:
            await asyncio.wait_for(self._over.wait(), self._job.protocol.timeout)
        except TimeoutError:
            self._fail("timeout", self._standstill())
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for fault in (self._fault, *ends):
            if isinstance(fault, Exception):
                raise fault
        return await self._result(epoch)

    def _standstill(self) -> str:
        """Where the loop stood when its time was up."""
        stage = "warming up" if self._opened is None else "measuring" if self._closed is None else "draining"
        waits = [self._client.now() - answer.sent for answer in self._under_way.values()]
        oldest = f", {len(waits)} under way, the oldest for {max(waits):.1f} s" if waits else ""
        limit = f"the cell did not end within its limit of {self._job.protocol.timeout:g} s"
        return f"{limit} ({stage}; {self._ended} requests had ended{oldest})"

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._over.is_set():
                draw, phase = self._next()
                answer = await self._client.send(draw, self._sent[phase] - 1, phase, self._note_start)
                self._note_end(answer)
                loop.call_soon(self._keep, answer)  # parsed after this worker's next request has been sent
                if answer.error is not None:
                    await asyncio.sleep(FAILURE_PAUSE)
        except Exception as error:
            self._surface(error)

    async def _watch(self, alive: Callable[[], bool]) -> None:
        while alive():
            await asyncio.sleep(WATCH_INTERVAL)
        self._fail("engine_died", "the engine process ended during the cell")

    def _next(self) -> tuple[Draw, RequestPhase]:
        if self._opened is None and self._warm():
            self._opened = self._client.now()
            self._scrape("measure")
        if self._opened is None or self._closed is not None or self._coming is None:
            self._sent["warmup"] += 1
            return next(self._job.warmup), "warmup"
        self._sent["measured"] += 1
        draw, self._coming = self._coming, next(self._job.measured, None)
        return draw, "measured"

    def _warm(self) -> bool:
        """The warm-up rule is met and the first C requests have lost step with each other."""
        now, concurrency = self._client.now(), self._job.concurrency
        if now < self._job.protocol.warmup_seconds:
            return False
        if not self._durations:  # only refusals; unless the prompts are to blame the cell will end as failed
            return self._only_too_long and self._ended >= concurrency
        if len(self._durations) < concurrency or any(
            answer.first_token() is None and answer.ended is None for answer in self._first
        ):
            return False
        all_started = max((answer.first_token() or 0.0 for answer in self._first), default=0.0)
        return now >= all_started + sum(self._durations) / len(self._durations)

    def _note_start(self, answer: RawAnswer) -> None:
        self._under_way[id(answer)] = answer
        if len(self._first) < self._job.concurrency:
            self._first.append(answer)
        if self._filling(answer):
            return
        self._open += 1
        if answer.phase == "measured" and (self._coming is None or self._long_enough(answer.sent)):
            self._closed = answer.sent  # this was the last dispatch
            self._scrape("drain")

    def _long_enough(self, now: float) -> bool:
        protocol = self._job.protocol
        long = now - (self._opened or 0.0) >= protocol.seconds
        return long and self._sent["measured"] >= protocol.min_requests

    def _filling(self, answer: RawAnswer) -> bool:
        """Only keeps the load up while the measured requests end."""
        return self._closed is not None and answer.sent > self._closed

    def _note_end(self, answer: RawAnswer) -> None:
        del self._under_way[id(answer)]
        self._ended += 1
        if answer.error is None:
            self._durations.append((answer.ended or answer.sent) - answer.sent)
            self._failed_in_a_row = 0
        elif not answer.error.startswith(TOO_LONG):
            self._only_too_long = False
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= max(FAILURES_IN_A_ROW, 2 * self._job.concurrency):
                kind = "requests_failed" if self._durations else "all_requests_failed"
                self._fail(kind, f"{self._failed_in_a_row} requests in a row failed; the last one: {answer.error}")

    def _keep(self, answer: RawAnswer) -> None:
        """A callback of the event loop, which would only log what it raises."""
        if self._filling(answer):
            return
        try:
            trace, exact = answer.trace()
        except Exception as error:
            self._surface(error)
            return
        self._traces.append(trace)
        self._exact &= exact
        self._open -= 1
        if self._closed is not None and self._open == 0:
            self._over.set()

    def _scrape(self, phase: Phase) -> None:
        self._scrapes.append(asyncio.create_task(self._client.get_text("/metrics")))
        self._on_phase(phase)

    def _surface(self, fault: Exception) -> None:
        self._fault = self._fault or fault
        self._over.set()

    def _fail(self, kind: str, reason: str) -> None:
        self._failure = self._failure or CellFailure(kind=kind, reason=reason)
        self._over.set()

    async def _result(self, epoch: float) -> LoadResult:
        complete = self._failure is None and self._closed is not None
        if not complete:
            for scrape in self._scrapes:
                scrape.cancel()
        texts = await asyncio.gather(*self._scrapes) if complete else []
        window = (self._opened, self._closed) if self._opened is not None and self._closed is not None else None
        return LoadResult(
            traces=tuple(sorted(self._traces, key=lambda trace: (trace.phase != "warmup", trace.index))),
            window=window,
            clock_epoch=epoch,
            exhausted=complete and not self._long_enough(self._closed or 0.0),
            exact_tokens=self._exact,
            metrics_before=texts[0] if complete else None,
            metrics_after=texts[1] if complete else None,
            failure=self._failure,
        )
