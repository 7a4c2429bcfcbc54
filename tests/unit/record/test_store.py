from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from avbench.errors import UsageError
from avbench.plan import Cell
from avbench.record.measurement import CellFailure, Measurement
from avbench.record.store import ResultStore
from avbench.record.summary import summarise
from avbench.runner.blank import blank_measurement
from avbench.spec.arm import Arm
from avbench.spec.sweep import Sampling, Workload
from tests.traces import make_counters, make_trace

ARM = Arm(kind="adaptive", k=3, source="estimator")
TRACES = (
    make_trace(0.1, (0.25, 1), (1 / 3, 3)),
    make_trace(0.2, error="HTTP 500: ü", status=None, prompt_tokens=None, finish_reason=None),
)


def make_cell(number: int = 1) -> Cell:
    workload = Workload(name="w", prompts="x", max_tokens=5, sampling=Sampling())
    return Cell(arm=ARM, workload=workload, concurrency=number, pass_number=1, loads_before=(), identity=f"id{number}")


def make_measurement(number: int = 1) -> Measurement:
    counters = make_counters()
    blank = blank_measurement(make_cell(number), "s", CellFailure(kind="x", reason="y"))
    summary = summarise(TRACES, (0.0, 1.0), counters, ARM)
    done = replace(blank, status="done", failure=None, summary=summary, counters=counters, window=(0.0, 1.0))
    return replace(done, server_steps=(3, 9), loads_before=("w@1",), notes=("a note",))


def test_record_comes_back_as_it_was(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "deep" / "er")
    with store.writing():
        store.write_cell(make_measurement(), TRACES)
    assert store.read_measurements() == [make_measurement()] or _but_for_time(store.read_measurements()[0])
    assert store.read_requests(make_cell().id) == list(TRACES)


def _but_for_time(record: Measurement) -> bool:
    fresh = make_measurement()
    return replace(record, started_at="", clock_epoch=0.0) == replace(fresh, started_at="", clock_epoch=0.0)


def test_failed_record_is_replaced(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    with store.writing():
        store.write_cell(blank_measurement(make_cell(), "s", CellFailure(kind="timeout", reason="slow")), ())
        store.write_cell(make_measurement(), TRACES)
    (record,) = store.read_measurements()
    assert record.status == "done"
    assert [path.name for path in (tmp_path / "cells").iterdir()] == [make_cell().id]


def _write_for_ever(root: Path) -> None:
    store = ResultStore(root)
    with store.writing():
        for number in range(1, 100_000):
            store.write_cell(make_measurement(number), TRACES * 50)


def test_killed_writer_leaves_whole_cells_only_and_no_lock(tmp_path: Path) -> None:
    for _ in range(3):
        writer = multiprocessing.get_context("spawn").Process(target=_write_for_ever, args=(tmp_path,))
        writer.start()
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("cells/[!.]*"))) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        store = ResultStore(tmp_path)
        for record in store.read_measurements():
            assert record.status == "done"
            assert len(store.read_requests(record.cell_id)) == 100
        with store.writing():
            assert not list(tmp_path.glob("cells/.*"))


def test_second_writer_is_refused(tmp_path: Path) -> None:
    refused = pytest.raises(UsageError, match=f"process {os.getpid()}")
    with ResultStore(tmp_path).writing(), refused, ResultStore(tmp_path).writing():
        pass
    with ResultStore(tmp_path).writing():
        pass


def test_lock_file_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("1\n")  # a living process, but not one that holds the lock
    with ResultStore(tmp_path).writing():
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/avbench-results"])
def test_unwritable_folder_is_found_before_anything(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UsageError, match="cannot write results here") as caught,
        ResultStore(tmp_path / place).writing(),
    ):
        pass
    assert "--results" in (caught.value.hint or "")


def test_no_results(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no results here"):
        ResultStore(tmp_path).read_manifest()
    assert ResultStore(tmp_path).read_measurements() == []


@pytest.mark.parametrize("name", ["manifest.json", "cells/a/measurement.json"])
def test_later_schema_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema": 99}))
    store = ResultStore(tmp_path)
    with pytest.raises(UsageError, match="schema 99"):
        store.read_manifest() if "manifest" in name else store.read_measurements()


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}', '{"schema": "1"}'])
def test_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cells" / "a" / "measurement.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(UsageError, match=r"cells/a/measurement\.json"):
        ResultStore(tmp_path).read_measurements()


def test_damaged_requests_are_named(tmp_path: Path) -> None:
    path = ResultStore(tmp_path).requests_path("a")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(UsageError, match=r"requests\.parquet"):
        ResultStore(tmp_path).read_requests("a")


def test_manifest_is_replaced_in_one_step(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.write_manifest({"schema": 1, "a": 1})
    store.write_manifest({"schema": 1, "a": 2})
    assert store.read_manifest() == {"schema": 1, "a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
