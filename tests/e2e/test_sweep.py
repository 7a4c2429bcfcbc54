"""The whole command line on the fake engine: real processes, real HTTP, real files."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterable
from pathlib import Path

import pytest

from avbench.record.measurement import Measurement
from avbench.record.store import ResultStore
from tests.fake_engine.sweeps import engines, environment, journal, run_avbench, write_sweep

ALL = {f"{arm}__short__c{load}__p{number}" for arm in ("none", "fixed-3") for load in (1, 4) for number in (1, 2)}


def records(folder: Path) -> dict[str, Measurement]:
    return {record.cell_id: record for record in ResultStore(folder / "results" / "mini").read_measurements()}


def stamps(folder: Path) -> dict[str, int]:
    """When each record was written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("results/mini/cells/*/measurement.json")}


def port_of(folder: Path, server: str) -> int:
    argv = json.loads((folder / "results/mini/servers" / server / "command.json").read_text())["argv"]
    return int(argv[argv.index("--port") + 1])


def starts(path: Path) -> list[dict[str, object]]:
    return [event for event in journal(path) if event["event"] == "start"]


def test_all_cells_are_recorded(finished: Path) -> None:
    found = records(finished)
    assert set(found) == ALL
    for record in found.values():
        assert record.status == "done"
        assert record.summary is not None
        assert record.summary.steady_throughput is not None
        assert record.summary.failed == 0
        assert record.window is not None
        assert record.window[1] - record.window[0] >= 0.3
    speculating = found["fixed-3__short__c4__p1"].summary
    assert speculating is not None
    assert speculating.acceptance_length == pytest.approx(2.5, abs=0.5)
    assert speculating.verified_per_request_step == 3.0
    assert found["none__short__c1__p1"].summary.acceptance_length is None  # type: ignore[union-attr]


def test_passes_run_forward_and_reversed(finished: Path) -> None:
    order = sorted(records(finished).values(), key=lambda record: record.started_at)
    assert [(record.arm, record.concurrency, record.pass_number) for record in order] == [
        *(("none", 1, 1), ("none", 4, 1), ("fixed-3", 1, 1), ("fixed-3", 4, 1)),
        *(("fixed-3", 4, 2), ("fixed-3", 1, 2), ("none", 4, 2), ("none", 1, 2)),
    ]
    assert records(finished)["fixed-3__short__c1__p2"].loads_before == ("short@4",)


def test_one_server_for_each_arm_and_pass(finished: Path) -> None:
    traces = [Path(str(start["trace"])).name for start in starts(finished / "journal")]
    assert traces == ["none-p1", "fixed-3-p1", "fixed-3-p2", "none-p2"]
    assert {record.server for record in records(finished).values()} == set(traces)


def test_records_are_written_while_the_server_still_runs(finished: Path) -> None:
    """Start, ready, warm, measure, write, stop, as the engine and the disk saw it."""
    events = list(journal(finished / "journal"))
    pid = events[0]["pid"]
    mine = [event for event in events if event["pid"] == pid]
    assert [event["event"] for event in mine[:2]] == ["start", "ready"]
    assert mine[-1]["event"] == "sigterm"
    times = stamps(finished)
    first, second = times["none__short__c1__p1"] / 1e9, times["none__short__c4__p1"] / 1e9
    asked = [event["time"] for event in mine if event["event"] == "request"]
    assert mine[1]["time"] < asked[0] < first < max(asked) < second < mine[-1]["time"]


def test_all_arms_get_the_same_prompts_and_seeds(finished: Path) -> None:
    store = ResultStore(finished / "results" / "mini")

    def sent(cell: str) -> list[tuple[str, int]]:
        requests = [request for request in store.read_requests(cell) if request.phase == "measured"]
        return [(request.prompt_id, request.seed) for request in requests]

    one, other = sent("none__short__c4__p1"), sent("fixed-3__short__c4__p1")
    shared = min(len(one), len(other))
    assert shared > 5
    assert one[:shared] == other[:shared]


def test_warmup_prompts_are_never_measured(finished: Path) -> None:
    requests = ResultStore(finished / "results" / "mini").read_requests("none__short__c4__p1")
    warm, measured = ({r.prompt_id for r in requests if r.phase == phase} for phase in ("warmup", "measured"))
    assert warm
    assert measured
    assert not warm & measured


def test_manifest(finished: Path) -> None:
    manifest = ResultStore(finished / "results" / "mini").read_manifest()
    assert manifest["engine_version"] == "fake-1"
    assert "fake_engine" in manifest["engine_command"]
    assert manifest["spec_text"] == (finished / "mini.yaml").read_text()


