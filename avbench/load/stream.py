"""From the bytes of one streamed answer, with their arrival times, to tokens. Runs after the request has ended."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import orjson

DONE = b"[DONE]"


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What a stream said. `times` and `counts` have one entry for each chunk that brought tokens.

    `exact` is False when the server gave no usage per chunk: the total is then spread evenly over the chunks with
    text, since a chunk carries several tokens under speculation and chunks must not be counted as tokens.
    """

    times: tuple[float, ...]
    counts: tuple[int, ...]
    prompt_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None
    error: str | None
    exact: bool = True


def parse_stream(pieces: Sequence[bytes], times: Sequence[float]) -> Tokens:
    """`pieces[i]` arrived at `times[i]`; an event arrives with the piece that holds the end of its line."""
    reading = _Reading()
    for data, time in _events(pieces, times):
        if reading.done:
            break
        reading.take(data, time)
    return reading.result()


def _events(pieces: Sequence[bytes], times: Sequence[float]) -> Iterator[tuple[bytes, float]]:
    """Data of each complete server-sent event line; other fields and comments are skipped."""
    ends = list(accumulate(len(piece) for piece in pieces))
    whole = b"".join(pieces)
    start = 0
    while (end := whole.find(b"\n", start)) >= 0:
        line = whole[start:end].rstrip(b"\r")
        if line.startswith(b"data:"):
            yield line[5:].strip(), times[bisect_left(ends, end + 1)]
        start = end + 1


class _Reading:
    """The state between two events of one stream."""

    def __init__(self) -> None:
        self.done = False
        self._times: list[float] = []
        self._counts: list[int] = []
        self._texts: list[float] = []  # arrivals of chunks with text
        self._chunk_usage = False  # some chunk with a choice carried usage
        self._prompt: int | None = None
        self._total: int | None = None
        self._finish: str | None = None
        self._error: str | None = None

    def take(self, data: bytes, time: float) -> None:
        if data == DONE:
            self.done = True
            return
        try:
            chunk = orjson.loads(data)
            choices, usage, error = chunk.get("choices") or [], chunk.get("usage"), chunk.get("error")
            if error is not None:
                self._fail(f"error in the stream: {_message(error)}")
            if choices:
                self._take_choice(choices[0], time)
            if usage:
                self._take_usage(usage, time, with_choice=bool(choices))
        except (ValueError, AttributeError, KeyError, TypeError):
            self._fail(f"malformed chunk: {data[:200].decode(errors='replace')}")

    def _fail(self, error: str) -> None:
        self._error = self._error or error
        self.done = True

    def _take_choice(self, choice: Any, time: float) -> None:
        self._finish = choice.get("finish_reason") or self._finish
        if _has_text(choice):
            self._texts.append(time)

    def _take_usage(self, usage: Any, time: float, *, with_choice: bool) -> None:
        total = int(usage["completion_tokens"])
        self._chunk_usage |= with_choice
        if usage.get("prompt_tokens") is not None:
            self._prompt = int(usage["prompt_tokens"])
        if (new := total - (self._total or 0)) > 0 and (self._chunk_usage or not self._texts):
            self._times.append(time)
            self._counts.append(new)
        self._total = total

    def result(self) -> Tokens:
        error = self._error
        if error is None and not self.done and self._finish is None:
            error = "the stream was cut before its end"
        exact = self._chunk_usage or not self._texts
        times, counts = (self._times, self._counts) if exact else (self._texts, self._spread())
        return Tokens(
            times=tuple(times),
            counts=tuple(counts),
            prompt_tokens=self._prompt,
            output_tokens=self._total,
            finish_reason=self._finish,
            error=error,
            exact=exact,
        )

    def _spread(self) -> list[int]:
        total, chunks = self._total or 0, len(self._texts)
        edges = [total * i // chunks for i in range(chunks + 1)]
        return [after - before for before, after in pairwise(edges)]


def _has_text(choice: Any) -> bool:
    """Content, reasoning text or a tool call; a chunk with only a role has none."""
    if choice.get("text"):
        return True
    delta = choice.get("delta") or {}
    return any(delta.get(part) for part in ("content", "reasoning_content", "reasoning", "tool_calls"))


def _message(error: Any) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
