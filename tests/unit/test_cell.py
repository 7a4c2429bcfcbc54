"""What becomes of a cell's load result: figures, a failure with its reason, or a note."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from avbench.engine.failure import Failure
from avbench.load.driver import LoadResult
from avbench.plan import Plan
from avbench.prompts import Prompt, PromptSet
from avbench.record.measurement import TOO_LONG, CellFailure, Measurement
from avbench.runner import cell as subject
from tests.plans import ADAPTIVE, make_plan
from tests.traces import make_trace

GOOD = make_trace(1.0, (1.1, 1), (1.5, 3))
METRICS = "vllm:generation_tokens_total %d\nvllm:spec_decode_num_drafts_total %d\n"


class Server:
    url, model, version = "http://nowhere", "m", "1"

    def __init__(self, folder: Path, death: str | None = None) -> None:
        self.folder = folder
        self._death = death

    def alive(self) -> bool:
        return self._death is None

    def death(self) -> Failure | None:
        return Failure(kind="killed", reason=self._death, hint=None) if self._death else None


def make_result(**changes: Any) -> LoadResult:
    values: dict[str, Any] = {
        "traces": (make_trace(0.0, (0.5, 4), phase="warmup"), GOOD, GOOD),
        "window": (1.0, 2.0),
        "clock_epoch": 1_700_000_000.25,
        "exhausted": False,
        "exact_tokens": True,
        "metrics_before": METRICS % (10, 1),
        "metrics_after": METRICS % (30, 8),
        "failure": None,
    }
    return LoadResult(**{**values, **changes})


def measure(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, load: int = 1, death: str | None = None, **changes: Any
) -> Measurement:
    """The record of an adaptive cell whose load gave this result."""
    prompts = PromptSet(name="x", prompts=tuple(Prompt(id=str(number), text="t") for number in range(9)))
    plan = make_plan(ADAPTIVE, loads=(load,))
    plan = Plan(spec=plan.spec, groups=plan.groups, prompt_sets={"w": prompts})
    monkeypatch.setattr(subject, "run_load", lambda job, **_: make_result(**changes))
    return subject.measure_cell(plan, Server(folder, death), plan.cells[0], lambda _: None)[0]


def test_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = measure(tmp_path, monkeypatch)
    assert (record.status, record.failure, record.notes) == ("done", None, ())
    assert record.started_at == "2023-11-14T22:13:20.250+00:00"
    assert record.warmup_requests == 1
    assert record.server == tmp_path.name
    assert record.counters is not None
    assert (record.counters.drafts, record.counters.generation_tokens) == (7, 20)
    assert record.summary is not None
    assert record.summary.requests == 2
    assert (record.server_steps, record.estimator_state) == (None, "fresh")


def test_steps_of_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zero = 1_700_000_000.25
    steps = {"event": "steps", "time": 0.0, "started": zero + 0.9, "step": 40, "seconds": [0.3, 0.3, 0.3, 0.3]}
    columns = {"requests": [1] * 4, "scheduled": [3] * 4, "admitted": [2] * 4}
    (tmp_path / "trace.jsonl").write_text(str({**steps, **columns}).replace("'", '"') + "\n")
    assert measure(tmp_path, monkeypatch).server_steps == (40, 42)


@pytest.mark.parametrize(
    ("traces", "kind", "words"),
    [
        ((make_trace(1.0, error="HTTP 500: no"),) * 3, "all_requests_failed", "all 3 measured requests failed: HTTP"),
        ((make_trace(1.0, error=TOO_LONG + "15 > 9"),) * 2, "prompts_too_long", "too_long: 15 > 9 (2x)"),
    ],
)
def test_nothing_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, traces: tuple[Any, ...], kind: str, words: str
) -> None:
    record = measure(tmp_path, monkeypatch, traces=traces)
    assert record.status == "failed"
    assert record.summary is None
    assert record.failure is not None
    assert record.failure.kind == kind
    assert words in record.failure.reason


def test_death_explains_failed_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = CellFailure(kind="requests_failed", reason="20 requests in a row failed")
    record = measure(tmp_path, monkeypatch, death="ended by SIGKILL", failure=failure, window=None)
    assert record.failure == CellFailure(kind="engine_died", reason="ended by SIGKILL")
    record = measure(tmp_path, monkeypatch, failure=failure, window=None)
    assert record.failure == failure


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exhausted": True}, "prompts ran out after 1.0 s"),
        ({"exact_tokens": False}, "no token counts per chunk"),
        ({"metrics_after": None}, "no /metrics"),
        ({"metrics_after": METRICS % (5, 8)}, "fell from 10 to 5"),
        ({"metrics_after": "<html>"}, "cannot be used"),
        ({"load": 3}, "only 2 requests were dispatched inside the window, at concurrency 3"),
        ({"traces": (GOOD, make_trace(1.5, error="cut"))}, "1 of 2 requests failed: cut (1x)"),
        ({"traces": (GOOD, make_trace(1.5, error=TOO_LONG + "x"))}, "1 of 2 prompts exceed the model's context"),
    ],
)
def test_doubts_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str) -> None:
    record = measure(tmp_path, monkeypatch, **changes)
    assert record.status == "done"
    (note,) = record.notes
    assert words in note
