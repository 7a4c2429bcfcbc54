"""Rows of labelled drafts on disk: whole Parquet files, each of which appears under its name when it is complete."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCHEMA = 1
METADATA_KEY = "avbench.labels"
PART_ROWS, PART_SECONDS = 65_536, 30.0
UNKNOWN = np.int8(-1)
# As they are gathered. In a file `label` is a bool, null where UNKNOWN; floats are null where NaN.
COLUMNS: Mapping[str, type[np.generic]] = {
    "time": np.float64,
    "step": np.int64,
    "request": np.int64,
    "position": np.int16,
    "temperature": np.float32,
    "q_max": np.float32,
    "logit_q_max": np.float32,
    "entropy": np.float32,
    "margin": np.float32,
    "q_sampled": np.float32,
    "head": np.float32,
    "prediction": np.float32,
    "admitted": np.bool_,
    "label": np.int8,
}
# Long runs of equal values: a dictionary makes them small. The others are noise, and compress to nine tenths at best.
_REPEATED = ["time", "step", "request", "position", "temperature"]


class LabelParts:
    """Gathers rows in arrays of fixed size and writes them as `folder/part-<pid>-<number>.parquet`."""

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        """`about`: what the metadata says besides the schema version. Nothing is written before the first rows."""
        import pyarrow.parquet  # noqa: F401  # takes half a second: now, and not in the middle of a step

        self.ended = False  # the disk took no more
        self._folder, self._about = folder, about
        self._columns = {name: np.empty(PART_ROWS, dtype) for name, dtype in COLUMNS.items()}
        self._rows = self._number = 0
        self._since = 0.0

    @property
    def rows(self) -> int:
        """Rows that are in no file yet."""
        return self._rows

    def append(self, count: int, rows: Mapping[str, Any]) -> None:
        """Add `count` rows, at most PART_ROWS: an array or one value for each column. They stay in one file."""
        if self._rows + count > PART_ROWS:
            self.flush()
        if self.ended:
            return
        if not self._rows:
            self._since = time.monotonic()
        end = self._rows + count
        for name, values in self._columns.items():
            values[self._rows : end] = rows[name]
        self._rows = end
        if time.monotonic() - self._since > PART_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered. A full disk ends the labels with a warning, not the serving."""
        if not self._rows:
            return
        columns = {name: values[: self._rows] for name, values in self._columns.items()}
        self._rows = 0
        try:
            self._write(encode(columns, self._about))
        except OSError as error:
            sys.stderr.write(f"warning: labelled drafts end here: {error}\n")
            self.ended = True

    def _write(self, content: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        while (path := self._folder / f"part-{os.getpid()}-{self._number:05d}.parquet").exists():
            self._number += 1  # an earlier process had our number, as happens in containers
        unfinished = path.with_name(path.name + ".tmp")
        try:
            with unfinished.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        self._number += 1


def encode(columns: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> bytes:
    """A Parquet file of `COLUMNS`, all of one length, with `about` as JSON in the metadata of its schema."""
    import pyarrow
    import pyarrow.parquet

    def array(name: str, values: NDArray[Any]) -> Any:
        if name == "label":
            return pyarrow.array(values == 1, mask=values == UNKNOWN)
        if name in ("head", "prediction"):
            return pyarrow.array(values, mask=np.isnan(values))
        return pyarrow.array(values)

    metadata = {METADATA_KEY: json.dumps({"schema": SCHEMA, **about})}
    table = pyarrow.table({name: array(name, values) for name, values in columns.items()}, metadata=metadata)
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, compression="zstd", use_dictionary=_REPEATED)
    content: bytes = sink.getvalue().to_pybytes()
    return content
