"""How the estimator's slope and intercepts moved over the life of each adaptive server, with the cells it served."""

from __future__ import annotations

from dataclasses import dataclass

from avbench.analysis.results import Results
from avbench.record.measurement import Measurement
from avbench.spec.arm import Arm
from avbench.trace.reader import Trace


@dataclass(frozen=True, kw_only=True)
class CellBorder:
    """When one cell ran on the server, in seconds since the server's trace began."""

    label: str  # `code · C=8`
    start: float  # the cell's clock reads 0: its warm-up begins
    window: tuple[float, float] | None  # steady window


@dataclass(frozen=True, kw_only=True)
class CoefficientTrace:
    """One server process. All columns have one entry a refit; `intercepts` and `counts` are rows of K."""

    server: str
    arm: Arm
    pass_number: int
    times: tuple[float, ...]  # s since the trace began
    steps: tuple[int, ...]  # engine steps since the process started
    slopes: tuple[float, ...]
    intercepts: tuple[tuple[float, ...], ...]
    counts: tuple[tuple[int, ...], ...]  # labels since the refit before
    log_losses: tuple[float | None, ...]
    cells: tuple[CellBorder, ...]


def coefficient_traces(results: Results) -> tuple[CoefficientTrace, ...]:
    """One trace for each adaptive server process that wrote refits, in the order of the sweep."""
    servers: dict[str, list[Measurement]] = {}
    for cell in results.measurements:
        arm = results.arm(cell.arm)
        if arm.kind == "adaptive" and arm.source != "head":
            servers.setdefault(cell.server, []).append(cell)
    order = {arm.id: index for index, arm in enumerate(results.arms)}
    by_order = sorted(servers.items(), key=lambda item: (order[item[1][0].arm], item[1][0].pass_number))
    return tuple(
        _columns(results, trace, [cell for cell in cells if results.trace_of(cell) is trace], cells[0])
        for server, cells in by_order
        for trace in results.traces(server).traces
        if trace.refits
    )


def _columns(results: Results, trace: Trace, cells: list[Measurement], any_cell: Measurement) -> CoefficientTrace:
    refits = trace.refits
    zero = refits[0].time if trace.start is None else trace.start.time
    return CoefficientTrace(
        server=any_cell.server,
        arm=results.arm(any_cell.arm),
        pass_number=any_cell.pass_number,
        times=tuple(refit.time - zero for refit in refits),
        steps=tuple(refit.step for refit in refits),
        slopes=tuple(refit.slope for refit in refits),
        intercepts=tuple(tuple(refit.intercepts) for refit in refits),
        counts=tuple(tuple(refit.counts) for refit in refits),
        log_losses=tuple(refit.log_loss for refit in refits),
        cells=tuple(_border(cell, zero) for cell in sorted(cells, key=lambda cell: cell.clock_epoch)),
    )


def _border(cell: Measurement, zero: float) -> CellBorder:
    start = cell.clock_epoch - zero
    window = None if cell.window is None else (start + cell.window[0], start + cell.window[1])
    return CellBorder(label=f"{cell.workload} · C={cell.concurrency}", start=start, window=window)
