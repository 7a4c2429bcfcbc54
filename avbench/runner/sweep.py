"""A whole sweep on real engines: what is left, whether it may join what is there, then the loop."""

from __future__ import annotations

import os
import threading
from functools import partial

from avbench.engine.command import OVERRIDE, EngineCommand, engine_command
from avbench.engine.facts import environment
from avbench.engine.server import Server
from avbench.errors import NotComparableError
from avbench.plan import Plan, ServerGroup, remaining_plan
from avbench.plan.resume import Choice
from avbench.record.manifest import Manifest, continue_manifest, new_manifest, with_engine_version
from avbench.record.measurement import Measurement
from avbench.record.store import ResultStore
from avbench.runner.cell import measure_cell
from avbench.runner.emulated import emulation_processes, launch_emulation, measure_emulated
from avbench.runner.loop import Outcome, Ports, RunningServer, run_plan
from avbench.runner.parallel import run_parallel
from avbench.runner.watch import Watch


def left_to_measure(plan: Plan, store: ResultStore, wanted: Choice | None = None) -> Plan:
    """The plan without what is done in `store`. Failed and cancelled cells are measured again.

    Raises NotComparableError if the folder holds a done cell of the same name that was measured differently.
    """
    done = {record.cell_id: record.identity for record in store.read_measurements() if record.status == "done"}
    for cell in plan.cells:
        if done.get(cell.id, cell.identity) != cell.identity:
            raise NotComparableError(
                f"{store.root}: cell `{cell.id}` was measured with other settings than the sweep file has now",
                hint="give a new folder with `--results DIR`, or undo the change in the sweep file. A larger "
                "concurrency changes `max-num-seqs` for all cells, unless `engine.args` sets it.",
            )
    return remaining_plan(plan, set(done.values()), wanted)


def run_sweep(plan: Plan, store: ResultStore, watch: Watch, wanted: Choice | None = None) -> Outcome:
    """Measure what is left of `plan`. With nothing left no server is started and the manifest is trusted as it is.

    Raises UsageError (folder, models), NotComparableError (another machine or version than in the manifest) and
    EngineStartError (no engine could be started) before anything is measured.
    """
    for group in plan.groups:
        engine_command(plan.spec, group.arm, port=0)  # a missing model is found before the first start
    with store.writing():
        left = left_to_measure(plan, store, wanted)
        records = store.read_measurements()
        if not left.measured_cells:
            if not store.has_manifest():  # it was lost or moved away; the records alone cannot be read
                store.write_manifest(_manifest(plan, store, records))
            return Outcome()
        store.write_manifest(_manifest(plan, store, records))
        used = {record.server for record in records if record.status == "done"}
        return (_run_emulated if plan.spec.emulated else _run_real)(left, store, watch, used)


def _run_real(left: Plan, store: ResultStore, watch: Watch, used_names: set[str]) -> Outcome:
    launch, measure = partial(_launch, left, store), partial(measure_cell, left)
    ports = Ports(launch=launch, admit=partial(_admit, store), measure=measure)
    return run_plan(left, store, ports, watch, used_names=used_names)


def _run_emulated(left: Plan, store: ResultStore, watch: Watch, used_names: set[str]) -> Outcome:
    stopped = threading.Event()
    ports = Ports(
        launch=partial(launch_emulation, left, store, stopped),
        admit=partial(_admit, store),
        measure=partial(measure_emulated, left),
    )
    processes = emulation_processes(len(left.groups))
    return run_parallel(left, store, ports, watch, processes=processes, stopped=stopped, used_names=used_names)


def _manifest(plan: Plan, store: ResultStore, records: list[Measurement]) -> Manifest:
    text = plan.spec.path.read_text(encoding="utf-8")
    now = new_manifest(plan.spec, text, environment(), engine_command=os.environ.get(OVERRIDE))
    measured = any(record.status == "done" for record in records)
    return continue_manifest(store.read_manifest(), now) if measured and store.has_manifest() else now


def _launch(plan: Plan, store: ResultStore, group: ServerGroup, name: str) -> Server:
    folder = store.server_folder(name)

    def command(port: int, model: str) -> EngineCommand:
        return engine_command(plan.spec, group.arm, port, served_name=model, trace_dir=folder)

    return Server(command, folder, start_timeout=plan.spec.engine.start_timeout)


def _admit(store: ResultStore, server: RunningServer) -> None:
    then = store.read_manifest()
    now = with_engine_version(then, server.version)
    if now != then:
        store.write_manifest(now)
