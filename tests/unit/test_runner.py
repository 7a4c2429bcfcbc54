"""The order of effects of the loop is a contract: start, ready, warm, measure, write, stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from avbench.engine.failure import EngineStartError, Failure
from avbench.errors import NotComparableError
from avbench.load.driver import Phase
from avbench.plan import Cell, Plan, ServerGroup, remaining_plan
from avbench.record.measurement import CellFailure, Measurement, RequestTrace
from avbench.runner import Outcome, Ports, run_plan
from avbench.runner.blank import blank_measurement
from avbench.runner.loop import Record, RunningServer
from tests.plans import ADAPTIVE, FIXED, NONE, make_plan


class FakeServer:
    """A server that dies when told to."""

    folder = Path("folder")
    model = "m"
    version = "1"
    url = "http://nowhere"

    def __init__(self) -> None:
        self.dead = False

    def alive(self) -> bool:
        return not self.dead

    def death(self) -> Failure | None:
        return Failure(kind="engine_died", reason="it died", hint=None) if self.dead else None


class Recorder:
    """All effects of the loop, in one list; `faults` says what goes wrong where."""

    def __init__(self, **faults: list[str] | dict[str, str]) -> None:
        self.events: list[str] = []
        self.records: dict[str, Measurement] = {}
        self.troubles: list[str] = []
        self._start = list(faults.get("start", []))
        self._cells = dict(faults.get("cells", {}))

    def run(self, plan: Plan, used_names: Iterable[str] = ()) -> Outcome:
        ports = Ports(launch=self.launch, admit=self.admit, measure=self.measure)
        return run_plan(plan, self, ports, self, used_names=used_names)

    @contextmanager
    def launch(self, group: ServerGroup, name: str) -> Iterator[RunningServer]:
        self.events.append(f"start {name}")
        if self._start and (fault := self._start.pop(0)):
            raise EngineStartError(Failure(kind=fault, reason=f"start: {fault}", hint=None))
        self.events.append("ready")
        try:
            yield FakeServer()
        finally:
            self.events.append(f"stop {name}")

    def admit(self, server: RunningServer) -> None:
        self.events.append("admit")
        if "admit" in self._cells:
            raise NotComparableError("another version")

    def measure(self, server: RunningServer, cell: Cell, on_phase: Callable[[Phase], None]) -> Record:
        fault = self._cells.pop(cell.id, None)
        self.events.append(f"warm {cell.concurrency}")
        if fault == "interrupt":
            raise KeyboardInterrupt
        self.events.append(f"measure {cell.concurrency}")
        failure = CellFailure(kind=fault, reason=f"cell: {fault}") if fault else None
        if fault == "engine_died":
            server.dead = True  # type: ignore[attr-defined]
        blank = blank_measurement(cell, "s", CellFailure(kind="", reason=""))
        return replace(blank, failure=failure, status="failed" if failure else "done"), ()

    def write_cell(self, measurement: Measurement, traces: Iterable[RequestTrace]) -> None:
        self.events.append(f"write {measurement.concurrency}")
        self.records[measurement.cell_id] = measurement

    def status(self) -> dict[str, str]:
        return {cell: record.failure.kind if record.failure else record.status for cell, record in self.records.items()}

    def trouble(self, text: str) -> None:
        self.troubles.append(text)

    def starting(self, group: ServerGroup) -> None: ...
    def ready(self, group: ServerGroup) -> None: ...
    def phase(self, cell: Cell, phase: Phase) -> None: ...
    def replayed(self, cell: Cell) -> None: ...
    def recorded(self, cell: Cell, measurement: Measurement) -> None: ...
    def stopped(self, group: ServerGroup) -> None: ...


CELL_1 = ["warm 1", "measure 1", "write 1"]
CELL_8 = ["warm 8", "measure 8", "write 8"]
UP = ["ready", "admit"]


def test_order_of_effects() -> None:
    recorder = Recorder()
    outcome = recorder.run(make_plan(NONE, FIXED))
    assert recorder.events == [
        *("start none-p1", *UP, *CELL_1, *CELL_8, "stop none-p1"),
        *("start fixed-3-p1", *UP, *CELL_1, *CELL_8, "stop fixed-3-p1"),
    ]
    assert outcome.done == ["none__w__c1__p1", "none__w__c8__p1", "fixed-3__w__c1__p1", "fixed-3__w__c8__p1"]
    assert outcome.failed == []


def test_nothing_to_do_starts_nothing() -> None:
    recorder = Recorder()
    assert recorder.run(make_plan()) == Outcome()
    assert recorder.events == []


def test_failed_cell_is_a_record_and_the_server_goes_on() -> None:
    recorder = Recorder(cells={"none__w__c1__p1": "all_requests_failed"})
    outcome = recorder.run(make_plan(NONE))
    assert recorder.events == ["start none-p1", *UP, *CELL_1, *CELL_8, "stop none-p1"]
    assert recorder.status() == {"none__w__c1__p1": "all_requests_failed", "none__w__c8__p1": "done"}
    assert outcome.failed == ["none__w__c1__p1"]


@pytest.mark.parametrize("fault", ["engine_died", "timeout"])
def test_broken_server_is_started_once_more_for_what_is_left(fault: str) -> None:
    recorder = Recorder(cells={"none__w__c1__p1": fault})
    recorder.run(make_plan(NONE, FIXED))
    assert recorder.events == [
        *("start none-p1", *UP, *CELL_1, "stop none-p1"),
        *("start none-p1.2", *UP, *CELL_8, "stop none-p1.2"),
        *("start fixed-3-p1", *UP, *CELL_1, *CELL_8, "stop fixed-3-p1"),
    ]
    assert recorder.status()["none__w__c1__p1"] == fault
    assert "starting it again" in recorder.troubles[0]


def test_second_death_gives_the_group_up_but_not_the_sweep() -> None:
    recorder = Recorder(cells={"none__w__c1__p1": "engine_died", "none__w__c8__p1": "engine_died"})
    outcome = recorder.run(make_plan(NONE, FIXED, loads=(1, 8, 64)))
    assert [event for event in recorder.events if event.startswith("start")] == [
        "start none-p1",
        "start none-p1.2",
        "start fixed-3-p1",
    ]
    assert recorder.status()["none__w__c64__p1"] == "not_run"
    failure = recorder.records["none__w__c64__p1"].failure
    assert failure is not None
    assert "given up before it: cell: engine_died" in failure.reason
    assert len(outcome.done) == 3
    assert len(outcome.failed) == 3


def test_death_in_the_last_cell_needs_no_restart() -> None:
    recorder = Recorder(cells={"none__w__c8__p1": "engine_died"})
    recorder.run(make_plan(NONE))
    assert recorder.events.count("ready") == 1


def test_restarted_estimator_is_brought_to_its_state_first() -> None:
    recorder = Recorder(cells={"adaptive-7__w__c8__p1": "engine_died"})
    recorder.run(make_plan(ADAPTIVE, loads=(1, 8, 64)))
    assert recorder.events == [
        *("start adaptive-7-p1", *UP, *CELL_1, *CELL_8, "stop adaptive-7-p1"),
        *("start adaptive-7-p1.2", *UP, "warm 1", "measure 1", "warm 8", "measure 8", "warm 64", "measure 64"),
        *("write 64", "stop adaptive-7-p1.2"),
    ]


def test_replayed_cells_leave_no_record() -> None:
    plan = remaining_plan(make_plan(ADAPTIVE, loads=(1, 8, 64)), {"adaptive-7/1/1"})
    recorder = Recorder()
    outcome = recorder.run(plan)
    assert set(recorder.records) == {"adaptive-7__w__c8__p1", "adaptive-7__w__c64__p1"}
    assert len(outcome.done) == 2
    assert recorder.events[3:6] == ["warm 1", "measure 1", "warm 8"]


def test_replay_that_fails_does_not_lead_to_a_wrong_state() -> None:
    plan = remaining_plan(make_plan(ADAPTIVE), {"adaptive-7/1/1"})
    recorder = Recorder(cells={"adaptive-7__w__c1__p1": "all_requests_failed"})
    recorder.run(plan)
    assert recorder.events == [
        *("start adaptive-7-p1", *UP, "warm 1", "measure 1", "stop adaptive-7-p1"),
        *("start adaptive-7-p1.2", *UP, "warm 1", "measure 1", *CELL_8, "stop adaptive-7-p1.2"),
    ]


def test_start_failure_fails_its_cells_and_the_sweep_goes_on() -> None:
    recorder = Recorder(start=["start_timeout", ""])
    outcome = recorder.run(make_plan(FIXED, NONE))
    assert recorder.events[:4] == ["start fixed-3-p1", "write 1", "write 8", "start none-p1"]
    assert recorder.status()["fixed-3__w__c1__p1"] == "start_timeout"
    assert len(outcome.done) == len(outcome.failed) == 2


def test_no_plain_decoding_means_no_engine_at_all() -> None:
    recorder = Recorder(start=["model_missing", "", ""])
    with pytest.raises(EngineStartError, match="model_missing"):
        recorder.run(make_plan(NONE, FIXED, ADAPTIVE))
    assert [event for event in recorder.events if event.startswith("start")] == ["start none-p1"]


def test_a_broken_draft_does_not_keep_the_other_arms_from_running() -> None:
    recorder = Recorder(start=["died", "died", ""])
    outcome = recorder.run(make_plan(FIXED, ADAPTIVE, NONE))
    assert recorder.status()["none__w__c1__p1"] == "done"
    assert len(outcome.failed) == 4


def test_all_arms_that_do_not_start_are_an_error() -> None:
    with pytest.raises(EngineStartError):
        Recorder(start=["died", "died"]).run(make_plan(FIXED, ADAPTIVE))


def test_adaptive_cells_after_a_failed_one_say_so() -> None:
    recorder = Recorder(cells={"adaptive-7__w__c1__p1": "all_requests_failed"})
    recorder.run(make_plan(ADAPTIVE))
    (note,) = recorder.records["adaptive-7__w__c8__p1"].notes
    assert "failed before it on this server" in note


def test_only_group_that_does_not_start_is_an_error() -> None:
    with pytest.raises(EngineStartError):
        Recorder(start=["out_of_memory"]).run(make_plan(NONE))


def test_interrupt_stops_the_server_and_marks_the_cell() -> None:
    recorder = Recorder(cells={"none__w__c8__p1": "interrupt"})
    with pytest.raises(KeyboardInterrupt):
        recorder.run(make_plan(NONE, FIXED))
    assert recorder.events == ["start none-p1", *UP, *CELL_1, "warm 8", "write 8", "stop none-p1"]
    assert recorder.records["none__w__c1__p1"].status == "done"
    assert recorder.records["none__w__c8__p1"].status == "cancelled"


def test_other_version_stops_before_anything_is_measured() -> None:
    recorder = Recorder(cells={"admit": ""})
    with pytest.raises(NotComparableError):
        recorder.run(make_plan(NONE))
    assert recorder.events == ["start none-p1", "ready", "admit", "stop none-p1"]


def test_server_folders_that_records_refer_to_are_not_used_again() -> None:
    recorder = Recorder()
    recorder.run(make_plan(NONE), used_names={"none-p1", "none-p1.2"})
    assert recorder.events[0] == "start none-p1.3"
