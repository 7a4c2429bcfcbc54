"""A sweep in virtual time: the same loop over groups and cells, on emulated engines instead of servers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from avbench.engine.command import engine_command
from avbench.errors import UsageError
from avbench.load.client import refusal
from avbench.load.driver import LoadResult, Phase
from avbench.plan import Cell, Plan, ServerGroup
from avbench.record.codec import decode
from avbench.record.measurement import CellFailure, RequestTrace, SpecCounters
from avbench.record.store import ResultStore
from avbench.runner.cell import cell_record
from avbench.runner.emulation import Emulation
from avbench.runner.emulation_job import emulation_job
from avbench.runner.loop import Record, RunningServer

PROCESSES = "AVBENCH_EMULATION_PROCESSES"  # how many engines run at a time; default: one for each core


def emulation_processes(groups: int) -> int:
    """How many engines run at the same time: results do not depend on it. Raises UsageError for a bad wish."""
    wish = os.environ.get(PROCESSES)
    if wish is not None and (not wish.isdecimal() or int(wish) < 1):
        raise UsageError(f"{PROCESSES} is {wish!r}, expected a whole number of at least 1")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(int(wish) if wish else cores, groups))


def launch_emulation(
    plan: Plan, store: ResultStore, stopped: threading.Event, group: ServerGroup, name: str
) -> Emulation:
    """The engine of a group with all its cells, not started yet."""
    folder = store.server_folder(name)
    return Emulation(
        engine_command(plan.spec, group.arm, port=0, trace_dir=folder),
        emulation_job(plan, group),
        folder,
        start_timeout=plan.spec.engine.start_timeout,
        stopped=stopped,
    )


def measure_emulated(plan: Plan, server: RunningServer, cell: Cell, on_phase: Callable[[Phase], None]) -> Record:
    """Read what happened in a cell, and derive the figures as for a real one."""
    assert isinstance(server, Emulation)
    began, limit = time.time(), plan.spec.cell.timeout
    event = server.result(cell.id, limit, on_phase)
    if event is None:
        slow = f"the emulation of the cell did not end within its limit of {limit:g} s"
        result, counters = _nothing(CellFailure(kind="timeout", reason=slow)), None
    else:
        result, counters = _load_result(event), _counters(event)
    record = cell_record(server, cell, result, counters)
    started = datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds")
    steps = (event["steps"][0], event["steps"][1]) if event and event["steps"] and record.status == "done" else None
    return replace(record, started_at=started, server_steps=steps), result.traces


def _load_result(event: Mapping[str, Any]) -> LoadResult:
    """As the load driver would have seen it: times on the cell's clock, which read 0 at `origin` of the engine's."""
    traces = [_trace(row) for row in event["requests"]]
    window, failure = event["window"], event["failure"]
    return LoadResult(
        traces=tuple(sorted(traces, key=lambda trace: (trace.phase != "warmup", trace.index))),
        window=None if window is None else (window[0], window[1]),
        clock_epoch=event["origin"],
        exhausted=event["exhausted"],
        exact_tokens=True,
        metrics_before=None,
        metrics_after=None,
        failure=None if failure is None else decode(CellFailure, failure),
    )


def _trace(row: Mapping[str, Any]) -> RequestTrace:
    error = None if row["error"] is None else refusal(row["status"], row["error"])
    return decode(RequestTrace, {**row, "error": error})


def _counters(event: Mapping[str, Any]) -> SpecCounters | None:
    return None if event["counters"] is None else decode(SpecCounters, event["counters"])


def _nothing(failure: CellFailure) -> LoadResult:
    return LoadResult(
        traces=(),
        window=None,
        clock_epoch=0.0,
        exhausted=False,
        exact_tokens=True,
        metrics_before=None,
        metrics_after=None,
        failure=failure,
    )
