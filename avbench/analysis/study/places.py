"""Where labelled drafts lie: a file, a folder of parts, a server's folder or a whole results folder."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from avbench.analysis.results import Results, read_results
from avbench.errors import UsageError
from avbench.record.store import MANIFEST

LABELS = "labels"
_FORMS = "give a Parquet file, a folder of them (`labels/`), a server's folder or a results folder."


@dataclass(frozen=True, kw_only=True)
class CellWindow:
    """The steady window of one cell, Unix seconds."""

    start: float
    end: float
    workload: str
    load: int  # concurrency


@dataclass(frozen=True, kw_only=True)
class LabelFolder:
    """Files of one server. `streams` are the files of each process, in the order in which it wrote them.

    `windows` are the cells the server measured, in time; None where no results folder says.
    """

    origin: str  # name of the argument, for data sets
    server: str
    streams: tuple[tuple[Path, ...], ...]
    windows: tuple[CellWindow, ...] | None


def find_labels(path: Path) -> tuple[LabelFolder, ...]:
    """Everything that `path` stands for. Raises UsageError if there are no labelled drafts."""
    if path.is_file():
        return (LabelFolder(origin=path.stem, server=path.name, streams=((path,),), windows=None),)
    if not path.is_dir():
        raise UsageError(f"{path}: no such file or folder", hint=_FORMS)
    if (path / MANIFEST).is_file():
        return _of_results(path)
    return (_of_server(path),)


def _of_results(root: Path) -> tuple[LabelFolder, ...]:
    results = read_results(root)
    folders = sorted(folder for folder in (root / "servers").glob(f"*/{LABELS}") if folder.is_dir())
    found = tuple(_folder(folder, results) for folder in folders if _parts(folder))
    if not found:
        raise UsageError(
            f"{root}: no labelled drafts in this results folder",
            hint="write `labels: true` at the top level of the sweep file and measure it into a new folder.",
        )
    return found


def _of_server(path: Path) -> LabelFolder:
    """A folder that holds Parquet files, or one called `labels` that does."""
    folder = next((place for place in (path, path / LABELS) if _parts(place)), None)
    if folder is None:
        raise UsageError(f"{path}: no Parquet files here", hint=_FORMS)
    root = folder.resolve().parents[2] if len(folder.resolve().parents) > 2 else None
    if folder.name == LABELS and root is not None and (root / MANIFEST).is_file():
        return _folder(folder, read_results(root))
    owner = folder.resolve().parent if folder.name == LABELS else folder.resolve()
    return LabelFolder(origin=owner.name, server=owner.name, streams=_streams(_parts(folder)), windows=None)


def _folder(folder: Path, results: Results) -> LabelFolder:
    server = folder.resolve().parent.name
    windows = (
        CellWindow(
            start=cell.clock_epoch + cell.window[0],
            end=cell.clock_epoch + cell.window[1],
            workload=cell.workload,
            load=cell.concurrency,
        )
        for cell in results.measurements
        if cell.server == server and cell.status == "done" and cell.window is not None
    )
    return LabelFolder(
        origin=results.name,
        server=server,
        streams=_streams(_parts(folder)),
        windows=tuple(sorted(windows, key=lambda window: window.start)),
    )


def _parts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("[!.]*.parquet") if path.is_file())


_NUMBERED = re.compile(r"(?P<process>.+)-(?P<number>\d+)")


def _streams(paths: Iterable[Path]) -> tuple[tuple[Path, ...], ...]:
    """`part-<pid>-00000` and the like: one stream a process, by number. A file without a number is one by itself."""
    streams: dict[str, list[tuple[int, Path]]] = {}
    for path in paths:
        match = _NUMBERED.fullmatch(path.stem)
        name, number = (match["process"], int(match["number"])) if match else (path.stem, 0)
        streams.setdefault(name, []).append((number, path))
    return tuple(tuple(path for _, path in sorted(parts)) for parts in streams.values())
