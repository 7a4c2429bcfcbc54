"""Reads `trace.jsonl`, what one engine process wrote about its steps. Times are Unix seconds; steps count from 0."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from avbench.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Start:
    """The process began. `k` is None without speculation."""

    time: float
    version: str | None
    k: int | None
    refit_interval: int | None
    source: str | None


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The cost curves that size the budget, in ms: `draft` by requests, `verify` by tokens."""

    time: float
    draft: tuple[tuple[int, float], ...]
    verify: tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True)
class Refit:
    """One refit of the online estimator. `counts` are labels per position since the refit before."""

    time: float
    step: int
    refit: int
    slope: float
    intercepts: tuple[float, ...]
    counts: tuple[int, ...]
    log_loss: float | None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One engine step. `time` is its end; `scheduled` and `admitted` are drafts over all its requests."""

    number: int
    time: float
    seconds: float
    requests: int
    scheduled: int
    admitted: int


@dataclass(frozen=True, kw_only=True)
class Trace:
    """All events of one process, in the order in which they were written."""

    start: Start | None
    costs: Costs | None
    refits: tuple[Refit, ...]
    steps: tuple[Step, ...]

    @cached_property
    def _ends(self) -> list[float]:
        return [step.time for step in self.steps]

    def steps_between(self, start: float, end: float) -> tuple[Step, ...]:
        """Steps that ended in (start, end], Unix seconds."""
        return self.steps[bisect_right(self._ends, start) : bisect_right(self._ends, end)]

    def refits_between(self, start: float, end: float) -> tuple[Refit, ...]:
        """Refits in (start, end], Unix seconds."""
        times = [refit.time for refit in self.refits]
        return self.refits[bisect_right(times, start) : bisect_right(times, end)]

    def covers(self, moment: float) -> bool:
        """Whether steps up to `moment` have been written; the engine gathers them for about a second."""
        return bisect_left(self._ends, moment) < len(self._ends)


def read_trace(path: Path) -> Trace:
    """Raises UsageError for a line that is no event, except a last line that was torn when the process died."""
    start: Start | None = None
    costs: Costs | None = None
    refits: list[Refit] = []
    steps: list[Step] = []
    for number, event in _events(path):
        try:
            kind = event["event"]
            if kind == "start":
                start = _start(event)
            elif kind == "costs":
                costs = _costs(event)
            elif kind == "refit":
                refits.append(_refit(event))
            elif kind == "steps":
                steps += _steps(event)
        except (KeyError, TypeError, ValueError) as error:
            raise _bad_line(path, number, f"{type(error).__name__}: {error}") from error
    return Trace(start=start, costs=costs, refits=tuple(refits), steps=tuple(_rising(steps)))


def _events(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except ValueError as error:
            if number == len(lines):  # no newline behind it: torn
                return
            raise _bad_line(path, number, str(error)) from error
        if isinstance(event, dict):
            yield number, event


def _bad_line(path: Path, number: int, error: str) -> UsageError:
    return UsageError(
        f"{path}:{number}: not a trace event ({error})",
        hint="the file was changed, or written by another version; without it the report only lacks coefficients.",
    )


def _start(event: dict[str, Any]) -> Start:
    return Start(
        time=float(event["time"]),
        version=event.get("version"),
        k=event.get("k"),
        refit_interval=event.get("refit_interval"),
        source=event.get("source"),
    )


def _costs(event: dict[str, Any]) -> Costs:
    return Costs(time=float(event["time"]), draft=_curve(event["draft"]), verify=_curve(event["verify"]))


def _curve(points: Iterable[Sequence[float]]) -> tuple[tuple[int, float], ...]:
    return tuple((int(size), float(cost)) for size, cost in points)


def _refit(event: dict[str, Any]) -> Refit:
    return Refit(
        time=float(event["time"]),
        step=int(event["step"]),
        refit=int(event["refit"]),
        slope=float(event["slope"]),
        intercepts=tuple(float(value) for value in event["intercepts"]),
        counts=tuple(int(value) for value in event["counts"]),
        log_loss=None if event.get("log_loss") is None else float(event["log_loss"]),
    )


def _steps(event: dict[str, Any]) -> Iterator[Step]:
    """One line holds many steps: `started` is when the first began, `time` when the line was written."""
    seconds = [float(value) for value in event["seconds"]]
    spent = list(accumulate(seconds))
    origin = float(event.get("started", float(event["time"]) - (spent[-1] if spent else 0.0)))
    columns = zip(event["requests"], event["scheduled"], event["admitted"], strict=True)
    for index, (requests, scheduled, admitted) in enumerate(columns):
        yield Step(
            number=int(event["step"]) + index,
            time=origin + spent[index],
            seconds=seconds[index],
            requests=int(requests),
            scheduled=int(scheduled),
            admitted=int(admitted),
        )


def _rising(steps: list[Step]) -> list[Step]:
    """By step number, with times that never fall: lines overlap by rounding."""
    ordered = sorted(steps, key=lambda step: step.number)
    latest = float("-inf")
    for index, step in enumerate(ordered):
        latest = max(latest, step.time)
        if latest != step.time:
            ordered[index] = Step(**{**step.__dict__, "time": latest})
    return ordered
