"""The open requests, and the link to the core that fills them.

Every message of the core is taken at once and turned into deltas; each request's own task writes them to its client
when the client takes them. So a slow client costs memory (at most its `max_tokens`), never an engine step.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from typing import Any

from avbench.reference.corelink import CoreLink
from avbench.reference.fields import ApiError
from avbench.reference.messages import Abort, Ready, RequestTokens, Shutdown, StepOutput, Submit
from avbench.reference.metrics import EngineMetrics, RequestTimes
from avbench.reference.protocol import Call
from avbench.reference.responses import Delta
from avbench.reference.text import TextStream

LOADING = "The engine is still loading the model."


class OpenRequest:
    """One request between its Submit and its end; deltas wait here until its task takes them."""

    def __init__(self, request_id: int, text: TextStream, now: float) -> None:
        self.request_id = request_id
        self.times = RequestTimes(now)
        self._text = text
        self._completion_tokens = 0
        self._deltas: list[Delta] = []
        self._error: ApiError | None = None
        self._wake = asyncio.Event()

    def push(self, output: RequestTokens) -> Delta:
        """Add one step's tokens. The end-of-text token counts, but has no text."""
        tokens = output.tokens[:-1] if output.finish == "stop" else output.tokens
        self._completion_tokens += len(output.tokens)
        text = self._text.push(tokens, output.finish is not None)
        stop = self._text.stop_reason
        delta = Delta(text, self._completion_tokens, output.finish if stop is None else "stop", stop)
        self._deltas.append(delta)
        self._wake.set()
        return delta

    def fail(self, error: ApiError) -> None:
        """End the request with an error, after the deltas that have come."""
        self._error = error
        self._wake.set()

    async def take(self) -> list[Delta]:
        """All deltas that have come, at least one; the last delta of a request has `finish`. Raises ApiError."""
        await self._wake.wait()
        if not self._deltas and self._error is not None:
            raise self._error
        deltas, self._deltas = self._deltas, []
        if self._error is None:
            self._wake.clear()
        return deltas


class Frontend:
    """Submits requests to the core and hands its output to them. `gone` is set when the core has ended."""

    def __init__(self, link: CoreLink, metrics: EngineMetrics, pieces: Mapping[int, bytes]) -> None:
        self.ready: Ready | None = None
        self.gone = asyncio.Event()
        self.became_ready = asyncio.Event()
        self._link = link
        self._metrics = metrics
        self._pieces = pieces
        self._ids = itertools.count()
        self._open: dict[int, OpenRequest] = {}
        self._refusal: ApiError | None = unavailable(LOADING)
        link.attach(asyncio.get_running_loop(), self.on_messages, self.on_close)

    def check_ready(self) -> Ready:
        """What the core said when it was ready. Raises ApiError while it cannot take requests."""
        if self.ready is None or self._refusal is not None:
            raise self._refusal or unavailable(LOADING)
        return self.ready

    def submit(self, call: Call, prompt: tuple[int, ...], max_tokens: int) -> OpenRequest:
        """Send a request whose prompt and `max_tokens` fit the context. Raises ApiError when the core is not there."""
        self.check_ready()
        request = OpenRequest(next(self._ids), TextStream(self._pieces, call.stop), time.monotonic())
        self._open[request.request_id] = request
        self._send(
            Submit(
                request_id=request.request_id,
                prompt=prompt,
                max_tokens=max_tokens,
                temperature=call.temperature,
                top_p=call.top_p,
                seed=call.seed,
                ignore_eos=call.ignore_eos,
            )
        )
        return request

    def release(self, request: OpenRequest) -> None:
        """The request's task is over. If the core still works on it, the client went away: free the slot."""
        if self._open.pop(request.request_id, None) is not None:
            self._send(Abort(request_id=request.request_id))
            self._metrics.finished("abort", request.times, time.monotonic())

    def stop(self) -> None:
        """Refuse new requests, abort the open ones and tell the core to leave."""
        for request_id in self._open:
            self._send(Abort(request_id=request_id))
        self._send(Shutdown())
        self._refuse(unavailable("The server is shutting down."))

    def on_messages(self, messages: list[Any]) -> None:
        """Take what the core said, in order."""
        now = time.monotonic()
        for message in messages:
            if isinstance(message, StepOutput):
                self._step(message, now)
            elif isinstance(message, Ready) and self.ready is None:
                self.ready, self._refusal = message, None
                self.became_ready.set()

    def on_close(self) -> None:
        """The core has ended, wanted or not."""
        self._refuse(ApiError("The engine core has died.", code=500, kind="InternalServerError"))
        self.gone.set()

    @property
    def healthy(self) -> bool:
        """Whether requests are taken."""
        return self._refusal is None

    def _step(self, step: StepOutput, now: float) -> None:
        self._metrics.step(step)
        for output in step.requests:
            request = self._open.get(output.request_id)
            if request is None:
                continue
            self._metrics.tokens(len(output.tokens), request.times, now)
            delta = request.push(output)
            if delta.finish is not None:
                self._metrics.finished(delta.finish, request.times, now)
                del self._open[output.request_id]
                if output.finish is None:
                    self._send(Abort(request_id=output.request_id))

    def _refuse(self, error: ApiError) -> None:
        self._refusal = error
        for request in self._open.values():
            request.fail(error)
        self._open.clear()

    def _send(self, message: object) -> None:
        try:
            self._link.send(message)
        except EOFError:
            return  # the reader finds the end of the link and calls `on_close`


def unavailable(message: str) -> ApiError:
    """503: not now."""
    return ApiError(message, code=503, kind="ServiceUnavailableError")
