"""The record of a cell that has no figures."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Literal

from avbench.plan import Cell
from avbench.record.measurement import SCHEMA, CellFailure, Measurement


def blank_measurement(cell: Cell, server: str, failure: CellFailure) -> Measurement:
    """`server` is the folder of the start it failed on."""
    now = time.time()
    return Measurement(
        schema=SCHEMA,
        cell_id=cell.id,
        identity=cell.identity,
        arm=cell.arm.id,
        workload=cell.workload.name,
        concurrency=cell.concurrency,
        pass_number=cell.pass_number,
        status="failed",
        failure=failure,
        started_at=datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"),
        clock_epoch=now,
        window=None,
        warmup_requests=0,
        server=server,
        server_steps=None,
        estimator_state=_estimator_state(cell),
        loads_before=cell.loads_before,
        counters=None,
        summary=None,
    )


def _estimator_state(cell: Cell) -> Literal["fresh", "carried"] | None:
    if not cell.arm.learns:
        return None
    return "carried" if cell.loads_before else "fresh"