def test_what_is_printed(finished: Path) -> None:
    out, err = (finished / "stdout").read_text(), (finished / "stderr").read_text()
    assert "K=3" in out
    assert "--speculative-config" in out
    assert "starting the server" not in out
    assert "8/8" in err
    assert "report.html" in err
    assert "\x1b" not in out + err
    assert (finished / "results/mini/report.html").stat().st_size > 1_000_000


def test_second_run_measures_nothing(finished: Path) -> None:
    before = stamps(finished)
    (finished / "journal").unlink()
    found = run_avbench(finished, "sweep", "mini.yaml", env=environment(journal=str(finished / "journal")))
    assert found.returncode == 0, found.stderr
    assert "Nothing is left to measure." in found.stderr
    assert "--speculative-config" in found.stdout
    assert not (finished / "journal").exists()
    assert stamps(finished) == before


def test_moved_folder_and_another_port_change_no_identity(finished: Path, tmp_path: Path) -> None:
    before = {cell: record.identity for cell, record in records(finished).items()}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("mini.yaml", "prompts.jsonl", "target", "draft"):
        shutil.move(finished / name, elsewhere / name)
    found = run_avbench(elsewhere, "sweep", "mini.yaml", "--only", "arm=none,fixed-3", env=environment())
    assert found.returncode == 0, found.stderr
    assert {cell: record.identity for cell, record in records(elsewhere).items()} == before
    assert port_of(finished, "none-p1") != port_of(elsewhere, "none-p1")


def test_only(tmp_path: Path) -> None:
    write_sweep(tmp_path)
    env = environment(journal=str(tmp_path / "journal"))
    arguments = ("sweep", "mini.yaml", "--only", "arm=fixed-3", "--only", "concurrency=4", "--only", "pass=1")
    found = run_avbench(tmp_path, *arguments, env=env)
    assert found.returncode == 0, found.stderr
    assert set(records(tmp_path)) == {"fixed-3__short__c4__p1"}
    assert len(starts(tmp_path / "journal")) == 1
    found = run_avbench(tmp_path, "sweep", "mini.yaml", "--only", "concurrency=4", env=env)
    assert found.returncode == 0, found.stderr
    assert len(records(tmp_path)) == 4
    assert len(starts(tmp_path / "journal")) == 4


def test_only_with_a_value_that_nothing_has(tmp_path: Path) -> None:
    write_sweep(tmp_path)
    found = run_avbench(tmp_path, "sweep", "mini.yaml", "--only", "arm=fixed-4", env=environment())
    assert found.returncode == 2
    assert found.stderr.startswith("error: `--only arm=fixed-4`")
    assert "\n\nhint: did you mean `fixed-3`?" in found.stderr


@pytest.mark.parametrize("arguments", [("sweep", "mini.yaml", "--dry-run"), ("plan", "mini.yaml")])
def test_dry_run_starts_and_writes_nothing(tmp_path: Path, arguments: Iterable[str]) -> None:
    write_sweep(tmp_path)
    env = environment(journal=str(tmp_path / "journal"))
    found = run_avbench(tmp_path, *arguments, env=env)
    assert found.returncode == 0, found.stderr
    assert "8 cells on 4 server starts" in found.stdout
    assert "--speculative-config" in found.stdout
    assert "results/mini/servers/fixed-3-p1" in found.stdout
    assert not (tmp_path / "journal").exists()
    assert not (tmp_path / "results").exists()


def test_dry_run_shows_what_is_left(finished: Path) -> None:
    shutil.rmtree(finished / "results/mini/cells/none__short__c1__p1")
    found = run_avbench(finished, "sweep", "mini.yaml", "--dry-run", env=environment())
    assert "1 cell on 1 server start" in found.stdout


def test_results_elsewhere(finished: Path) -> None:
    shutil.move(finished / "results/mini", finished / "moved")
    found = run_avbench(finished, "sweep", "mini.yaml", "--results", "moved", env=environment())
    assert found.returncode == 0, found.stderr
    assert "Nothing is left to measure." in found.stderr
    assert not (finished / "results/mini").exists()


def test_changed_settings_are_not_mixed_with_old_records(finished: Path) -> None:
    write_sweep(finished, sampling={"temperature": 0.5})
    found = run_avbench(finished, "sweep", "mini.yaml", env=environment())
    assert found.returncode == 3
    assert "was measured with other settings" in found.stderr
    assert set(records(finished)) == ALL


def test_longer_sweep_adds_to_old_records(finished: Path) -> None:
    before = stamps(finished)
    write_sweep(finished, arms=["none", {"fixed": [3, 5]}])
    found = run_avbench(finished, "sweep", "mini.yaml", "--only", "pass=1", env=environment())
    assert found.returncode == 0, found.stderr
    after = stamps(finished)
    assert set(after) == ALL | {"fixed-5__short__c1__p1", "fixed-5__short__c4__p1"}
    assert {cell: after[cell] for cell in before} == before


