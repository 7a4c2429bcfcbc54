"""Measures one cell on a running server."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from avbench.errors import AvbenchError
from avbench.load.counters import count_between, parse_metrics
from avbench.load.driver import LoadJob, LoadResult, Phase, run_load
from avbench.plan import Cell, Plan
from avbench.prompts import measured_sequence, warmup_sequence
from avbench.record.measurement import CellFailure, Measurement, RequestTrace, SpecCounters
from avbench.record.quantities import dispatched_inside
from avbench.record.summary import summarise
from avbench.runner.blank import blank_measurement
from avbench.runner.loop import Record, RunningServer
from avbench.trace.reader import read_trace

TRACE_WAIT = 0.5  # s for the engine to write the steps of the window, which it gathers


def measure_cell(plan: Plan, server: RunningServer, cell: Cell, on_phase: Callable[[Phase], None]) -> Record:
    """Warm up, measure, drain, and derive the figures. What the engine does wrong becomes `failure` or a note."""
    result = run_load(load_job(plan, server, cell), alive=server.alive, on_phase=on_phase)
    counters, notes = _counters(result)
    record = cell_record(server, cell, result, counters)
    if record.status == "done" and result.window is not None:
        steps = _server_steps(server.folder / "trace.jsonl", result.clock_epoch, result.window)
        record = replace(record, server_steps=steps)
    return replace(record, notes=(*notes, *record.notes)), result.traces


def cell_record(server: RunningServer, cell: Cell, result: LoadResult, counters: SpecCounters | None) -> Measurement:
    """What is derived from the requests of a cell and the counters of its window."""
    failure = _failure(server, result)
    record = replace(
        blank_measurement(cell, server.folder.name, failure or CellFailure(kind="", reason="")),
        failure=failure,
        status="done" if failure is None else "failed",
        started_at=datetime.fromtimestamp(result.clock_epoch, UTC).isoformat(timespec="milliseconds"),
        clock_epoch=result.clock_epoch,
        window=result.window,
        warmup_requests=sum(trace.phase == "warmup" for trace in result.traces),
        counters=counters,
        notes=tuple(_doubts(result, cell.concurrency)),
    )
    if failure is not None or result.window is None:
        return record
    return replace(record, summary=summarise(result.traces, result.window, counters, cell.arm))


def load_job(plan: Plan, server: RunningServer, cell: Cell) -> LoadJob:
    """Prompts and seeds are functions of the sweep's seed and the pass: the same in every arm and at every load."""
    prompts, workload, seed = plan.prompt_sets[cell.workload.name], cell.workload, plan.spec.seed
    samples = workload.samples_per_prompt
    return LoadJob(
        url=server.url,
        model=server.model,
        workload=workload,
        concurrency=cell.concurrency,
        protocol=plan.spec.cell,
        warmup=warmup_sequence(prompts, seed=seed, pass_number=cell.pass_number),
        measured=iter(measured_sequence(prompts, samples=samples, seed=seed, pass_number=cell.pass_number)),
    )


def _failure(server: RunningServer, result: LoadResult) -> CellFailure | None:
    if result.failure is None and result.window is not None:
        sent = dispatched_inside(result.traces, result.window)
        return None if any(trace.ok for trace in sent) else _all_failed(sent)
    if (death := server.death()) is not None:
        return CellFailure(kind="engine_died", reason=death.reason)
    return result.failure or CellFailure(kind="no_window", reason="the steady window never opened")


def _all_failed(sent: list[RequestTrace]) -> CellFailure:
    kind = "prompts_too_long" if sent and all(trace.too_long for trace in sent) else "all_requests_failed"
    return CellFailure(kind=kind, reason=f"all {len(sent)} measured requests failed: {_commonest(sent)}")


def _commonest(traces: list[RequestTrace]) -> str:
    errors = Counter(trace.error for trace in traces if trace.error is not None)
    return "; ".join(f"{error} ({count}x)" for error, count in errors.most_common(2))


def _counters(result: LoadResult) -> tuple[SpecCounters | None, tuple[str, ...]]:
    if result.window is None:
        return None, ()
    if result.metrics_before is None or result.metrics_after is None:
        return None, ("the server gave no /metrics: nothing is known about acceptance",)
    try:
        return count_between(parse_metrics(result.metrics_before), parse_metrics(result.metrics_after)), ()
    except ValueError as error:
        return None, (f"/metrics cannot be used: {error}",)


def _doubts(result: LoadResult, concurrency: int) -> Iterator[str]:
    if result.window is None:
        return
    if result.exhausted:
        yield (
            f"the measured prompts ran out after {result.window[1] - result.window[0]:.1f} s: "
            "raise `samples_per_prompt` or use a larger prompt set"
        )
    if not result.exact_tokens:
        yield "no token counts per chunk: each request's tokens are spread evenly over its chunks"
    sent = dispatched_inside(result.traces, result.window)
    if len(sent) < concurrency:
        yield (
            f"only {len(sent)} requests were dispatched inside the window, at concurrency {concurrency}: "
            "raise `cell.seconds` or `cell.min_requests`"
        )
    if too_long := sum(trace.too_long for trace in sent):
        yield f"{too_long} of {len(sent)} prompts exceed the model's context and were refused"
    failed = [trace for trace in sent if not trace.ok and not trace.too_long]
    if failed:
        yield f"{len(failed)} of {len(sent)} requests failed: {_commonest(failed)}"


def _server_steps(path: Path, epoch: float, window: tuple[float, float]) -> tuple[int, int] | None:
    """First and last engine step that ended inside the window; None without a trace that reaches to its end."""
    start, end = epoch + window[0], epoch + window[1]
    deadline = time.monotonic() + TRACE_WAIT
    while path.is_file():
        try:
            trace = read_trace(path)
        except AvbenchError:
            return None
        if trace.covers(end):
            steps = trace.steps_between(start, end)
            return (steps[0].number, steps[-1].number) if steps else None
        if time.monotonic() > deadline:
            return None
        time.sleep(0.05)
    return None
