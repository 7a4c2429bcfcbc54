"""A results folder: one manifest, one folder for each cell, one for each server start."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from avbench.errors import UsageError
from avbench.record.codec import decode, encode
from avbench.record.files import publish_folder, scratch_folder, sweep_unfinished, write_file
from avbench.record.lock import locked
from avbench.record.manifest import Manifest, check_schema
from avbench.record.measurement import SCHEMA, Measurement, RequestTrace

MANIFEST = "manifest.json"
MEASUREMENT = "measurement.json"
REQUESTS = "requests.parquet"


class ResultStore:
    """`root/manifest.json`, `root/cells/<cell id>/`, `root/servers/<group id>/`. Reading needs no lock."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Make the folder, prove that it can be written to, and keep every other avbench out.

        Raises UsageError if either fails: before anything was started.
        """
        try:
            for folder in (self._cells, self._servers):
                folder.mkdir(parents=True, exist_ok=True)
            write_file(self.root / "probe", "")
            (self.root / "probe").unlink()
            lock = locked(self.root / ".lock")
            lock.__enter__()
        except OSError as error:
            raise UsageError(
                f"{self.root}: cannot write results here: {error.strerror or error}",
                hint="give a folder that can be written to with `--results DIR`.",
            ) from error
        try:
            for folder in (self.root, self._cells):
                sweep_unfinished(folder)
            yield
        finally:
            lock.__exit__(None, None, None)

    def server_folder(self, name: str) -> Path:
        """Where the log, command and trace of one server start go."""
        return self._servers / name

    def requests_path(self, cell_id: str) -> Path:
        """The raw requests of a cell; the file exists once the cell is written."""
        return self._cells / cell_id / REQUESTS

    def has_manifest(self) -> bool:
        """Whether anything was ever measured here."""
        return (self.root / MANIFEST).is_file()

    def read_manifest(self) -> Manifest:
        """Raises UsageError if there is none, or one that cannot be read."""
        path = self.root / MANIFEST
        if not path.is_file():
            raise UsageError(
                f"{self.root}: no results here (there is no {MANIFEST})",
                hint="give the folder of one sweep, e.g. `results/quickstart`; `avbench sweep` makes it.",
            )
        return check_schema(_read_json(path), str(path))

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest in one step."""
        write_file(self.root / MANIFEST, json.dumps(manifest, indent=2, allow_nan=False) + "\n")

    def read_measurements(self) -> list[Measurement]:
        """All records, by cell id. Raises UsageError for one that is damaged or of a later schema."""
        return [_read_measurement(path) for path in sorted(self._cells.glob(f"[!.]*/{MEASUREMENT}"))]

    def read_requests(self, cell_id: str) -> list[RequestTrace]:
        """The raw requests of one cell. Raises UsageError if the file is missing or damaged."""
        from avbench.record.requests import read_requests

        path = self.requests_path(cell_id)
        try:
            return read_requests(path)
        except (OSError, ValueError, KeyError) as error:
            raise _damaged(path, error) from error

    def write_cell(self, measurement: Measurement, traces: Iterable[RequestTrace]) -> None:
        """Make one cell visible, whole. Replaces an older record of the same cell id."""
        from avbench.record.requests import write_requests

        target = self._cells / measurement.cell_id
        scratch = scratch_folder(target)
        write_requests(scratch / REQUESTS, traces)
        text = json.dumps(encode(measurement), indent=2, allow_nan=False) + "\n"
        (scratch / MEASUREMENT).write_text(text, encoding="utf-8")
        publish_folder(scratch, target)

    @property
    def _cells(self) -> Path:
        return self.root / "cells"

    @property
    def _servers(self) -> Path:
        return self.root / "servers"


def _read_measurement(path: Path) -> Measurement:
    data = _read_json(path)
    schema = data.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise UsageError(
            f"{path}: schema {schema}, but this avbench reads schemas up to {SCHEMA}",
            hint="read it with the avbench version that wrote it, or a newer one.",
        )
    try:
        return decode(Measurement, data)
    except ValueError as error:
        raise _damaged(path, error) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error
    if not isinstance(data, dict):
        raise _damaged(path, "not a JSON object")
    return data


def _damaged(path: Path, error: object) -> UsageError:
    cell = "remove the cell's folder and run the sweep again: only this cell is measured anew."
    manifest = "move it away; the next `avbench sweep` that measures something writes a new one."
    return UsageError(f"{path}: cannot be read: {error}", hint=manifest if path.name == MANIFEST else cell)
