"""Several groups at a time, where time is virtual and neighbours disturb nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from avbench.engine.failure import EngineStartError
from avbench.load.driver import Phase
from avbench.plan import Cell, Plan, ServerGroup
from avbench.record.measurement import Measurement, RequestTrace
from avbench.runner.loop import CellStore, Outcome, Ports, RunningServer, run_plan
from avbench.runner.watch import Watch


def run_parallel(
    plan: Plan,
    store: CellStore,
    ports: Ports,
    watch: Watch,
    *,
    processes: int,
    stopped: threading.Event,
    used_names: Iterable[str] = (),
) -> Outcome:
    """`run_plan` for each group, `processes` of them at the same time. `stopped` is set when all are to end.

    Raises EngineStartError if no engine could be started at all, or plain decoding, which every arm contains, could
    not. KeyboardInterrupt passes through when all engines are down.
    """
    lock = threading.Lock()
    shy, quiet = _LockedStore(store, lock), _LockedWatch(watch, lock)
    careful = replace(ports, admit=_locked_admit(ports, lock))
    names = set(used_names)

    def run(group: ServerGroup) -> Outcome | EngineStartError:
        if stopped.is_set():
            raise KeyboardInterrupt
        try:
            return run_plan(replace(plan, groups=(group,)), shy, careful, quiet, used_names=names)
        except EngineStartError as error:
            return error

    with ThreadPoolExecutor(max_workers=processes) as pool:
        running = {pool.submit(run, group): group for group in plan.groups}
        try:
            return _collect(running)
        except BaseException:
            stopped.set()
            pool.shutdown(cancel_futures=True)
            raise


def _collect(running: dict[Future[Outcome | EngineStartError], ServerGroup]) -> Outcome:
    outcome, errors, left = Outcome(), list[EngineStartError](), set(running)
    while left:
        ended, left = wait(left, return_when=FIRST_COMPLETED)
        for future in ended:
            group, result = running[future], future.result()
            if isinstance(result, Outcome):
                outcome.done += result.done
                outcome.failed += result.failed
                continue
            errors.append(result)
            outcome.failed += [cell.id for cell in group.cells if not cell.replayed]
            if group.arm.kind == "none" and len(errors) == len(running) - len(left):
                raise result
    if errors and len(errors) == len(running):
        raise errors[0]
    return outcome


def _locked_admit(ports: Ports, lock: threading.Lock) -> Callable[[RunningServer], None]:
    def admit(server: RunningServer) -> None:
        with lock:
            ports.admit(server)

    return admit


class _LockedStore:
    """One record at a time."""

    def __init__(self, store: CellStore, lock: threading.Lock) -> None:
        self._store, self._lock = store, lock

    def write_cell(self, measurement: Measurement, traces: Iterable[RequestTrace]) -> None:
        with self._lock:
            self._store.write_cell(measurement, traces)


class _LockedWatch:
    """One voice at a time."""

    def __init__(self, watch: Watch, lock: threading.Lock) -> None:
        self._watch, self._lock = watch, lock

    def starting(self, group: ServerGroup) -> None:
        with self._lock:
            self._watch.starting(group)

    def ready(self, group: ServerGroup) -> None:
        with self._lock:
            self._watch.ready(group)

    def phase(self, cell: Cell, phase: Phase) -> None:
        with self._lock:
            self._watch.phase(cell, phase)

    def replayed(self, cell: Cell) -> None:
        with self._lock:
            self._watch.replayed(cell)

    def recorded(self, cell: Cell, measurement: Measurement) -> None:
        with self._lock:
            self._watch.recorded(cell, measurement)

    def stopped(self, group: ServerGroup) -> None:
        with self._lock:
            self._watch.stopped(group)

    def trouble(self, text: str) -> None:
        with self._lock:
            self._watch.trouble(text)
