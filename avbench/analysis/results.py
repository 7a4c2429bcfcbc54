"""The records of one sweep, read back: what every table, plot and pick is made from."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from avbench.analysis.passes import PassTable, Point, QuantityName, pass_table
from avbench.analysis.server_files import (
    PromptOutputs,
    ServerCommand,
    ServerTraces,
    read_command,
    read_outputs,
    read_traces,
)
from avbench.record.measurement import Measurement
from avbench.record.store import ResultStore
from avbench.spec.arm import Arm
from avbench.spec.sweep import EngineSpec, Pair, Sampling, Workload
from avbench.trace.reader import Trace

T = TypeVar("T")
UNNAMED_COSTS = "a cost table without a name"


@dataclass(frozen=True, kw_only=True)
class Results:
    """One results folder. Everything comes from the manifest and the cells; raw files are read when asked for."""

    root: Path
    manifest: Mapping[str, Any]
    measurements: tuple[Measurement, ...]
    arms: tuple[Arm, ...]  # in the order of the sweep file
    workloads: tuple[str, ...]
    concurrencies: tuple[int, ...]
    pair: Pair | None = None  # None: the manifest does not say
    engine: EngineSpec | None = None
    passes: int | None = None  # planned

    @cached_property
    def _tables(self) -> dict[QuantityName, PassTable]:
        return {}

    def table(self, quantity: QuantityName) -> PassTable:
        """One quantity by point and pass; made once."""
        if quantity not in self._tables:
            self._tables[quantity] = pass_table(self.measurements, quantity)
        return self._tables[quantity]

    @property
    def name(self) -> str:
        """Of the sweep, else of the folder."""
        spec = spec_of(self.manifest)
        return str(spec.get("name") or self.root.resolve().name)

    @property
    def gpus(self) -> int:
        """Divides throughput on the front's axis; 1 where nothing is said."""
        return self.engine.gpus if self.engine is not None else 1

    @property
    def emulated(self) -> bool:
        """Seconds are virtual: steps lasted what a cost table says."""
        return self.engine is not None and self.engine.clock == "emulated"

    @property
    def costs(self) -> str | None:
        """The name of that table; None if time is real."""
        return str(self.cost_table.get("name") or UNNAMED_COSTS) if self.emulated else None

    @property
    def cost_table(self) -> Mapping[str, Any]:
        """What the manifest kept of it: `name`, `source`, `notes`, `sha256`; empty if that is nothing."""
        kept = self.manifest.get("costs")
        return kept if isinstance(kept, Mapping) else {}

    @property
    def labelled(self) -> bool:
        """Drafting arms wrote their labelled drafts beside the trace."""
        return bool(spec_of(self.manifest).get("labels"))

    @property
    def observed(self) -> bool:
        """Adaptive arms trimmed nothing."""
        return bool(spec_of(self.manifest).get("observe"))

    @property
    def throughput_unit(self) -> str:
        """The embedded engine runs on a CPU: its throughput is that of one engine, not of one GPU."""
        if self.emulated:
            return "tok/s (virtual)"
        return "tok/s per engine" if self.engine is None or self.engine.kind == "reference" else "tok/s per GPU"

    def arm(self, arm_id: str) -> Arm:
        """The arm behind an id of a record."""
        return next((arm for arm in self.arms if arm.id == arm_id), None) or arm_of_id(arm_id)

    def label(self, arm_id: str) -> str:
        """Short name for tables and plots; with its refit interval where arms of the sweep differ in nothing else."""
        arm = self.arm(arm_id)
        if arm.refit_interval is None or sum(other.label == arm.label for other in self.arms) < 2:
            return arm.label
        return f"{arm.label} refit {arm.refit_interval}"

    def workload_spec(self, name: str) -> Workload | None:
        """What the sweep file says about a workload, if the manifest kept it."""
        entries = spec_of(self.manifest).get("workloads") or ()
        return next((workload_of(entry) for entry in entries if entry.get("name") == name), None)

    def points(self, workload: str, concurrency: int | None = None) -> tuple[Point, ...]:
        """Points that have a throughput, arms in the order of the sweep, loads rising."""
        measured = self.table("steady_throughput").values
        loads = self.concurrencies if concurrency is None else (concurrency,)
        candidates = (Point(arm=arm.id, workload=workload, concurrency=load) for load in loads for arm in self.arms)
        return tuple(point for point in candidates if point in measured)

    def cells(self, point: Point) -> tuple[Measurement, ...]:
        """The point's records, one a pass."""
        return tuple(
            cell
            for cell in self.measurements
            if (cell.arm, cell.workload, cell.concurrency) == (point.arm, point.workload, point.concurrency)
        )

    @cached_property
    def _traces(self) -> dict[str, ServerTraces]:
        return {}

    def traces(self, server: str) -> ServerTraces:
        """Traces of all processes that ran in a server's folder; read once, when asked for."""
        if server not in self._traces:
            self._traces[server] = read_traces(self.root / "servers" / server)
        return self._traces[server]

    def trace_of(self, cell: Measurement) -> Trace | None:
        """The trace of the process that served the cell: the last one that began before it."""
        began = [trace for trace in self.traces(cell.server).traces if _begin(trace) <= cell.clock_epoch]
        return began[-1] if began else None

    def command(self, server: str) -> ServerCommand | None:
        """How a server was started the last time; None if that was not kept."""
        return read_command(self.root / "servers" / server)

    @cached_property
    def draft_model(self) -> str | None:
        """The draft as an engine got it; else as the sweep file names it."""
        servers = dict.fromkeys(cell.server for cell in self.measurements if self.arm(cell.arm).k > 0)
        commands = (self.command(server) for server in servers)
        launched = next((command.draft_model for command in commands if command and command.draft_model), None)
        return launched or (None if self.pair is None else self.pair.draft)

    def outputs(self, cell: Measurement) -> Mapping[str, PromptOutputs] | None:
        """Output lengths of one cell by prompt; None if its raw requests are gone or damaged."""
        if cell.cell_id not in self._outputs:
            self._outputs[cell.cell_id] = read_outputs(ResultStore(self.root).requests_path(cell.cell_id))
        return self._outputs[cell.cell_id]

    @cached_property
    def _outputs(self) -> dict[str, Mapping[str, PromptOutputs] | None]:
        return {}


