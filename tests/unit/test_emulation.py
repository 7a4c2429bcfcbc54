"""Emulated engines in the loop: a process that runs ahead, several at a time, and what goes wrong with them."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from avbench.engine.command import EngineCommand
from avbench.engine.failure import EngineStartError, Failure
from avbench.errors import NotComparableError, UsageError
from avbench.load.driver import Phase
from avbench.load.request import encode_body
from avbench.plan import Cell, Plan, ServerGroup
from avbench.prompts import Message, Prompt, PromptSet, measured_sequence, warmup_sequence
from avbench.record.measurement import CellFailure, Measurement, RequestTrace
from avbench.reference.emulate_job import read_job
from avbench.runner import Ports
from avbench.runner.blank import blank_measurement
from avbench.runner.emulated import PROCESSES, emulation_processes, measure_emulated
from avbench.runner.emulation import Emulation
from avbench.runner.emulation_job import emulation_job
from avbench.runner.loop import Record, RunningServer
from avbench.runner.parallel import run_parallel
from avbench.spec.sweep import EngineSpec
from tests.plans import ADAPTIVE, FIXED, NONE, WORKLOAD, make_plan

# --- one process ---------------------------------------------------------------------------------------------------

WRITER = """
import json, os, pathlib, sys, time
job = pathlib.Path(sys.argv[sys.argv.index("--job") + 1])
out = open(job.parent / "emulation.jsonl", "w")
def say(**event):
    out.write(json.dumps(event) + "\\n"); out.flush()
