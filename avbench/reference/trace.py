"""The trace of one engine process: `trace.jsonl`, one JSON object a line, cheap enough to stay on.

Steps are gathered and written together; every other event is written at once. Times are Unix seconds, under an
emulated clock virtual ones since the engine's start.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

FLUSH_STEPS, FLUSH_SECONDS = 256, 1.0


class Trace:
    """Appends to `folder/trace.jsonl`; without a folder it drops everything."""

    def __init__(self, folder: Path | None, now: Callable[[], float] = time.time) -> None:
        """`now` is the engine's clock, in seconds."""
        self._file: TextIO | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / "trace.jsonl").open("a", encoding="utf-8")
        self._now = now
        self._steps: list[tuple[float, int, int, int]] = []
        self._first_step, self._first_time = 0, 0.0

    def event(self, name: str, **fields: Any) -> None:
        """Write one event now."""
        if self._file is None:
            return
        try:
            self._file.write(json.dumps({"event": name, "time": round(self._now(), 4), **fields}) + "\n")
            self._file.flush()
        except OSError as error:  # a full disk must not end the serving
            sys.stderr.write(f"warning: the trace ends here: {error}\n")
            self._file = None

    def step(self, number: int, seconds: float, *, requests: int, scheduled: int, admitted: int) -> None:
        """Remember one engine step: drafts scheduled, and drafts verified."""
        if self._file is None:
            return
        if not self._steps:
            self._first_step, self._first_time = number, self._now() - seconds
        self._steps.append((round(seconds, 6), requests, scheduled, admitted))
        if len(self._steps) >= FLUSH_STEPS or self._now() - self._first_time > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the steps gathered so far; `time` is when the first of them began."""
        if self._steps:
            columns = zip(("seconds", "requests", "scheduled", "admitted"), zip(*self._steps, strict=True), strict=True)
            started = round(self._first_time, 4)
            self._steps = []
            self.event("steps", step=self._first_step, started=started, **{k: list(v) for k, v in columns})
