"""The command line on the shipped models: what a newcomer gets, in a fraction of the quickstart's time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from avbench.record.store import ResultStore
from avbench.trace.reader import read_trace

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(700)
CELLS = 3 * 2 * 2  # arms x loads x passes


def avbench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in `folder`."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "avbench", *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=600
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of the shipped pair."""
    folder = tmp_path_factory.mktemp("embedded")
    sweep = {
        "pair": {
            "name": "shipped pair",
            "target": "avbench:target",
            "draft": "avbench:draft",
            "method": "draft_model",
        },
        "arms": ["none", {"fixed": 3}, {"adaptive": {"k": 7, "refit_interval": 5}}],
        "workloads": [{"prompts": "code", "max_tokens": 24, "chat": False, "samples_per_prompt": 2}],
        "load": {"concurrency": [1, 8]},
        "passes": 2,
        "cell": {"seconds": 1, "warmup_seconds": 0.3},
    }
    (folder / "mini.yaml").write_text(yaml.safe_dump(sweep))
    done = avbench(folder, "sweep", "mini.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_cell_is_measured_once(folder: Path) -> None:
    records = ResultStore(folder / "results/mini").read_measurements()
    assert len(records) == len({r.cell_id for r in records}) == CELLS
    assert {r.status for r in records} == {"done"}
    for record in records:
        assert record.summary is not None
        assert record.summary.steady_throughput is not None
        assert record.summary.steady_throughput > 0
        assert record.server_steps is not None


def test_counters_tell_the_arms_apart(folder: Path) -> None:
    trimmed = 0
    for record in ResultStore(folder / "results/mini").read_measurements():
        summary, counters = record.summary, record.counters
        assert summary is not None
        assert counters is not None
        if record.arm == "none":
            assert counters.drafts == 0
            continue
        assert counters.accepted == sum(counters.accepted_per_position)
        assert counters.verified is not None
        assert 0 < counters.accepted <= counters.verified <= counters.draft_tokens
        if record.arm == "fixed-3":
            assert counters.verified == counters.draft_tokens
        else:
            trimmed += counters.draft_tokens - counters.verified
            assert record.estimator_state in ("fresh", "carried")
    assert trimmed > 0  # over all adaptive cells: a second at one request may well find every draft worth verifying


def test_the_estimator_leaves_a_trace(folder: Path) -> None:
    for path in (folder / "results/mini/servers").glob("adaptive*/trace.jsonl"):
        trace = read_trace(path)
        assert trace.start is not None
        assert trace.start.k == 7
        assert trace.start.refit_interval == 5
        assert len(trace.refits) > 5
        assert trace.costs is not None
        assert trace.refits[-1].log_loss is not None


def test_finished_sweep_measures_nothing_more(folder: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("measurement.json")}
    began = time.monotonic()
    done = avbench(folder, "sweep", "mini.yaml")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 20  # under 3 s on a quiet machine; this one may be busy
    assert before == {p: p.stat().st_mtime_ns for p in folder.rglob("measurement.json")}
    assert "starting the server" not in done.stdout + done.stderr


def test_pick_gives_a_config_that_the_engine_takes(folder: Path) -> None:
    done = avbench(folder, "pick", "results/mini", "--json")
    assert done.returncode == 0, done.stderr
    picks = json.loads(done.stdout)
    assert picks
    assert "speculative_config" in json.dumps(picks)


def test_report_is_one_file_without_network(folder: Path) -> None:
    page = (folder / "results/mini/report.html").read_text(encoding="utf-8")
    assert "Plotly" in page
    assert "<script src=" not in page
    assert "AV 7" in page


def test_no_engine_is_left_behind(folder: Path) -> None:
    mine = [p for p in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(p.info["cmdline"] or [])]
    assert not mine


def test_missing_model_is_found_before_anything_starts(tmp_path: Path) -> None:
    sweep = (ROOT / "sweeps/quickstart.yaml").read_text().replace("avbench:target", "no/such/model")
    (tmp_path / "x.yaml").write_text(sweep)
    done = avbench(tmp_path, "sweep", "x.yaml")
    assert done.returncode == 2
    assert "no/such/model" in done.stderr
    assert not (tmp_path / "results").exists()