"""
READY = 'say(event="ready", version="1.2")\n'
ROW: dict[str, Any] = {
    "index": 0,
    "prompt_id": "p",
    "sample": 0,
    "seed": 3,
    "phase": "measured",
    "sent": 0.5,
    "chunk_times": [0.6, 0.7],
    "chunk_tokens": [1, 3],
    "prompt_tokens": 5,
    "output_tokens": 4,
    "finish_reason": "length",
    "error": None,
    "status": 200,
}
COUNTERS = {
    "drafts": 1,
    "draft_tokens": 3,
    "accepted": 2,
    "accepted_per_position": [1, 1, 0],
    "verified": 3,
    "generation_tokens": 4,
    "preemptions": 0,
}
RESULT: dict[str, Any] = {
    "event": "cell",
    "origin": 7.5,
    "window": [0.5, 1.5],
    "exhausted": False,
    "failure": None,
    "steps": [4, 9],
    "counters": COUNTERS,
    "requests": [ROW],
}


def cell_line(cell: str, **changes: Any) -> str:
    return f"say(**{ {**RESULT, 'cell': cell, **changes}!r})\n"


def emulation(folder: Path, script: str, *cells: str, timeout: float = 20.0) -> Emulation:
    command = EngineCommand(argv=(sys.executable, "-c", WRITER + script), env={})
    job = {"schema": 1, "prompts": {}, "cells": [{"id": cell} for cell in cells]}
    return Emulation(command, job, folder, start_timeout=timeout, stopped=threading.Event())


def test_results_are_read_in_their_order_and_the_files_go(tmp_path: Path) -> None:
    phases: list[str] = []
    script = READY + 'say(event="phase", cell="a", phase="warmup")\n' + cell_line("a") + cell_line("b")
    with emulation(tmp_path / "s", script, "a", "b") as server:
        assert server.version == "1.2"
        assert json.loads((tmp_path / "s/command.json").read_text())["argv"][-2] == "--job"
        for name in "ab":
            assert server.death() is None  # it may have ended, but there is more to read
            event = server.result(name, 20.0, phases.append)
            assert event is not None
            assert event["cell"] == name
        assert server.death() is None
    assert phases == ["warmup"]
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["command.json", "server.log"]


def test_what_an_interrupted_run_left_is_removed_first(tmp_path: Path) -> None:
    (tmp_path / "s/labels").mkdir(parents=True)
    (tmp_path / "s/trace.jsonl").write_text("old")
    with emulation(tmp_path / "s", READY, "a"):
        assert not (tmp_path / "s/trace.jsonl").exists()
        assert not (tmp_path / "s/labels").exists()


def test_half_a_line_is_not_read(tmp_path: Path) -> None:
    line = json.dumps({**RESULT, "cell": "a"})
    script = READY + f"text = {line!r}\nout.write(text[:40]); out.flush(); time.sleep(0.4)\n"
    script += 'out.write(text[40:] + "\\n"); out.flush()\n'
    with emulation(tmp_path / "s", script, "a") as server:
        event = server.result("a", 20.0, lambda _: None)
        assert event is not None
        assert event["requests"] == [ROW]


def test_a_death_is_found_after_what_it_still_wrote(tmp_path: Path) -> None:
    script = READY + cell_line("a") + 'print("out of luck"); sys.stdout.flush(); os._exit(3)\n'
    with emulation(tmp_path / "s", script, "a", "b") as server:
        assert server.result("a", 20.0, lambda _: None) is not None
        assert server.result("b", 20.0, lambda _: None) is None
        death = server.death()
        assert death is not None
        assert death.kind == "engine_died"
        assert "exit code 3" in death.reason
        assert "out of luck" in death.reason
    assert (tmp_path / "s/job.json").exists()  # to look into what happened


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    script = 'print("error: no such table"); sys.exit(2)\n'
    with pytest.raises(EngineStartError) as caught, emulation(tmp_path / "s", script, "a"):
        pass
    assert caught.value.failure.kind == "bad_arguments"
    assert "no such table" in caught.value.message


def test_a_start_that_hangs_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError) as caught, emulation(tmp_path / "s", "time.sleep(60)\n", "a", timeout=0.5):
        pass
    assert caught.value.failure.kind == "start_timeout"


def test_waiting_ends_when_all_are_told_to_stop(tmp_path: Path) -> None:
    server = emulation(tmp_path / "s", READY + "time.sleep(60)\n", "a")
    with server:
        threading.Timer(0.3, server._stopped.set).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            server.result("a", 60.0, lambda _: None)
        assert time.monotonic() - began < 10
        assert server._process is not None
        pid = server._process.pid
    assert pid is not None
    assert not Path(f"/proc/{pid}").exists()


# --- from its lines to records -------------------------------------------------------------------------------------


def emulated_plan(*arms: Any, loads: tuple[int, ...] = (1, 8), passes: int = 1) -> Plan:
    plan = make_plan(*arms, loads=loads, passes=passes)
    prompts = tuple(Prompt(id=f"p{i}", text=f"text {i}") for i in range(12))
    spec = replace(plan.spec, engine=EngineSpec(clock="emulated", costs="x.json"))
    return replace(plan, spec=spec, prompt_sets={WORKLOAD.name: PromptSet(name="set", prompts=prompts)})


def measured(tmp_path: Path, **changes: Any) -> Record:
    plan = emulated_plan(FIXED)
    cell = plan.cells[0]
    with emulation(tmp_path / "fixed-3-p1", READY + cell_line(cell.id, **changes), cell.id) as server:
        return measure_emulated(plan, server, cell, lambda _: None)


def test_a_cell_becomes_a_record_like_a_real_one(tmp_path: Path) -> None:
    record, traces = measured(tmp_path)
    assert (record.status, record.clock_epoch, record.window, record.server_steps) == ("done", 7.5, (0.5, 1.5), (4, 9))
    assert record.server == "fixed-3-p1"
    assert record.summary is not None
    assert record.summary.steady_throughput == 4.0
    assert record.summary.acceptance_length == 3.0
    (trace,) = traces
    assert trace == RequestTrace(**{**ROW, "chunk_times": (0.6, 0.7), "chunk_tokens": (1, 3)})


def test_refusals_read_like_those_of_a_server(tmp_path: Path) -> None:
    long = "This model's maximum context length is 9 tokens."
    rows = [{**ROW, "status": 400, "error": text, "output_tokens": None} for text in (long, "bad prompt")]
    _, traces = measured(tmp_path, requests=[ROW, *rows])
    assert [trace.error for trace in traces] == [None, f"too_long: {long}", "HTTP 400: bad prompt"]


def test_the_emulations_own_failure_is_the_cells(tmp_path: Path) -> None:
    failure = {"kind": "all_requests_failed", "reason": "20 requests in a row failed"}
    nothing = {"window": None, "steps": None, "counters": None, "requests": []}
    record, _ = measured(tmp_path, failure=failure, **nothing)
    assert record.status == "failed"
    assert record.failure == CellFailure(**failure)


def test_a_cell_that_takes_too_long_fails(tmp_path: Path) -> None:
    plan = emulated_plan(FIXED)
    plan = replace(plan, spec=replace(plan.spec, cell=replace(plan.spec.cell, timeout=0.3)))
    with emulation(tmp_path / "s", READY + "time.sleep(60)\n", plan.cells[0].id) as server:
        record, _ = measure_emulated(plan, server, plan.cells[0], lambda _: None)
    assert record.failure is not None
    assert record.failure.kind == "timeout"
    assert "limit of 0.3 s" in record.failure.reason


def test_the_job_sends_what_the_load_driver_would(tmp_path: Path) -> None:
    plan = emulated_plan(FIXED, passes=2)
    group, prompts = plan.groups[1], plan.prompt_sets["w"]
    (tmp_path / "job.json").write_text(json.dumps(emulation_job(plan, group)))
    job = read_job(tmp_path / "job.json")
    assert [cell.id for cell in job.cells] == [cell.id for cell in group.cells]
    cell = job.cells[1]
    assert (cell.concurrency, cell.seconds, cell.warmup_seconds, cell.min_requests) == (8, 10.0, 2.0, 0)
    expected = measured_sequence(prompts, samples=1, seed=0, pass_number=2)
    assert [(d.prompt_id, d.sample, d.seed) for d in cell.measured.draws()] == [
        (draw.prompt.id, draw.sample, draw.seed) for draw in expected
    ]
    warm = islice(warmup_sequence(prompts, seed=0, pass_number=2), 30)
    assert [(d.prompt_id, d.sample, d.seed) for d in islice(cell.warmup.draws(), 30)] == [
        (draw.prompt.id, draw.sample, draw.seed) for draw in warm
    ]


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("ignore_eos", [True, False])
def test_requests_have_the_body_that_goes_over_http(chat: bool, ignore_eos: bool) -> None:
    workload = replace(WORKLOAD, chat=chat, ignore_eos=ignore_eos)
    prompt = Prompt(id="p0", messages=(Message(role="user", content="hello"),))
    plan = emulated_plan(FIXED)
    plan = replace(plan, prompt_sets={"w": PromptSet(name="set", prompts=(prompt,))})
    group = replace(plan.groups[0], cells=tuple(replace(cell, workload=workload) for cell in plan.groups[0].cells))
    job = emulation_job(plan, group)
    draw = next(warmup_sequence(plan.prompt_sets["w"], seed=0))
    body = json.loads(encode_body(draw, workload, "m"))
    mine = {**job["cells"][0]["request"], **job["prompts"]["w"]["p0"], "seed": draw.seed}
    assert {**body, **mine} == body
    assert set(body) - set(mine) == {"model", "stream", "stream_options"}


# --- several at a time ---------------------------------------------------------------------------------------------


class FakeServer:
    """Never dies."""

    folder = Path("folder")
    model = url = ""
    version = "1"

    def alive(self) -> bool:
        return True

    def death(self) -> Failure | None:
        return None


class Recorder:
    """Effects of the loop; `start` names arms that cannot start, `busy` counts cells that run at one time."""

    def __init__(self, *, start: Iterable[str] = (), seconds: float = 0.02, interrupt: bool = False) -> None:
        self.records: dict[str, Measurement] = {}
        self.troubles: list[str] = []
        self.stopped_event = threading.Event()
        self.most = self._busy = 0
        self._start, self._seconds, self._interrupt = set(start), seconds, interrupt
        self._admit: Callable[[], None] = lambda: None

    def run(self, plan: Plan, processes: int) -> Any:
        ports = Ports(launch=self.launch, admit=self.admit, measure=self.measure)
        return run_parallel(plan, self, ports, self, processes=processes, stopped=self.stopped_event)

    @contextmanager
    def launch(self, group: ServerGroup, name: str) -> Iterator[RunningServer]:
        if group.arm.id in self._start:
            raise EngineStartError(Failure(kind="bad_arguments", reason=f"{name} cannot start", hint=None))
        yield FakeServer()

    def admit(self, server: RunningServer) -> None:
        self._admit()

    def measure(self, server: RunningServer, cell: Cell, on_phase: Callable[[Phase], None]) -> Record:
        self._busy += 1
        self.most = max(self.most, self._busy)
        deadline = time.monotonic() + self._seconds
        while time.monotonic() < deadline:
            if self.stopped_event.is_set():
                raise KeyboardInterrupt
            time.sleep(0.005)
        self._busy -= 1
        return replace(blank_measurement(cell, "s", CellFailure(kind="", reason="")), failure=None, status="done"), ()

    def write_cell(self, measurement: Measurement, traces: Iterable[RequestTrace]) -> None:
        self.records[measurement.cell_id] = measurement

    def trouble(self, text: str) -> None:
        self.troubles.append(text)

    def starting(self, group: ServerGroup) -> None: ...
    def ready(self, group: ServerGroup) -> None: ...
    def phase(self, cell: Cell, phase: Phase) -> None: ...
    def replayed(self, cell: Cell) -> None: ...
    def recorded(self, cell: Cell, measurement: Measurement) -> None: ...
    def stopped(self, group: ServerGroup) -> None: ...


def test_groups_run_side_by_side_and_everything_is_recorded() -> None:
    recorder = Recorder(seconds=0.2)
    plan = emulated_plan(NONE, FIXED, ADAPTIVE, passes=2)
    outcome = recorder.run(plan, processes=3)
    assert recorder.most == 3
    assert set(recorder.records) == {cell.id for cell in plan.cells} == set(outcome.done)
    assert {record.clock for record in recorder.records.values()} == {"emulated"}


def test_one_process_runs_one_group_at_a_time() -> None:
    recorder = Recorder()
    recorder.run(emulated_plan(NONE, FIXED), processes=1)
    assert recorder.most == 1


def test_an_arm_that_cannot_start_fails_its_cells_only() -> None:
    recorder = Recorder(start=["fixed-3"])
    outcome = recorder.run(emulated_plan(NONE, FIXED), processes=2)
    assert sorted(outcome.failed) == ["fixed-3__w__c1__p1", "fixed-3__w__c8__p1"]
    assert sorted(outcome.done) == ["none__w__c1__p1", "none__w__c8__p1"]
    assert {recorder.records[cell].clock for cell in outcome.failed} == {"emulated"}


def test_nothing_starts() -> None:
    with pytest.raises(EngineStartError, match="cannot start"):
        Recorder(start=["none", "fixed-3"]).run(emulated_plan(NONE, FIXED, passes=2), processes=2)


def test_an_engine_that_may_not_join_ends_everything() -> None:
    recorder = Recorder(seconds=30.0)

    def refuse() -> None:
        raise NotComparableError("another version")

    recorder._admit = refuse
    with pytest.raises(NotComparableError):
        recorder.run(emulated_plan(NONE, FIXED, passes=3), processes=2)
    assert recorder.records == {}


def test_an_interrupt_cancels_what_runs_and_starts_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(seconds=30.0)

    def interrupted(*_: Any, **__: Any) -> Any:
        time.sleep(0.3)  # the cells have begun
        raise KeyboardInterrupt

    monkeypatch.setattr("avbench.runner.parallel.wait", interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        recorder.run(emulated_plan(NONE, FIXED, ADAPTIVE), processes=2)
    assert time.monotonic() - began < 10
    assert {cell: (record.status, record.clock) for cell, record in recorder.records.items()} == {
        "none__w__c1__p1": ("cancelled", "emulated"),
        "fixed-3__w__c1__p1": ("cancelled", "emulated"),
    }


def test_processes_are_the_cores_but_never_more_than_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(4))
    monkeypatch.delenv(PROCESSES, raising=False)
    assert [emulation_processes(groups) for groups in (1, 3, 9)] == [1, 3, 4]
    monkeypatch.setenv(PROCESSES, "2")
    assert emulation_processes(9) == 2
    monkeypatch.setenv(PROCESSES, "none")
    with pytest.raises(UsageError, match="AVBENCH_EMULATION_PROCESSES is 'none'"):
        emulation_processes(9)
