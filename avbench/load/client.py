"""One streamed request. Bytes and their arrival times are kept raw; nothing is parsed while a stream runs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Self

import aiohttp
import orjson

from avbench.load.request import encode_body, endpoint
from avbench.load.stream import parse_stream
from avbench.prompts import Draw
from avbench.record.measurement import TOO_LONG, RequestTrace
from avbench.spec.sweep import Workload

CONTEXT_WORDS = "context length"  # in each form of vLLM's message about it
CONNECT_TIMEOUT = 10.0  # s
ERROR_BODY = 500  # characters of an error's body that are kept


@dataclass(kw_only=True)
class RawAnswer:
    """A request while it runs and after it: what was sent when, what arrived when. Times on the cell's clock."""

    draw: Draw
    index: int
    phase: Literal["warmup", "measured"]
    sent: float
    times: list[float] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    status: int | None = None
    error: str | None = None
    ended: float | None = None
    _first_token: float | None = None

    def first_token(self) -> float | None:
        """When the first token arrived; None if none has so far."""
        if self._first_token is None and self.status == 200:
            times = parse_stream(self.pieces, self.times).times
            self._first_token = times[0] if times else None
        return self._first_token

    def trace(self) -> tuple[RequestTrace, bool]:
        """The record of this request, and whether its chunk tokens are exact (see `stream.Tokens`)."""
        tokens = parse_stream(self.pieces if self.status == 200 else (), self.times)
        error = self.error or (tokens.error if self.status == 200 else f"HTTP status {self.status}")
        if error is None and not tokens.times:
            error = "the answer has no tokens"
        trace = RequestTrace(
            index=self.index,
            prompt_id=self.draw.prompt.id,
            sample=self.draw.sample,
            seed=self.draw.seed,
            phase=self.phase,
            sent=self.sent,
            chunk_times=tokens.times,
            chunk_tokens=tokens.counts,
            prompt_tokens=tokens.prompt_tokens,
            output_tokens=tokens.output_tokens,
            finish_reason=tokens.finish_reason,
            error=error,
            status=self.status,
        )
        return trace, tokens.exact


class Client:
    """Sends a workload's requests to one server over at most `connections` kept-alive connections."""

    def __init__(self, url: str, model: str, workload: Workload, *, connections: int, timeout: float) -> None:
        self.origin = time.perf_counter()
        self._url, self._model, self._workload = url, model, workload
        self._route = url + endpoint(workload)
        self._connections = connections
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=600.0),
            timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT),
            read_bufsize=1 << 20,  # a pause of this process must not push back on the server
            headers={"Content-Type": "application/json"},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    def now(self) -> float:
        """Seconds on the cell's clock."""
        return time.perf_counter() - self.origin

    def restart_clock(self) -> float:
        """Set the cell's clock to 0 and return the Unix time of that moment."""
        self.origin = time.perf_counter()
        return time.time()

    async def open_connections(self) -> None:
        """Open all connections at once, before anything is timed. A server that refuses shows in the requests."""
        questions = (self.get_text("/health") for _ in range(self._connections))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*questions), CONNECT_TIMEOUT)

    async def get_text(self, path: str) -> str | None:
        """GET `path`; None if the server does not answer 200."""
        try:
            async with self._session.get(self._url + path) as response:
                text = await response.text()
                return text if response.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None

    async def send(
        self, draw: Draw, index: int, phase: Literal["warmup", "measured"], started: Callable[[RawAnswer], None]
    ) -> RawAnswer:
        """Send one request and collect its answer; `started` gets the record when the clock of the request starts.

        Never raises for what the server does: refused connections, error statuses, cut streams and timeouts end up
        in `error`.
        """
        body = encode_body(draw, self._workload, self._model)
        answer = RawAnswer(draw=draw, index=index, phase=phase, sent=self.now())
        started(answer)
        try:
            await self._collect(body, answer)
        except TimeoutError:
            answer.error = "no end of the answer within the cell's time limit"
        except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, ConnectionResetError) as error:
            answer.error = f"the stream was cut: {_words(error)}" if answer.pieces else _words(error)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            answer.error = _words(error)
        answer.ended = self.now()
        return answer

    async def _collect(self, body: bytes, answer: RawAnswer) -> None:
        clock, origin = time.perf_counter, self.origin
        async with self._session.post(self._route, data=body) as response:
            answer.status = response.status
            if response.status != 200:
                answer.error = refusal(response.status, await response.text(errors="replace"))
                return
            times, pieces = answer.times, answer.pieces
            async for piece in response.content.iter_any():
                times.append(clock() - origin)
                pieces.append(piece)


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def refusal(status: int, text: str) -> str:
    """The error of a request that was answered with another status than 200 and this body, or message."""
    try:
        body = orjson.loads(text)
        message = str(body["error"]["message"] if "error" in body else body["message"])
    except (ValueError, KeyError, TypeError):
        message = text
    message = message.strip()[:ERROR_BODY]
    if status == 400 and CONTEXT_WORDS in message:
        return TOO_LONG + message
    return f"HTTP {status}: {message}"
