"""One file of labelled drafts, read and checked: numpy columns, or an error that says what is wrong with the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from avbench.analysis.study.schema import COLUMNS, METADATA_KEY, REQUIRED, Kind, LabelInfo, parse_info
from avbench.errors import UsageError

_MAGIC = b"PAR1"
_ELSEWHERE = "docs/study.md lists the columns of labelled drafts and says how to write them from elsewhere."


@dataclass(frozen=True, kw_only=True)
class LabelFile:
    """Columns of one length. Floats are float32 (`time` float64) with NaN for null, `step` and `request` int64.

    `label` is False and `labelled` False where the label is null; `request` is -1 where it is null.
    """

    path: Path
    info: LabelInfo | None  # None: the file has no such metadata
    columns: Mapping[str, NDArray[Any]]  # those of the schema that the file has
    labelled: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.labelled)


def read_label_file(path: Path) -> LabelFile:
    """Raises UsageError: not Parquet, cut off, other schema, required columns missing, a column of the wrong type."""
    _check_ends(path)
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            info = parse_info((schema.metadata or {}).get(METADATA_KEY), path)
            _check_columns(path, schema.names)
            table = file.read(columns=[name for name in COLUMNS if name in schema.names])
    except (OSError, pa.ArrowException) as error:
        raise UsageError(
            f"{path}: cannot be read: {str(error).splitlines()[0]}",
            hint="the file is damaged; leave it out, or write the labels anew.",
        ) from error
    columns = {name: _numpy(path, name, table[name]) for name in table.column_names}
    labelled = np.asarray(table["label"].is_valid().to_numpy())
    return LabelFile(path=path, info=info, columns=columns, labelled=labelled)


def _check_ends(path: Path) -> None:
    """A Parquet file begins and ends with `PAR1`: tells a file cut off from one that never was Parquet."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            first = file.read(4)
            file.seek(max(size - 4, 0))
            last = file.read(4)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}", hint="give a readable file.") from error
    if not size:
        raise UsageError(f"{path}: the file is empty (0 bytes)", hint="leave it out, or write the labels anew.")
    if first != _MAGIC:
        raise UsageError(f"{path}: not a Parquet file", hint=f"give Parquet files or folders of them; {_ELSEWHERE}")
    if last != _MAGIC or size < 12:
        raise UsageError(
            f"{path}: the Parquet file is cut off after {size:,} bytes",
            hint="its writer was stopped or a copy is incomplete; copy it again or leave it out.",
        )


def _check_columns(path: Path, present: list[str]) -> None:
    absent = [name for name in REQUIRED if name not in present]
    if absent:
        raise UsageError(f"{path}: required columns are missing: {_listed(absent)}", hint=_ELSEWHERE)
    if "q_max" not in present and "logit_q_max" not in present:
        raise UsageError(f"{path}: `q_max` and `logit_q_max` are both missing, one is needed", hint=_ELSEWHERE)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _numpy(path: Path, name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    kind = COLUMNS[name]
    if pa.types.is_null(column.type):  # null throughout, written without a type
        column = column.cast(_ARROW[kind])
    if not _is_kind(column.type, kind):
        raise UsageError(
            f"{path}: column `{name}` is of type {column.type}, expected {_EXPECTED[kind]}", hint=_ELSEWHERE
        )
    if kind == "bool":
        return np.asarray(column.fill_null(False).to_numpy(), dtype=np.bool_)
    if kind == "integer":
        return np.asarray(column.fill_null(-1).to_numpy(), dtype=np.int64)
    # to_numpy turns null into NaN for float columns; float64 from elsewhere may overflow to inf, which is caught later.
    with np.errstate(over="ignore"):
        return np.asarray(column.to_numpy(), dtype=np.float64 if name == "time" else np.float32)


_ARROW: Mapping[Kind, pa.DataType] = {"float": pa.float32(), "integer": pa.int64(), "bool": pa.bool_()}
_EXPECTED: Mapping[Kind, str] = {"float": "a floating-point type", "integer": "an integer type", "bool": "bool"}


def _is_kind(type_: pa.DataType, kind: Kind) -> bool:
    if kind == "bool":
        return bool(pa.types.is_boolean(type_))
    if kind == "integer":
        return bool(pa.types.is_integer(type_))
    return bool(pa.types.is_floating(type_) or pa.types.is_integer(type_))
