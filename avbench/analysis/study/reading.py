"""From arguments to streams of drafts: every file read once, rows outside the schema counted, doubts put into words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avbench.analysis.study.clean import usable_rows
from avbench.analysis.study.drafts import NO_LOAD, NO_REQUEST, OPTIONAL, WARM_UP, Drafts, concatenate, logit
from avbench.analysis.study.parquet import LabelFile, read_label_file
from avbench.analysis.study.places import LabelFolder
from avbench.analysis.study.schema import LabelInfo
from avbench.errors import UsageError
from avbench.units import format_count, format_plural


@dataclass(kw_only=True)
class Tally:
    """All drafts of one workload in one stream, with a label or not."""

    drafts: int = 0
    entropy: float = 0.0  # sum, nats
    with_entropy: int = 0


@dataclass(frozen=True, kw_only=True)
class ReadStream:
    """The usable labels of one process. `workloads` names the codes in `drafts.data_set`."""

    folder: LabelFolder
    name: str
    info: LabelInfo
    drafts: Drafts
    workloads: tuple[str, ...]
    tallies: Mapping[int, Tally]


@dataclass(kw_only=True)
class Notes:
    """What a reader should know about the labels, in words and in the order in which it was found."""

    lines: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        if text not in self.lines:
            self.lines.append(text)


def read_streams(folder: LabelFolder, notes: Notes) -> Iterator[ReadStream]:
    """Streams that have at least one usable label. A damaged file is left out with a note.

    Raises the UsageError of a file if it is the only one, and that of another schema.
    """
    alone = sum(len(paths) for paths in folder.streams) == 1
    for paths in folder.streams:
        files = list(_files(paths, notes, alone=alone))
        for name, parts in _by_writer(folder, paths, files):
            yield from _stream(folder, name, parts, notes)


def _files(paths: Sequence[Path], notes: Notes, *, alone: bool) -> Iterator[LabelFile]:
    for path in paths:
        try:
            yield read_label_file(path)
        except UsageError as error:
            if alone:
                raise
            notes.add(f"Left out: {error.message}.")


def _by_writer(
    folder: LabelFolder, paths: Sequence[Path], files: Sequence[LabelFile]
) -> Iterator[tuple[str, list[LabelFile]]]:
    """Parts of one process have one metadata; where it changes another engine took over."""
    name = folder.server if len(folder.streams) == 1 else f"{folder.server}/{paths[0].stem.rpartition('-')[0]}"
    start = 0
    for index in range(1, len(files) + 1):
        if index == len(files) or files[index].info != files[start].info:
            yield name, list(files[start:index])
            start = index


def _stream(folder: LabelFolder, name: str, files: list[LabelFile], notes: Notes) -> Iterator[ReadStream]:
    info = files[0].info
    if info is None:
        info = LabelInfo()
        notes.add(
            f"{_place(files)}: no `avbench.labels` metadata: pair and draft sampling are not known, nothing is taken "
            f"to be trimmed, and refits come every {info.refit_interval} steps."
        )
    workloads = tuple(dict.fromkeys(window.workload for window in folder.windows or ()))
    tallies: dict[int, Tally] = {}
    reasons: dict[str, int] = {}
    chunks = [_chunk(folder, file, workloads, tallies, reasons) for file in files]
    for reason, count in reasons.items():
        notes.add(f"{_place(files)}: {format_plural(count, 'label')} left out: {reason}.")
    _note_columns(files, notes)
    drafts, times = concatenate([chunk for chunk, _ in chunks]), np.concatenate([time for _, time in chunks])
    if len(drafts):
        for part in _lives(drafts, times, _place(files), notes):
            yield ReadStream(folder=folder, name=name, info=info, drafts=part, workloads=workloads, tallies=tallies)
            tallies = {}  # counted once, with the first life
    else:
        notes.add(f"{_place(files)}: no draft with a label that can be used.")


def _place(files: Sequence[LabelFile]) -> str:
    return str(files[0].path if len(files) == 1 else files[0].path.parent)


def _note_columns(files: Sequence[LabelFile], notes: Notes) -> None:
    absent = [
        name for name in (*OPTIONAL, "request", "time", "logit_q_max", "admitted") if name not in files[0].columns
    ]
    if absent:
        listed = ", ".join(f"`{name}`" for name in absent)
        notes.add(f"{_place(files)}: no column {listed}; what needs it is left out of the study.")


def _chunk(
    folder: LabelFolder,
    file: LabelFile,
    workloads: tuple[str, ...],
    tallies: dict[int, Tally],
    reasons: dict[str, int],
) -> tuple[Drafts, NDArray[np.float64]]:
    columns = file.columns
    time = columns.get("time", np.zeros(len(file)))
    codes, loads = _cells(folder, time, workloads, known="time" in columns)
    _count(tallies, codes, columns.get("entropy"))
    rows, found = usable_rows(file)
    for reason, count in found.items():
        reasons[reason] = reasons.get(reason, 0) + count
    request = columns.get("request", np.full(len(file), NO_REQUEST))[rows]
    return _drafts(columns, rows, codes, loads, request), time[rows]


def _drafts(
    columns: Mapping[str, NDArray[Any]],
    rows: NDArray[np.bool_],
    codes: NDArray[np.int16],
    loads: NDArray[np.int32],
    request: NDArray[np.int64],
) -> Drafts:
    """`request` keeps the engine's numbers until the streams are joined; they are dense by then."""
    optional: dict[str, Any] = {name: columns[name][rows] for name in OPTIONAL if name in columns}
    for name in ("q_max", "q_sampled", "margin"):
        if name in optional:
            optional[name] = np.clip(optional[name], 0, 1)
    feature = columns["logit_q_max"][rows] if "logit_q_max" in columns else logit(optional["q_max"])
    return Drafts(
        stream=np.zeros(len(request), dtype=np.int32),
        data_set=codes[rows],
        load=loads[rows],
        step=columns["step"][rows],
        request=request,  # type: ignore[arg-type]
        position=columns["position"][rows].astype(np.int16),
        label=columns["label"][rows],
        admitted=columns["admitted"][rows] if "admitted" in columns else np.ones(len(request), dtype=np.bool_),
        logit_q_max=feature,
        **optional,
    )


