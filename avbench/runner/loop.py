"""The one loop: for each server start: start, ready, then for each cell warm, measure, write; at last stop.

This order is a contract with its own test. A failed cell is a record like any other and the sweep goes on; an engine
that dies or hangs is started once more for what is left of its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from avbench.engine.failure import EngineStartError, Failure
from avbench.load.driver import Phase
from avbench.plan import Cell, Plan, ServerGroup, remaining_group
from avbench.record.measurement import CellFailure, Measurement, RequestTrace
from avbench.runner.blank import blank_measurement
from avbench.runner.watch import Watch
from avbench.spec.arm import Arm

RESTARTS = 1  # of a server in one group
BROKEN = frozenset({"engine_died", "timeout"})  # failures after which the server is not used any more

Record = tuple[Measurement, Sequence[RequestTrace]]


class RunningServer(Protocol):
    """What cells need of a started engine; `engine.server.Server` is one."""

    folder: Path
    model: str
    version: str | None

    @property
    def url(self) -> str:
        """Root of the API."""

    def alive(self) -> bool:
        """Whether its process runs."""

    def death(self) -> Failure | None:
        """Why it ended; None while it lives."""


class CellStore(Protocol):
    """What the loop needs of a results folder; `record.store.ResultStore` is one."""

    def write_cell(self, measurement: Measurement, traces: Iterable[RequestTrace]) -> None:
        """Make one cell visible, whole."""


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The effects of the loop, so that its order can be tested without an engine.

    `launch(group, name)` starts and proves readiness on entry (or raises EngineStartError) and stops on exit; `name` is
    the server's folder. `admit(server)` raises if this engine's figures may not join those in the folder.
    `measure(server, cell, on_phase)` warms up, measures and never raises for what the engine does.
    """

    launch: Callable[[ServerGroup, str], AbstractContextManager[RunningServer]]
    admit: Callable[[RunningServer], None]
    measure: Callable[[RunningServer, Cell, Callable[[Phase], None]], Record]


@dataclass(kw_only=True)
class Outcome:
    """What a run left behind."""

    done: list[str] = field(default_factory=list)  # cell ids
    failed: list[str] = field(default_factory=list)


def run_plan(plan: Plan, store: CellStore, ports: Ports, watch: Watch, *, used_names: Iterable[str] = ()) -> Outcome:
    """Measure every cell of `plan` that is not replayed. `used_names` are server folders that records refer to.

    Raises EngineStartError if no engine could be started at all. KeyboardInterrupt passes through when the server is
    down; the interrupted cell is recorded as cancelled.
    """
    clock: Literal["emulated"] | None = "emulated" if plan.spec.emulated else None
    return _Run(store, ports, watch, set(used_names), clock).run(plan)


class _Run:
    def __init__(
        self,
        store: CellStore,
        ports: Ports,
        watch: Watch,
        used_names: set[str],
        clock: Literal["emulated"] | None,
    ) -> None:
        self._store, self._ports, self._watch, self._clock = store, ports, watch, clock
        self._used_names = used_names
        self._failed_on: dict[str, str] = {}  # server folder -> the first load that failed on it
        self._outcome = Outcome()
        self._ever_ready = False
        self._unstartable: set[Arm] = set()

    def run(self, plan: Plan) -> Outcome:
        last: EngineStartError | None = None
        for group in plan.groups:
            last = self._run_group(group) or last
            if last is not None and not self._ever_ready and self._hopeless(plan):
                raise last
        return self._outcome

    def _hopeless(self, plan: Plan) -> bool:
        """No arm can be started: plain decoding, which every arm contains, cannot, or all have been tried."""
        return any(arm.kind == "none" for arm in self._unstartable) or self._unstartable == {g.arm for g in plan.groups}

    def _run_group(self, group: ServerGroup) -> EngineStartError | None:
        settled = {cell.identity for cell in group.cells if cell.replayed}
        for attempt in range(RESTARTS + 1):
            name = self._server_name(group.id)
            try:
                broken = self._serve(group, name, settled)
            except EngineStartError as error:
                self._unstartable.add(group.arm)
                self._watch.trouble(f"{group.id}: {error.message}")
                self._give_up(group, name, settled, CellFailure(kind=error.failure.kind, reason=error.message))
                return error
            left = remaining_group(group, settled)
            if broken is None or left is None:
                return None
            if attempt == RESTARTS:
                not_run = CellFailure(kind="not_run", reason=f"the server was given up before it: {broken.reason}")
                self._give_up(left, name, settled, not_run)
            else:
                self._watch.trouble(f"{group.id}: {broken.reason}\nstarting it again for what is left of its cells")
                group = left
        return None

    def _serve(self, group: ServerGroup, name: str, settled: set[str]) -> CellFailure | None:
        """Run a group's cells on one server start; the failure that made the server unusable, None if nothing did."""
        self._watch.starting(group)
        with self._ports.launch(group, name) as server:
            self._ever_ready = True
            self._watch.ready(group)
            self._ports.admit(server)
            broken = next(filter(None, (self._run_cell(server, cell, name, settled) for cell in group.cells)), None)
        self._watch.stopped(group)
        return broken

    def _run_cell(self, server: RunningServer, cell: Cell, name: str, settled: set[str]) -> CellFailure | None:
        if (death := server.death()) is not None:
            return CellFailure(kind="engine_died", reason=death.reason)
        try:
            measurement, traces = self._ports.measure(server, cell, lambda phase: self._watch.phase(cell, phase))
        except KeyboardInterrupt:
            if not cell.replayed:
                failure = CellFailure(kind="cancelled", reason="interrupted while it was running")
                cancelled = replace(blank_measurement(cell, name, failure), status="cancelled", clock=self._clock)
                self._store.write_cell(cancelled, ())
            raise
        if cell.replayed:
            self._watch.replayed(cell)
            return measurement.failure
        if cell.arm.learns and self._failed_on.get(name):
            note = f"{self._failed_on[name]} failed before it on this server: the estimator has seen less than planned"
            measurement = replace(measurement, notes=(*measurement.notes, note))
        if measurement.failure is not None:
            self._failed_on.setdefault(name, cell.load)
        self._write(cell, measurement, traces, settled)
        return measurement.failure if measurement.failure and measurement.failure.kind in BROKEN else None

    def _give_up(self, group: ServerGroup, name: str, settled: set[str], failure: CellFailure) -> None:
        for cell in group.cells:
            if cell.identity not in settled:
                self._write(cell, blank_measurement(cell, name, failure), (), settled)

    def _write(self, cell: Cell, measurement: Measurement, traces: Iterable[RequestTrace], settled: set[str]) -> None:
        measurement = replace(measurement, clock=self._clock)
        self._store.write_cell(measurement, traces)
        settled.add(cell.identity)
        (self._outcome.done if measurement.status == "done" else self._outcome.failed).append(cell.id)
        self._watch.recorded(cell, measurement)

    def _server_name(self, group_id: str) -> str:
        """`fixed-3-p1`; `fixed-3-p1.2` for a later start, so that each trace stays beside its own process's cells."""
        name, number = group_id, 1
        while name in self._used_names:
            number += 1
            name = f"{group_id}.{number}"
        self._used_names.add(name)
        return name
