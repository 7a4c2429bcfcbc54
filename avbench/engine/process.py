"""An engine process on a leash: it cannot outlive avbench (see `leash.py`)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from avbench.errors import EngineError

LEASH = Path(__file__).with_name("leash.py")
STOP_GRACE = 10.0  # s between SIGTERM and SIGKILL
KILL_GRACE = 5.0  # s until killed processes must be gone


class EngineProcess:
    """A command in its own session; stdout and stderr go to `log`. It starts at once."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.exit_code: int | None = None
        self.pid: int | None = None
        self._told = b""
        self._status, write_end = os.pipe()
        os.set_blocking(self._status, False)
        try:
            with log.open("ab") as output:
                self._leash = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(LEASH), str(write_end), *argv],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **env},
                    start_new_session=True,  # Ctrl-C in the terminal reaches avbench only, which stops the engine
                    pass_fds=(write_end,),
                )
        finally:
            os.close(write_end)

    def alive(self) -> bool:
        """Whether the command runs; afterwards `exit_code` is known."""
        self._listen()
        return self.exit_code is None and self._leash.poll() is None

    def stop(self, grace: float = STOP_GRACE) -> None:
        """SIGTERM to the group, then, after `grace` seconds or on any exception, SIGKILL to all that is left."""
        try:
            if self.alive():
                self._signal_group(signal.SIGTERM)
                self._wait_leash(grace)
        finally:
            self._release()

    def _listen(self) -> None:
        if self._status < 0:
            return
        with contextlib.suppress(BlockingIOError, OSError):
            while told := os.read(self._status, 4096):
                self._told += told
        for line in self._told.splitlines():
            word, _, number = line.partition(b" ")
            if word == b"pid":
                self.pid = int(number)
            elif word == b"exit":
                self.exit_code = int(number)

    def _wait_leash(self, seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._leash.wait(seconds)

    def _signal_group(self, number: signal.Signals) -> None:
        deadline = time.monotonic() + 1.0
        while self.pid is None and self.alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.pid is not None:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)

    def _release(self) -> None:
        """Let go of the leash, which kills what still lives; then make sure by hand."""
        if self._leash.stdin is not None:
            with contextlib.suppress(OSError):
                self._leash.stdin.close()
        self._wait_leash(KILL_GRACE)
        if self._leash.poll() is None:
            self._signal_group(signal.SIGKILL)
            self._leash.kill()
            self._leash.wait()
        self._listen()
        os.close(self._status)
        self._status = -1
        self._verify_gone()

    def _verify_gone(self) -> None:
        deadline = time.monotonic() + KILL_GRACE
        while self.pid is not None and _group_exists(self.pid):
            if time.monotonic() > deadline:
                raise EngineError(
                    f"processes of the engine's group {self.pid} cannot be ended",
                    hint=f"look at them with `ps -g {self.pid}`; they may hang in a device driver.",
                )
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            time.sleep(0.02)


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