def test_another_engine_version_is_refused_before_measuring(finished: Path) -> None:
    shutil.rmtree(finished / "results/mini/cells/none__short__c1__p1")
    found = run_avbench(finished, "sweep", "mini.yaml", env=environment(version="fake-2"))
    assert found.returncode == 3
    assert "engine: was fake-1, is fake-2" in found.stderr
    assert "none__short__c1__p1" not in records(finished)
    assert engines(finished) == []


@pytest.mark.parametrize("command", ["show", "pick"])
def test_reading_commands(finished: Path, command: str) -> None:
    found = run_avbench(finished, command, "results/mini", env=environment())
    assert found.returncode == 0, found.stderr
    assert "K=3" in found.stdout
    assert found.stderr == ""


def test_pick_as_json(finished: Path) -> None:
    found = run_avbench(finished, "pick", "results/mini", "--json", env=environment())
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)


def test_report_to_a_file(finished: Path) -> None:
    found = run_avbench(finished, "report", "results/mini", "-o", "page.html", env=environment())
    assert found.returncode == 0, found.stderr
    assert found.stdout == "page.html\n"
    assert "<html" in (finished / "page.html").read_text()[:2000].lower()


@pytest.mark.parametrize("command", ["show", "pick", "report"])
def test_no_results_there(tmp_path: Path, command: str) -> None:
    found = run_avbench(tmp_path, command, "nowhere", env=environment())
    assert found.returncode == 2
    assert found.stderr.startswith("error: nowhere: no results here")
    assert "\n\nhint: " in found.stderr
    assert found.stdout == ""


def test_results_place_that_is_a_file(tmp_path: Path) -> None:
    write_sweep(tmp_path)
    (tmp_path / "results").write_text("")
    found = run_avbench(tmp_path, "sweep", "mini.yaml", env=environment(journal=str(tmp_path / "journal")))
    assert found.returncode == 2
    assert "cannot write results here" in found.stderr
    assert not (tmp_path / "journal").exists()


def test_missing_model_is_found_before_anything(tmp_path: Path) -> None:
    write_sweep(tmp_path)
    shutil.rmtree(tmp_path / "draft")
    found = run_avbench(tmp_path, "sweep", "mini.yaml", env=environment(journal=str(tmp_path / "journal")))
    assert found.returncode == 2
    assert "draft" in found.stderr
    assert not (tmp_path / "journal").exists()
    assert not (tmp_path / "results").exists()


def test_schema_and_version(tmp_path: Path) -> None:
    found = run_avbench(tmp_path, "schema", env=environment())
    assert "properties" in json.loads(found.stdout)
    found = run_avbench(tmp_path, "--version", env=environment())
    assert found.stdout.startswith("avbench ")
    assert found.returncode == 0


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    env = {**environment(), "PYTHONPROFILEIMPORTTIME": "1"}
    found = run_avbench(tmp_path, "--help", env=env)
    assert found.returncode == 0
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in found.stderr.splitlines()}
    heavy = {"numpy", "pandas", "plotly", "pyarrow", "aiohttp", "uvloop", "pydantic", "yaml", "scipy", "torch", "rich"}
    assert "typer" in imported
    assert not imported & heavy
    assert all(command in found.stdout for command in ("sweep", "plan", "schema", "report", "pick", "show"))


def test_unknown_option(tmp_path: Path) -> None:
    found = run_avbench(tmp_path, "sweep", "x.yaml", "--fast", env=environment())
    assert found.returncode == 2
    assert "--fast" in found.stderr


def test_second_avbench_on_the_same_folder_is_refused(finished: Path) -> None:
    with ResultStore(finished / "results/mini").writing():
        found = run_avbench(finished, "sweep", "mini.yaml", env=environment())
    assert found.returncode == 2
    assert f"another avbench (process {os.getpid()})" in found.stderr


def test_no_server_is_left(finished: Path) -> None:
    for server in ("none-p1", "none-p2", "fixed-3-p1", "fixed-3-p2"):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port_of(finished, server))) != 0


def test_a_lost_manifest_is_written_again(finished: Path) -> None:
    (finished / "results/mini/manifest.json").unlink()
    before = stamps(finished)
    found = run_avbench(finished, "sweep", "mini.yaml", env=environment())
    assert found.returncode == 0, found.stderr
    assert stamps(finished) == before
    assert run_avbench(finished, "show", "results/mini", env=environment()).returncode == 0
