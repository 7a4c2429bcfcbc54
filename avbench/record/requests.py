"""Raw requests of one cell as a Parquet file: one row a request, lists for the chunks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from avbench.record.measurement import RequestTrace

if TYPE_CHECKING:
    import pyarrow


_FIELDS = tuple(field.name for field in fields(RequestTrace))


def _schema() -> pyarrow.Schema:
    import pyarrow as pa

    columns: dict[str, Any] = {
        "index": pa.int64(),
        "prompt_id": pa.string(),
        "sample": pa.int64(),
        "seed": pa.int64(),
        "phase": pa.string(),
        "sent": pa.float64(),
        "chunk_times": pa.list_(pa.float64()),
        "chunk_tokens": pa.list_(pa.int32()),
        "prompt_tokens": pa.int64(),
        "output_tokens": pa.int64(),
        "finish_reason": pa.string(),
        "error": pa.string(),
        "status": pa.int64(),
    }
    return pa.schema(list(columns.items()))


def write_requests(path: Path, traces: Iterable[RequestTrace]) -> None:
    """Times in seconds on the cell's clock, at full precision."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{name: getattr(trace, name) for name in _FIELDS} for trace in traces]
    pq.write_table(pa.Table.from_pylist(rows, schema=_schema()), path, compression="zstd")


def read_requests(path: Path) -> list[RequestTrace]:
    """The inverse of `write_requests`. Raises OSError, ValueError or KeyError for a file that is none."""
    import pyarrow.parquet as pq

    # ParquetFile rather than read_table, which imports pandas: 0.3 s that a command without figures need not wait.
    table = pq.ParquetFile(path).read()
    columns = [table[name].to_pylist() for name in _FIELDS]
    return [RequestTrace(**_row(values)) for values in zip(*columns, strict=True)]


def _row(values: tuple[Any, ...]) -> dict[str, Any]:
    row = dict(zip(_FIELDS, values, strict=True))
    return {**row, "chunk_times": tuple(row["chunk_times"]), "chunk_tokens": tuple(row["chunk_tokens"])}