def _begin(trace: Trace) -> float:
    if trace.start is not None:
        return trace.start.time
    return min([refit.time for refit in trace.refits[:1]] + [step.time for step in trace.steps[:1]], default=0.0)


def read_results(root: Path) -> Results:
    """Reads a results folder. Raises UsageError if there is none at `root`, NotComparableError if it holds cells of
    both clocks."""
    from avbench.analysis.comparable import require_one_clock

    store = ResultStore(root)
    results = results_of(root, store.read_manifest(), store.read_measurements())
    require_one_clock(results)
    return results


def results_of(root: Path, manifest: Mapping[str, Any], measurements: Iterable[Measurement]) -> Results:
    """Joins manifest and cells. What the manifest does not list is taken from the cells, simplest arm first."""
    cells = tuple(measurements)
    spec = spec_of(manifest)
    arms = tuple(_fields_of(Arm, entry) for entry in spec.get("arms") or ())
    known = {arm.id for arm in arms}
    extra = {cell.arm: arm_of_id(cell.arm) for cell in cells if cell.arm not in known}
    workloads = [str(entry["name"]) for entry in spec.get("workloads") or ()]
    loads = {int(load) for load in spec.get("concurrency") or ()} | {cell.concurrency for cell in cells}
    return Results(
        root=root,
        manifest=manifest,
        measurements=cells,
        arms=arms + tuple(sorted(extra.values(), key=lambda arm: arm.simplicity)),
        workloads=tuple(dict.fromkeys(workloads + [cell.workload for cell in cells])),
        concurrencies=tuple(sorted(loads)),
        pair=_fields_of(Pair, spec["pair"]) if spec.get("pair") else None,
        engine=_fields_of(EngineSpec, spec["engine"]) if spec.get("engine") else None,
        passes=spec.get("passes"),
    )


def spec_of(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The sweep as the manifest kept it; empty if it did not."""
    spec = manifest.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def workload_of(entry: Mapping[str, Any]) -> Workload:
    """A workload from the manifest's JSON."""
    return _fields_of(Workload, {**entry, "sampling": _fields_of(Sampling, entry.get("sampling") or {})})


def _fields_of(kind: type[T], entry: Mapping[str, Any]) -> T:
    """Builds a dataclass from JSON, leaving out keys that a later version may have added."""
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in entry.items() if key in names})


_ARM_ID = re.compile(
    r"(?P<kind>none|fixed|adaptive)(-(?P<k>\d+))?(?P<head>-head)?(-(?P<depth>nested))?(-refit(?P<refit>\d+))?"
)


def arm_of_id(arm_id: str) -> Arm:
    """The inverse of `Arm.id`. Raises ValueError for an id that no arm has."""
    match = _ARM_ID.fullmatch(arm_id)
    if match is None:
        raise ValueError(f"`{arm_id}` is no arm: expected `none`, `fixed-K` or `adaptive-K[-head][-nested][-refitN]`")
    source = "head" if match["head"] else "estimator"
    adaptive = match["kind"] == "adaptive"
    return Arm(
        kind=match["kind"],  # type: ignore[arg-type]
        k=int(match["k"] or 0),
        source=source if adaptive else None,  # type: ignore[arg-type]
        refit_interval=int(match["refit"]) if match["refit"] else None,
        depth=match["depth"],  # type: ignore[arg-type]
    )
