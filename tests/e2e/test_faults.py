"""Engines that misbehave, and avbench processes that are stopped: nothing is lost, repeated or left running."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from avbench.record.measurement import Measurement
from avbench.record.store import ResultStore
from tests.fake_engine.sweeps import engines, environment, run_avbench, start_avbench, write_sweep


def records(folder: Path) -> dict[str, Measurement]:
    return {record.cell_id: record for record in ResultStore(folder / "results" / "mini").read_measurements()}


def kinds(folder: Path) -> dict[str, str]:
    return {cell: record.failure.kind if record.failure else "done" for cell, record in records(folder).items()}


def wait_for(true: Callable[[], object], process: subprocess.Popen[str], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def test_engine_that_dies_under_load(tmp_path: Path) -> None:
    """Its cell fails with a reason, the rest of its group is measured on a second start, and the exit code says so."""
    write_sweep(tmp_path, passes=1)
    found = run_avbench(tmp_path, "sweep", "mini.yaml", env=environment(die_after="5", die_arm="3"))
    assert found.returncode == 5
    assert kinds(tmp_path) == {
        "none__short__c1__p1": "done",
        "none__short__c4__p1": "done",
        "fixed-3__short__c1__p1": "engine_died",
        "fixed-3__short__c4__p1": "engine_died",
    }
    failure = records(tmp_path)["fixed-3__short__c1__p1"].failure
    assert failure is not None
    assert "exit code 3 while it was serving" in failure.reason
    assert "made-up fault" in failure.reason
    assert "error: 2 of 4 cells failed" in found.stderr
    assert (tmp_path / "results/mini/servers/fixed-3-p1.2/server.log").exists()
    assert (tmp_path / "results/mini/report.html").exists()
    assert engines(tmp_path) == []
    found = run_avbench(tmp_path, "sweep", "mini.yaml", env=environment())
    assert found.returncode == 0, found.stderr
    assert set(kinds(tmp_path).values()) == {"done"}


@pytest.mark.parametrize(
    ("fake", "kind"),
    [({"status": "500", "status_arm": "3"}, "all_requests_failed"), ({"context": "5"}, "prompts_too_long")],
)
def test_requests_that_all_fail(tmp_path: Path, fake: Mapping[str, str], kind: str) -> None:
    write_sweep(tmp_path, passes=1, load={"concurrency": [2]}, workloads=[_workload(samples=1)])
    found = run_avbench(tmp_path, "sweep", "mini.yaml", env=environment(**fake))
    assert found.returncode == 5
    failed = {cell for cell, found_kind in kinds(tmp_path).items() if found_kind == kind}
    assert "fixed-3__short__c2__p1" in failed
    assert engines(tmp_path) == []


def _workload(samples: int = 20) -> dict[str, object]:
    return {"prompts": "prompts.jsonl", "name": "short", "max_tokens": 12, "samples_per_prompt": samples}


def test_some_prompts_too_long_are_counted(tmp_path: Path) -> None:
    write_sweep(tmp_path, arms=["none"], passes=1, load={"concurrency": [2]})
    found = run_avbench(tmp_path, "sweep", "mini.yaml", env=environment(context="200"))
    assert found.returncode == 0, found.stderr
    record = records(tmp_path)["none__short__c2__p1"]
    assert record.summary is not None
    assert 0 < record.summary.too_long < record.summary.requests
    assert record.summary.failed == 0
    assert "prompts exceed the model's context" in found.stderr
    assert any("exceed the model's context" in note for note in record.notes)


def test_cut_streams_are_counted(tmp_path: Path) -> None:
    write_sweep(tmp_path, arms=["none"], passes=1, load={"concurrency": [2]})
    found = run_avbench(tmp_path, "sweep", "mini.yaml", env=environment(cut="5"))
    assert found.returncode == 0, found.stderr
    record = records(tmp_path)["none__short__c2__p1"]
    assert record.summary is not None
    assert 0 < record.summary.failed < record.summary.requests
    assert any("requests failed: the stream was cut" in note for note in record.notes)


@pytest.mark.parametrize(("fault", "words"), [("hang", "not ready after 3 s"), ("oom", "exit code 1")])
def test_engine_that_never_starts(tmp_path: Path, fault: str, words: str) -> None:
    timeout = 3 if fault == "hang" else 60
    write_sweep(tmp_path, engine={"kind": "reference", "start_timeout": timeout})
    found = run_avbench(tmp_path, "sweep", "mini.yaml", env=environment(start=fault))
    assert found.returncode == 3
    assert words in found.stderr
    assert "hint: " in found.stderr
    assert engines(tmp_path) == []
    assert len(kinds(tmp_path)) == 2  # what does not start without speculation does not start with it


def test_one_start_that_fails_loses_only_its_group(tmp_path: Path) -> None:
    write_sweep(tmp_path, passes=1)
    orders = tmp_path / "orders"
    orders.mkdir()
    (orders / "1").write_text("oom")
    found = run_avbench(tmp_path, "sweep", "mini.yaml", env=environment(start_once=str(orders)))
    assert found.returncode == 5
    assert set(kinds(tmp_path).values()) == {"done", "out_of_memory"}


def test_stalled_engine_costs_one_time_limit(tmp_path: Path) -> None:
    cell = {"seconds": 0.3, "warmup_seconds": 0.1, "timeout": 3}
    write_sweep(tmp_path, arms=["none"], passes=1, load={"concurrency": [1]}, cell=cell)
    found = run_avbench(tmp_path, "sweep", "mini.yaml", env=environment(stall="4"))
    assert found.returncode == 5
    assert kinds(tmp_path) == {"none__short__c1__p1": "timeout"}
    assert engines(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_keeps_records_and_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    write_sweep(tmp_path, cell={"seconds": 1.5, "warmup_seconds": 0.1, "timeout": 20})
    env = environment(child="1")
    with start_avbench(tmp_path, "sweep", "mini.yaml", env=env) as process:
        wait_for(lambda: records(tmp_path), process)
        time.sleep(0.7)  # into the second cell
        done = {cell for cell, kind in kinds(tmp_path).items() if kind == "done"}
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "error: interrupted" in err
    assert "hint: " in err
    assert "Traceback" not in err
    assert engines(tmp_path) == []
    assert done <= {cell for cell, kind in kinds(tmp_path).items() if kind == "done"}
    assert set(kinds(tmp_path).values()) <= {"done", "cancelled"}


def test_second_interrupt_does_not_wait_for_a_deaf_engine(tmp_path: Path) -> None:
    write_sweep(tmp_path)
    with start_avbench(tmp_path, "sweep", "mini.yaml", env=environment(deaf="1", child="1")) as process:
        wait_for(lambda: records(tmp_path), process)
        process.send_signal(signal.SIGINT)
        time.sleep(1.5)
        assert process.poll() is None  # it gives the engine its time
        second = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - second < 7
    assert engines(tmp_path) == []


def test_killed_sweep_resumes_without_losing_or_repeating(tmp_path: Path) -> None:
    write_sweep(tmp_path, cell={"seconds": 1.5, "warmup_seconds": 0.1, "timeout": 20})
    with start_avbench(tmp_path, "sweep", "mini.yaml", env=environment(child="1")) as process:
        wait_for(lambda: len(records(tmp_path)) >= 1, process)
        time.sleep(0.7)  # into the next cell
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    deadline = time.monotonic() + 20
    while engines(tmp_path):
        assert time.monotonic() < deadline, "an engine outlived avbench"
        time.sleep(0.05)
    before = records(tmp_path)
    assert before
    assert {record.status for record in before.values()} == {"done"}
    found = run_avbench(tmp_path, "sweep", "mini.yaml", env=environment())
    assert found.returncode == 0, found.stderr
    after = records(tmp_path)
    assert len(after) == 8
    assert {record.status for record in after.values()} == {"done"}
    assert {cell: after[cell] for cell in before} == before
    assert f"{8 - len(before)}/{8 - len(before)}" in found.stderr
    assert not list(tmp_path.glob("results/mini/cells/.*"))


def test_killed_adaptive_group_is_replayed_up_to_where_it_was(tmp_path: Path) -> None:
    write_sweep(
        tmp_path, arms=[{"adaptive": {"k": 4, "refit_interval": 25}}], passes=1, load={"concurrency": [1, 2, 4]}
    )
    found = run_avbench(tmp_path, "sweep", "mini.yaml", "--only", "concurrency=1", env=environment())
    assert found.returncode == 0, found.stderr
    first = records(tmp_path)
    found = run_avbench(tmp_path, "sweep", "mini.yaml", env=environment())
    assert found.returncode == 0, found.stderr
    assert "run again unmeasured" in found.stderr
    after = records(tmp_path)
    assert len(after) == 3
    assert after["adaptive-4-refit25__short__c1__p1"] == first["adaptive-4-refit25__short__c1__p1"]
    last = after["adaptive-4-refit25__short__c4__p1"]
    assert last.loads_before == ("short@1", "short@2")
    assert (last.estimator_state, last.server) == ("carried", "adaptive-4-refit25-p1.2")
    assert last.summary is not None
    assert last.summary.verified_per_request_step == 2.0
    assert last.server_steps is not None
