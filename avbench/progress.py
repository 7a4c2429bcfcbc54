"""What a sweep is doing, on stderr: one line for each record, and on a terminal two live lines below them."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from avbench.load.driver import Phase
from avbench.plan import Cell, Plan, ServerGroup
from avbench.plan.timing import SERVER_START_SECONDS, cell_seconds
from avbench.record.measurement import Measurement
from avbench.units import format_decimal, format_duration, format_ms, format_plural, format_rate

REFRESH = 2.0  # per second: little enough not to disturb a client on the same machine
DOING = {"warmup": "warming up", "measure": "measuring", "drain": "letting requests end"}


class Progress:
    """A `runner.Watch` for people. Use as a context manager round the run."""

    def __init__(self, plan: Plan, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._plan = plan
        self._total = len(plan.measured_cells)
        self._done = self._failed = 0
        self._doing = "starting"
        self._doing_since = clock()
        self._pace = Pace(plan, clock)
        self._clock = clock
        self._live = Live(
            console=console,
            get_renderable=self._render,
            refresh_per_second=REFRESH,
            transient=True,
            redirect_stdout=False,
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def starting(self, group: ServerGroup) -> None:
        self._now(f"{group.id}: starting the server")
        cells = format_plural(len(group.cells), "cell")
        self._say(f"[bold]{group.id}[/bold]: starting the server ({cells})")

    def ready(self, group: ServerGroup) -> None:
        self._pace.spent(SERVER_START_SECONDS)
        self._now(f"{group.id}: ready")

    def phase(self, cell: Cell, phase: Phase) -> None:
        again = " (again, unmeasured)" if cell.replayed else ""
        self._now(f"{_where(cell)}: {DOING[phase]}{again}")

    def replayed(self, cell: Cell) -> None:
        self._pace.spent(cell_seconds(self._plan, cell))
        self._say(f"       {_where(cell)}: run again unmeasured, for the estimator's state")

    def recorded(self, cell: Cell, measurement: Measurement) -> None:
        self._pace.spent(cell_seconds(self._plan, cell))
        self._done += 1
        self._failed += measurement.status != "done"
        width = len(str(self._total))
        self._say(f"{self._done:>{width}}/{self._total}  {_where(cell)}: {_figures(measurement)}")
        for note in measurement.notes:
            self._say(f"  [yellow]note:[/yellow] {escape(note)}")

    def stopped(self, group: ServerGroup) -> None:
        self._now(f"{group.id}: stopped")

    def trouble(self, text: str) -> None:
        self._say(f"[red]{escape(text)}[/red]")

    def _say(self, markup: str) -> None:
        self._console.print(markup, highlight=False, soft_wrap=True)

    def _now(self, doing: str) -> None:
        self._doing, self._doing_since = doing, self._clock()

    def _render(self) -> RenderableType:
        failed = f", {self._failed} failed" if self._failed else ""
        left = format_duration(self._pace.left())
        return Group(
            Text(f"{self._done} of {self._total} cells{failed}; about {left} left", style="bold"),
            Text(f"{self._doing} ({format_duration(round(self._clock() - self._doing_since))})"),
        )


class Pace:
    """Time left: the plan's estimate, stretched by how wrong it has been so far."""

    def __init__(self, plan: Plan, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        starts = SERVER_START_SECONDS * len(plan.groups)
        self._expected = starts + sum(cell_seconds(plan, cell) for cell in plan.cells)
        self._spent = 0.0

    def spent(self, expected: float) -> None:
        """A step that was expected to take this many seconds has ended."""
        self._spent += expected

    def left(self) -> float:
        """Seconds."""
        elapsed = self._clock() - self._started
        stretch = elapsed / self._spent if self._spent > 0 else 1.0
        return max(0.0, (self._expected - self._spent) * stretch)


def _where(cell: Cell) -> str:
    return f"{cell.arm.label}  {cell.workload.name}  C={cell.concurrency}  pass {cell.pass_number}"


def _figures(measurement: Measurement) -> str:
    summary = measurement.summary
    if summary is None:
        failure = measurement.failure
        return f"[red]failed[/red] ({escape(failure.reason.splitlines()[0]) if failure else 'no figures'})"
    user, tpot = summary.interactivity, summary.tpot
    parts = [
        format_rate(summary.steady_throughput),
        f"{format_rate(user.p50 if user else None)}/user",
        f"tpot {format_ms(tpot.p50 if tpot else None)}",
    ]
    if summary.acceptance_length is not None:
        parts.append(f"acceptance length {format_decimal(summary.acceptance_length)}")
    return ", ".join(parts)
