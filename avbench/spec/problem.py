"""One thing that is wrong with a sweep file, and the one error that reports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from avbench.errors import UsageError
from avbench.units import format_plural


@dataclass(frozen=True, kw_only=True, order=True)
class Problem:
    """Sorts by place. `key` is the path of the key (`load.concurrency[1]`), empty for the file as a whole."""

    line: int  # from 1
    column: int
    key: str
    message: str
    hint: str | None = None


def raise_problems(path: Path, problems: Sequence[Problem]) -> None:
    """Raise UsageError for the first problem in the file, and say where the others are. No problem: return."""
    if not problems:
        return
    first, *others = sorted(problems, key=lambda problem: (problem.line, problem.column))
    key = f"`{first.key}`: " if first.key else ""
    raise UsageError(f"{path}:{first.line}: {key}{first.message}{_count(others)}", hint=first.hint)


def _count(others: Sequence[Problem]) -> str:
    if not others:
        return ""
    lines = sorted({problem.line for problem in others})
    where = "line" if len(lines) == 1 else "lines"
    return f" (and {format_plural(len(others), 'more problem')}, {where} {', '.join(map(str, lines))})"
