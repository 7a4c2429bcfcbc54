from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from avbench.errors import UsageError
from avbench.trace.reader import Trace, read_trace

START = {"event": "start", "time": 100.0, "version": "1", "k": 3, "refit_interval": 25, "source": "estimator"}
COSTS = {"event": "costs", "time": 100.1, "draft": [[1, 0.5], [8, 0.9]], "verify": [[1, 2.0]], "context": 512}
FIRST = {"event": "steps", "time": 101.0, "started": 100.5, "step": 0, "seconds": [0.1, 0.2], "requests": [1, 2]}
FIRST |= {"scheduled": [3, 6], "admitted": [3, 4]}
SECOND = {"event": "steps", "time": 102.0, "step": 2, "seconds": [0.3, 0.1], "requests": [2, 2]}
SECOND |= {"scheduled": [6, 6], "admitted": [2, 1]}
REFIT = {"event": "refit", "time": 101.5, "step": 3, "refit": 1, "slope": 0.4, "intercepts": [0.1, -0.2, 0.0]}
REFIT |= {"counts": [5, 3, 0], "log_loss": None}


def read(folder: Path, *events: dict[str, Any], tail: str = "") -> Trace:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + tail)
    return read_trace(path)


def test_all_events(tmp_path: Path) -> None:
    trace = read(tmp_path, START, COSTS, FIRST, REFIT, SECOND)
    assert trace.start is not None
    assert (trace.start.k, trace.start.refit_interval, trace.start.source) == (3, 25, "estimator")
    assert trace.costs is not None
    assert trace.costs.draft == ((1, 0.5), (8, 0.9))
    (refit,) = trace.refits
    assert (refit.slope, refit.intercepts, refit.counts, refit.log_loss) == (0.4, (0.1, -0.2, 0.0), (5, 3, 0), None)
    assert [step.number for step in trace.steps] == [0, 1, 2, 3]
    assert [step.admitted for step in trace.steps] == [3, 4, 2, 1]


def test_times_of_steps(tmp_path: Path) -> None:
    """From `started` where the line has it, else back from the time it was written."""
    trace = read(tmp_path, FIRST, SECOND)
    assert [step.time for step in trace.steps] == pytest.approx([100.6, 100.8, 101.9, 102.0])


def test_windows(tmp_path: Path) -> None:
    trace = read(tmp_path, FIRST, REFIT, SECOND)
    assert [step.number for step in trace.steps_between(100.6, 101.95)] == [1, 2]
    assert trace.steps_between(103, 104) == ()
    assert len(trace.refits_between(101, 102)) == 1
    assert trace.refits_between(101.5, 102) == ()
    assert trace.covers(101.9)
    assert not trace.covers(102.5)


def test_times_never_fall(tmp_path: Path) -> None:
    overlapping = {**SECOND, "started": 100.7}
    times = [step.time for step in read(tmp_path, FIRST, overlapping).steps]
    assert times == sorted(times)


def test_torn_last_line_is_left_out(tmp_path: Path) -> None:
    trace = read(tmp_path, FIRST, tail=json.dumps(SECOND)[:40])
    assert len(trace.steps) == 2


def test_bad_line_in_the_middle_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"trace\.jsonl:2: not a trace event"):
        read(tmp_path, FIRST, tail="{oops\n" + json.dumps(SECOND) + "\n")


@pytest.mark.parametrize("change", [{"requests": [1]}, {"seconds": "x"}, {"step": None}])
def test_event_of_the_wrong_form_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"trace\.jsonl:1: not a trace event"):
        read(tmp_path, {**FIRST, **change})


def test_unknown_events_and_an_empty_file(tmp_path: Path) -> None:
    trace = read(tmp_path, {"event": "new", "time": 1.0})
    assert (trace.start, trace.costs, trace.refits, trace.steps) == (None, None, (), ())
