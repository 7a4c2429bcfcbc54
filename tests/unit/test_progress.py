from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from avbench.progress import Pace, Progress
from avbench.record.measurement import CellFailure
from avbench.runner.blank import blank_measurement
from tests.factories import make_summary
from tests.plans import FIXED, NONE, make_plan


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make_console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_plain_lines_where_nobody_watches() -> None:
    plan, console = make_plan(NONE), make_console(terminal=False)
    first, second = plan.cells
    with Progress(plan, console) as progress:
        progress.starting(plan.groups[0])
        progress.ready(plan.groups[0])
        progress.phase(first, "warmup")
        blank = blank_measurement(first, "s", CellFailure(kind="x", reason="HTTP 500: [no] markup\nsecond line"))
        progress.recorded(first, replace(blank, status="done", summary=make_summary(1234.0, 1), notes=("odd [b]",)))
        progress.recorded(second, blank)
        progress.trouble("none-p1: it died")
    lines = text(console).splitlines()
    assert lines[0] == "none-p1: starting the server (2 cells)"
    assert lines[1].startswith("1/2  none  w  C=1  pass 1: 1,234 tok/s, ")
    assert lines[2] == "  note: odd [b]"
    assert lines[3] == "2/2  none  w  C=8  pass 1: failed (HTTP 500: [no] markup)"
    assert lines[4] == "none-p1: it died"
    assert "\x1b" not in text(console)


def test_terminal_shows_what_runs() -> None:
    plan, console = make_plan(NONE), make_console(terminal=True)
    with Progress(plan, console) as progress:
        progress.phase(plan.cells[0], "measure")
        progress._live.refresh()
    assert "none  w  C=1  pass 1: measuring" in text(console)
    assert "0 of 2 cells; about" in text(console)


def test_time_left_follows_the_real_pace() -> None:
    plan, clock = make_plan(NONE, FIXED), Clock()
    pace = Pace(plan, clock)
    whole = pace.left()
    assert whole > 0
    clock.now = 20.0
    pace.spent(10.0)
    assert pace.left() == pytest.approx((whole - 10.0) * 2)
    pace.spent(1e6)
    assert pace.left() == 0.0
