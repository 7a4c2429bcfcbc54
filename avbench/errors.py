"""The one family of errors a person is meant to read. Each names what, where and what to do."""

from __future__ import annotations

from typing import ClassVar


class AvbenchError(Exception):
    """Base of all expected failures: a message, a hint that says what to do, an exit code."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(AvbenchError):
    """A bad sweep file, option or path: nothing was started."""

    exit_code = 2


class EngineError(AvbenchError):
    """The engine could not run at all."""

    exit_code = 3


class NotComparableError(AvbenchError):
    """Results that must not be compared or ranked."""

    exit_code = 3


class CellsFailedError(AvbenchError):
    """The sweep ended, but some cells failed; what was measured is kept."""

    exit_code = 5
