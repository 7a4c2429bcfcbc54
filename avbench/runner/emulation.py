"""One engine in virtual time: a process that runs all cells of a group by itself and writes down what happened.

It stands where a server stands in the loop, so that starts, failures, restarts and records are the same. It does not
wait to be asked for the next cell: what it wrote is read in its own order.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from avbench.engine.command import EngineCommand
from avbench.engine.failure import HINTS, EngineStartError, Failure, classify_exit, read_tail
from avbench.engine.process import EngineProcess
from avbench.load.driver import Phase

JOB, EVENTS, LOG = "job.json", "emulation.jsonl", "server.log"
POLL = 0.05  # s between two looks at what it wrote
Event = Mapping[str, Any]


class Emulation:
    """Context manager round the process; ready when entered. Raises EngineStartError on entry if it does not get there.

    `stopped` set from outside makes every wait end with KeyboardInterrupt, for threads get no signals.
    """

    model = ""
    url = ""

    def __init__(
        self,
        command: EngineCommand,
        job: Mapping[str, Any],
        folder: Path,
        *,
        start_timeout: float,
        stopped: threading.Event,
    ) -> None:
        self.folder = folder
        self.version: str | None = None
        self._command, self._job = command, job
        self._start_timeout, self._stopped = start_timeout, stopped
        self._process: EngineProcess | None = None
        self._events: deque[Event] = deque()
        self._read = 0  # bytes of EVENTS
        self._left = {str(cell["id"]) for cell in job["cells"]}

    def __enter__(self) -> Self:
        shutil.rmtree(self.folder, ignore_errors=True)  # no record refers to it, and its times start at 0 again
        self.folder.mkdir(parents=True)
        job = self.folder / JOB
        job.write_text(json.dumps(self._job))
        argv = (*self._command.argv, "--job", str(job.resolve()))
        safe = EngineCommand(argv=argv, env=self._command.env).redacted()
        note = {"argv": list(safe.argv), "env": dict(safe.env)}
        (self.folder / "command.json").write_text(json.dumps(note, indent=2) + "\n")
        self._process = EngineProcess(argv, self._command.env, self.folder / LOG)
        try:
            self.version = str(self._wait_ready(self._process).get("version"))
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.stop()
        if not self._left:  # all of it is in the records now
            for name in (JOB, EVENTS):
                (self.folder / name).unlink(missing_ok=True)

    def alive(self) -> bool:
        """Whether more is to come: the process runs, or has written what was not read yet."""
        running = self._process is not None and self._process.alive()
        self._read_on()
        return running or any(event["event"] == "cell" for event in self._events)

    def death(self) -> Failure | None:
        """Why it ended before all cells; None while more is to come, and when all of them came."""
        if self._process is None or self.alive() or not self._left:
            return None
        return classify_exit(self._process.exit_code or 0, read_tail(self.folder / LOG), ready=True)

    def result(self, cell_id: str, timeout: float, on_phase: Callable[[Phase], None]) -> Event | None:
        """What it wrote about a cell, waited for up to `timeout` s; None if that never came."""
        deadline = time.monotonic() + timeout
        while (event := self._next(deadline)) is not None:
            if event["event"] == "phase":
                on_phase(event["phase"])
            elif event["event"] == "cell":
                assert event["cell"] == cell_id, f"{event['cell']} came before {cell_id}"
                self._left.discard(cell_id)
                return event
        return None

    def _wait_ready(self, process: EngineProcess) -> Event:
        event = self._next(time.monotonic() + self._start_timeout)
        if event is not None:
            return event
        log = read_tail(self.folder / LOG)
        if not process.alive():
            raise EngineStartError(classify_exit(process.exit_code or 0, log, ready=False))
        reason = "\n".join([f"the engine was not ready after {self._start_timeout:g} s", *log])
        raise EngineStartError(Failure(kind="start_timeout", reason=reason, hint=HINTS["start_timeout"]))

    def _next(self, deadline: float) -> Event | None:
        """The next event; None when there will be none, or none until `deadline`."""
        while not self._events:
            running = self._process is not None and self._process.alive()  # asked before reading: it may write and end
            self._read_on()
            if self._stopped.is_set():
                raise KeyboardInterrupt
            if not self._events and (not running or time.monotonic() > deadline):
                return None
            if not self._events:
                time.sleep(POLL)
        return self._events.popleft()

    def _read_on(self) -> None:
        """Take the lines that are complete."""
        path = self.folder / EVENTS
        if not path.is_file() or path.stat().st_size == self._read:
            return
        with path.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self._read += len(whole) + 1
            self._events.extend(json.loads(line) for line in whole.split(b"\n"))
