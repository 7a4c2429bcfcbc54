"""The command line in virtual time, on the shipped models: whole sweeps, their repeats, and what interrupts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from avbench.record.measurement import Measurement, RequestTrace
from avbench.record.store import ResultStore
from avbench.runner.emulated import PROCESSES
from avbench.trace.reader import read_trace
from tests.fake_engine.sweeps import engines

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "sweeps/costs/dsv4-flash-tp4-b300.json"
pytestmark = pytest.mark.timeout(600)
CELLS = {f"{arm}__code__c{load}__p{n}" for arm in ("none", "adaptive-3-refit5") for load in (1, 4) for n in (1, 2)}


def write_sweep(folder: Path, **changes: Any) -> Path:
    sweep = {
        "pair": {"name": "pair", "target": "avbench:target", "draft": "avbench:draft", "method": "draft_model"},
        "engine": {"clock": "emulated", "costs": str(TABLE), "args": {"max-model-len": 128, "max-num-seqs": 4}},
        "arms": ["none", {"adaptive": {"k": 3, "refit_interval": 5}}],
        "workloads": [{"prompts": "code", "max_tokens": 10, "chat": False}],
        "sampling": {"temperature": 0.6},
        "load": {"concurrency": [1, 4]},
        "passes": 2,
        "cell": {"seconds": 0.1, "min_requests": 5, "warmup_seconds": 0.05, "timeout": 200},
        **changes,
    }
    folder.mkdir(exist_ok=True)
    (folder / "mini.yaml").write_text(yaml.safe_dump(sweep, sort_keys=False))
    return folder


def environment(processes: int) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "OMP_NUM_THREADS": "1", PROCESSES: str(processes)}


def avbench(folder: Path, *arguments: str, processes: int = 2) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "avbench", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(processes), capture_output=True, text=True, timeout=500, check=False
    )


def store(folder: Path) -> ResultStore:
    return ResultStore(folder / "results/mini")


def records(folder: Path) -> dict[str, Measurement]:
    return {record.cell_id: record for record in store(folder).read_measurements()}


def requests(folder: Path) -> dict[str, list[RequestTrace]]:
    return {cell: store(folder).read_requests(cell) for cell in sorted(records(folder))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep, two engines at a time."""
    folder = write_sweep(tmp_path_factory.mktemp("emulated"))
    done = avbench(folder, "sweep", "mini.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "stdout").write_text(done.stdout)
    return folder


def test_every_cell_is_recorded_as_emulated(folder: Path) -> None:
    found = records(folder)
    assert set(found) == CELLS
    for record in found.values():
        assert (record.status, record.clock, record.notes) == ("done", "emulated", ())
        assert record.summary is not None
        assert record.summary.failed == 0
        assert record.summary.requests >= 5
        assert record.window is not None
        assert record.window[1] - record.window[0] >= 0.1
        assert record.counters is not None
        assert record.counters.generation_tokens > 0
    assert "emulated" in (folder / "stdout").read_text()
    assert store(folder).read_manifest()["engine_version"] is not None


def test_steps_last_what_the_table_says(folder: Path) -> None:
    """Plain decoding at concurrency 1: 5.1 ms a token; a prompt of 33 to 72 tokens pads to 40 to 72."""
    for request in requests(folder)["none__code__c1__p1"]:
        gaps = [after - before for before, after in zip(request.chunk_times, request.chunk_times[1:], strict=False)]
        assert gaps == pytest.approx([0.0051] * len(gaps))
    summary = records(folder)["none__code__c1__p1"].summary
    assert summary is not None
    assert summary.ttft is not None
    assert 0.0066 < summary.ttft.p50 < 0.0082


def test_passes_are_other_seeds(folder: Path) -> None:
    found = requests(folder)
    one, two = found["none__code__c1__p1"], found["none__code__c1__p2"]
    assert not {request.seed for request in one} & {request.seed for request in two}
    assert [request.prompt_id for request in one] != [request.prompt_id for request in two]


def test_the_same_sweep_gives_the_same_result_on_one_core(folder: Path, tmp_path: Path) -> None:
    again = write_sweep(tmp_path / "again")
    done = avbench(again, "sweep", "mini.yaml", processes=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert requests(again) == requests(folder)
    for cell, record in records(again).items():
        twin = records(folder)[cell]
        assert (record.summary, record.counters, record.window) == (twin.summary, twin.counters, twin.window)
        assert (record.clock_epoch, record.server_steps) == (twin.clock_epoch, twin.server_steps)
    for server in ("none-p1", "adaptive-3-refit5-p2"):
        path = Path("results/mini/servers") / server / "trace.jsonl"
        assert (again / path).read_bytes() == (folder / path).read_bytes()


def test_the_trace_is_in_virtual_time_and_can_be_a_table_itself(folder: Path) -> None:
    server = folder / "results/mini/servers/adaptive-3-refit5-p1"
    trace = read_trace(server / "trace.jsonl")
    assert trace.start is not None
    assert trace.start.time == 0.0
    assert trace.refits
    assert sorted(path.name for path in server.iterdir()) == ["command.json", "server.log", "trace.jsonl"]
    for load in (1, 4):
        record = records(folder)[f"adaptive-3-refit5__code__c{load}__p1"]
        assert record.window is not None
        assert record.server_steps is not None
        inside = trace.steps_between(*(record.clock_epoch + edge for edge in record.window))
        # A step of the trace ends with its drafts, after its tokens: the window's edges may take in another one.
        assert abs(inside[0].number - record.server_steps[0]) <= 1
        assert abs(inside[-1].number - record.server_steps[1]) <= 1
    sweep = write_sweep(folder / "from-trace", engine={"clock": "emulated", "costs": str(server / "trace.jsonl")})
    planned = avbench(sweep, "plan", "mini.yaml")
    assert planned.returncode == 0, planned.stderr


def test_a_second_run_has_nothing_to_do(folder: Path) -> None:
    done = avbench(folder, "sweep", "mini.yaml")
    assert done.returncode == 0
    assert "Nothing is left to measure" in done.stderr


def test_a_lost_record_is_measured_again_in_the_same_state(folder: Path, tmp_path: Path) -> None:
    """The estimator has seen the loads before it: these are run again, and not recorded."""
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    lost = "adaptive-3-refit5__code__c4__p1"
    shutil.rmtree(copy / "results/mini/cells" / lost)
    done = avbench(copy, "sweep", "mini.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "run again unmeasured" in done.stderr
    assert requests(copy) == requests(folder)
    assert records(copy)[lost].summary == records(folder)[lost].summary


def test_an_interrupt_keeps_what_is_done_and_leaves_no_process(tmp_path: Path) -> None:
    slow = {"seconds": 1000, "min_requests": 0, "warmup_seconds": 0.05, "timeout": 2000}
    endless = [{"prompts": "code", "max_tokens": 10, "chat": False, "samples_per_prompt": 1000}]
    folder = write_sweep(tmp_path / "slow", cell=slow, passes=1, workloads=endless)
    command = [sys.executable, "-m", "avbench", "sweep", "mini.yaml"]
    with subprocess.Popen(
        command, cwd=folder, env=environment(2), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 200
        files = [folder / f"results/mini/servers/{arm}-p1/emulation.jsonl" for arm in ("none", "adaptive-3-refit5")]
        while not all(file.is_file() and '"phase"' in file.read_text() for file in files):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in err
    # An engine runs ahead of the harness: a cell that the harness had not opened yet leaves no record.
    found = records(folder)
    assert found
    assert found.keys() <= {"none__code__c1__p1", "adaptive-3-refit5__code__c1__p1"}
    assert {(record.status, record.clock) for record in found.values()} == {("cancelled", "emulated")}
    assert engines(folder) == []


def test_an_engine_that_cannot_start_is_said_once(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "bad", passes=1, arms=["none"])
    sweep = yaml.safe_load((folder / "mini.yaml").read_text())
    sweep["engine"]["args"]["no-such-flag"] = 3
    (folder / "mini.yaml").write_text(yaml.safe_dump(sweep))
    done = avbench(folder, "sweep", "mini.yaml")
    assert done.returncode in (2, 3)
    assert "no-such-flag" in done.stderr


def test_by_hand(tmp_path: Path) -> None:
    """Without the harness: flags, a table in the environment, a job, and lines beside it."""
    walk = {"prompts": ["p"], "rounds": None, "first_seed": 1, "seed_step": 1, "seed_modulus": 2**52}
    cell = {
        "id": "x",
        "prompts": "set",
        "chat": True,
        "concurrency": 2,
        "request": {"max_tokens": 4, "temperature": 0.6},
        "seconds": 0.01,
        "min_requests": 2,
        "warmup_seconds": 0,
        "warmup": walk,
        "measured": walk,
    }
    messages = [{"role": "user", "content": "def main():"}]
    job = {"schema": 1, "prompts": {"set": {"p": {"messages": messages}}}, "cells": [cell]}
    (tmp_path / "job.json").write_text(json.dumps(job))
    argv = [
        sys.executable,
        "-m",
        "avbench.reference.emulate",
        "--job",
        str(tmp_path / "job.json"),
        "--max-num-seqs",
        "2",
    ]
    argv += ["--model", str(ROOT / "avbench/reference/weights/target"), "--max-model-len", "64"]
    env = environment(1)
    bare = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert bare.returncode == 2
    assert "AVBENCH_STEP_COSTS is not set" in bare.stderr
    subprocess.run(argv, env={**env, "AVBENCH_STEP_COSTS": str(TABLE)}, check=True, timeout=200)
    events = [json.loads(line) for line in (tmp_path / "emulation.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["ready", "phase", "phase", "phase", "cell"]
    assert events[-1]["failure"] is None
    assert len(events[-1]["requests"]) >= 4
