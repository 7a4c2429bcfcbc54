"""One running engine: started, proven ready and ours, stopped without leaving a process behind."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from avbench.engine.command import EngineCommand
from avbench.engine.failure import (
    EngineStartError,
    Failure,
    classify_exit,
    classify_timeout,
    foreign_server,
    read_tail,
)
from avbench.engine.probe import HOST, ask, pick_port, served_models, server_version
from avbench.engine.process import EngineProcess

PORT_ATTEMPTS = 3
POLL = 0.05  # s between two looks at a starting engine
MODELS_GRACE = 5.0  # s that /v1/models may fail after the first /health 200
KEPT = ("server.log", "command.json", "trace.jsonl")  # of an older start in the same folder

Build = Callable[[int, str], EngineCommand]  # port, served model name -> command


class Server:
    """Context manager round one engine process.

    `model` is a name made up for this start: requests carry it, and only a process that was given it on its command
    line lists it in /v1/models. That proves that the server which answers is the one that was started here. Raises
    EngineStartError on entry if the engine does not become ready; no process is left then.
    """

    def __init__(
        self, build: Build, folder: Path, *, start_timeout: float, choose_port: Callable[[], int] = pick_port
    ) -> None:
        self.folder = folder
        self.port = 0
        self.model = ""
        self.version: str | None = None
        self._build = build
        self._start_timeout = start_timeout
        self._choose_port = choose_port
        self._process: EngineProcess | None = None

    @property
    def url(self) -> str:
        """Root of the API, without a slash at the end."""
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                self._start()
                return self
            except EngineStartError as error:
                if error.failure.kind not in ("port_taken", "foreign_server") or attempt == PORT_ATTEMPTS:
                    raise
        raise AssertionError("the loop returns or raises")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def alive(self) -> bool:
        """Whether the engine process still runs."""
        return self._process is not None and self._process.alive()

    def death(self) -> Failure | None:
        """Why the engine ended while it was serving; None while it lives."""
        if self._process is None or self._process.alive():
            return None
        return classify_exit(self._process.exit_code or 0, self.log_tail(), ready=True)

    def log_tail(self) -> tuple[str, ...]:
        """The last lines of the engine's output."""
        return read_tail(self.folder / "server.log")

    def stop(self) -> None:
        """End the engine and everything it started. Does nothing the second time."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        keep_older(self.folder)
        self.port, self.model = self._choose_port(), f"avbench-{secrets.token_hex(6)}"
        command = self._build(self.port, self.model)
        safe = command.redacted()
        note = {"argv": list(safe.argv), "env": dict(safe.env)}
        (self.folder / "command.json").write_text(json.dumps(note, indent=2) + "\n")
        self._process = EngineProcess(command.argv, command.env, self.folder / "server.log")
        try:
            self._wait_ready(self._process)
        except BaseException:
            self.stop()
            raise

    def _wait_ready(self, process: EngineProcess) -> None:
        deadline = time.monotonic() + self._start_timeout
        healthy_since: float | None = None
        said = "nothing yet"
        while time.monotonic() < deadline:
            if not process.alive():
                raise EngineStartError(classify_exit(process.exit_code or 0, self.log_tail(), ready=False))
            health = ask(self.port, "/health")
            said = health.text if health.status is None else str(health.status)
            if health.status == 200:
                now = time.monotonic()
                healthy_since = healthy_since or now
                if self._is_ours(give_up=now - healthy_since > MODELS_GRACE):
                    self.version = server_version(self.port)
                    return
            time.sleep(POLL)
        raise EngineStartError(classify_timeout(self._start_timeout, said, self.log_tail()))

    def _is_ours(self, *, give_up: bool) -> bool:
        served = served_models(self.port)
        if served is not None and self.model in served:
            return True
        if served or give_up:
            raise EngineStartError(foreign_server(self.port, self.model, served or ()))
        return False


def keep_older(folder: Path) -> None:
    """Number the files of an earlier start (`server.log.1`, ...) so that a new one does not overwrite them."""
    present = [name for name in KEPT if (folder / name).exists()]
    number = 1
    while any((folder / f"{name}.{number}").exists() for name in KEPT):
        number += 1
    for name in present:
        (folder / name).rename(folder / f"{name}.{number}")
