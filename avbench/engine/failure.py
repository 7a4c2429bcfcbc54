"""Why an engine did not start, or died. Structure first (exit code, signal, time), the log's text last."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from avbench.errors import EngineError

TAIL_LINES = 12
# Each pattern comes from a captured log: see tests/unit/engine/logs/. What matches none stays unclassified.
PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("port_taken", re.compile(r"address already in use|port \d+ is in use", re.IGNORECASE)),
    ("out_of_memory", re.compile(r"can't allocate memory|\bMemoryError\b|\bOutOfMemoryError\b")),
    ("model_missing", re.compile(r"is not a folder|`(model\.safetensors|tokenizer\.json|config\.json)`")),
)
HINTS = {
    "port_taken": "another process took the port between choosing and binding it; run the sweep again.",
    "out_of_memory": "use a smaller model, fewer sequences or a shorter `max-model-len`, or free memory.",
    "killed": "nothing here sent this signal: on Linux it is often the kernel's out-of-memory killer (see `dmesg`).",
    "model_missing": "check `pair.target` and `pair.draft` in the sweep file.",
    "bad_arguments": "the engine refused its arguments: check `engine.args` in the sweep file.",
    "not_executable": "check the engine command; its exact form is in `command.json` beside the log.",
    "start_timeout": "raise `engine.start_timeout` if the model only needs longer to load.",
    "foreign_server": "another server answers on that port; stop it or run the sweep again.",
}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What happened to an engine process: a kind for programs, a reason with the last log lines for people."""

    kind: str
    reason: str
    hint: str | None


class EngineStartError(EngineError):
    """The engine did not become ready. `failure.kind` is one of `HINTS` or `died_before_ready`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason, hint=failure.hint)
        self.failure = failure


def classify_exit(exit_code: int, log: Sequence[str], *, ready: bool) -> Failure:
    """A process that ended by itself. `exit_code` is negative for a signal; `log` its last lines."""
    kind = _kind(exit_code, log, ready)
    when = "while it was serving" if ready else "before it was ready"
    return Failure(kind=kind, reason=_with_log(f"the engine {_ending(exit_code)} {when}", log), hint=HINTS.get(kind))


def classify_timeout(seconds: float, last_answer: str, log: Sequence[str]) -> Failure:
    """A process that lives but was not ready after `seconds`; `last_answer` is what its /health said last."""
    reason = f"the engine was not ready after {seconds:g} s (/health: {last_answer})"
    return Failure(kind="start_timeout", reason=_with_log(reason, log), hint=HINTS["start_timeout"])


def foreign_server(port: int, expected: str, served: Sequence[str]) -> Failure:
    """Somebody else answers on the port: its /v1/models does not list the name of this very start."""
    reason = f"port {port} answers /health, but it is not our engine: it serves {', '.join(served) or 'no model'}"
    return Failure(kind="foreign_server", reason=f"{reason}, not `{expected}`", hint=HINTS["foreign_server"])


def read_tail(path: Path, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """The last non-empty lines of a log, at most 16 KiB of it; empty when there is no log."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 16384))
            text = log.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple(line.rstrip() for line in text.splitlines() if line.strip())[-lines:]


def _kind(exit_code: int, log: Sequence[str], ready: bool) -> str:
    if exit_code == -signal.SIGKILL:
        return "killed"
    if exit_code == 127 and not ready:
        return "not_executable"
    text = "\n".join(log)
    for kind, pattern in PATTERNS:
        if exit_code != 0 and pattern.search(text):
            return kind
    if ready:
        return "engine_died"
    return "bad_arguments" if exit_code == 2 else "died_before_ready"


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"was ended by {name}"


def _with_log(reason: str, log: Sequence[str]) -> str:
    if not log:
        return f"{reason}; its log is empty"
    return "\n".join([reason, "last lines of its log:", *(f"    {line}" for line in log)])