def _cells(
    folder: LabelFolder, time: NDArray[np.float64], workloads: tuple[str, ...], *, known: bool
) -> tuple[NDArray[np.int16], NDArray[np.int32]]:
    """Data set code and load of each row: those of the cell whose window holds it. Windows do not overlap."""
    if folder.windows is None:
        return np.zeros(len(time), dtype=np.int16), np.full(len(time), NO_LOAD, dtype=np.int32)
    codes = np.array([workloads.index(window.workload) for window in folder.windows] + [WARM_UP], dtype=np.int16)
    loads = np.array([window.load for window in folder.windows] + [NO_LOAD], dtype=np.int32)
    ends = np.array([window.end for window in folder.windows])
    starts = np.array([window.start for window in folder.windows] + [np.inf])
    cell = np.searchsorted(ends, time, side="left")
    cell[(time < starts[cell]) | (not known)] = len(ends)
    return codes[cell], loads[cell]


def _count(tallies: dict[int, Tally], codes: NDArray[np.int16], entropy: NDArray[np.float32] | None) -> None:
    for code in np.unique(codes):
        tally = tallies.setdefault(int(code), Tally())
        rows = codes == code
        tally.drafts += int(rows.sum())
        if entropy is not None:
            values = entropy[rows]
            values = values[np.isfinite(values)]
            tally.entropy += float(values.sum(dtype=np.float64))
            tally.with_entropy += len(values)


def _lives(drafts: Drafts, times: NDArray[np.float64], place: str, notes: Notes) -> Iterator[Drafts]:
    """Verdicts in step order. Where steps fall while time goes on, the engine started again: a life of its own."""
    falls = np.flatnonzero(np.diff(drafts.step) < 0)
    if not len(falls):
        yield drafts
    elif np.all(times[falls + 1] > times[falls]):
        notes.add(f"{place}: step numbers begin again {format_count(len(falls))} times: read as engine restarts.")
        borders = [0, *(falls + 1).tolist(), len(drafts)]
        for start, end in pairwise(borders):
            yield drafts.take(slice(start, end))
    else:
        notes.add(f"{place}: rows do not come in the order of engine steps; they were sorted.")
        yield drafts.take(np.argsort(drafts.step, kind="stable"))
