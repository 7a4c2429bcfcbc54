from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psutil
import pytest

from avbench.engine.command import EngineCommand
from avbench.engine.probe import ask
from avbench.engine.server import Server
from avbench.load.client import RawAnswer
from avbench.load.counters import count_between, parse_metrics
from avbench.load.driver import LoadJob, LoadResult, Phase, run_load
from avbench.prompts import Draw, Prompt
from avbench.record.measurement import RequestTrace
from avbench.spec.sweep import CellProtocol, Sampling, Workload

FAKE = str(Path(__file__).parents[2] / "fake_engine" / "__main__.py")
WORKLOAD = Workload(name="w", prompts="x", max_tokens=20, sampling=Sampling(), chat=False)
SPECULATION = '{"num_speculative_tokens": 3}'


@contextmanager
def fake_engine(folder: Path, **fake: str) -> Iterator[Server]:
    def command(port: int, name: str) -> EngineCommand:
        flags = ("--model", "m", "--served-model-name", name, "--dtype", "f", "--port", str(port), "--seed", "0")
        sizes = ("--max-num-seqs", "9", "--max-model-len", "99", "--speculative-config", SPECULATION)
        env = {f"FAKE_{name.upper()}": value for name, value in fake.items()}
        return EngineCommand(argv=(sys.executable, FAKE, *flags, *sizes), env=env)

    with Server(command, folder, start_timeout=60) as server:
        yield server


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with fake_engine(tmp_path_factory.mktemp("engine")) as server:
        yield server


def draws(name: str, size: int | None, text: Callable[[int], str] = str) -> Iterator[Draw]:
    numbers = count() if size is None else range(size)
    return (Draw(Prompt(id=f"{name}{number}", text=text(number)), 0, number) for number in numbers)


def make_job(server: Server, concurrency: int, *, measured: Iterator[Draw] | None = None, **protocol: float) -> LoadJob:
    limits = {"seconds": 0.6, "warmup_seconds": 0.2, "timeout": 60.0, **protocol}
    return LoadJob(
        url=server.url,
        model=server.model,
        workload=WORKLOAD,
        concurrency=concurrency,
        protocol=CellProtocol(**limits),  # type: ignore[arg-type]
        warmup=draws("w", None),
        measured=measured or draws("m", None),
    )


def phase(result: LoadResult, name: str) -> list[RequestTrace]:
    return [trace for trace in result.traces if trace.phase == name]


@pytest.fixture(scope="module")
def loop(engine: Server) -> tuple[LoadResult, list[Phase]]:
    phases: list[Phase] = []
    return run_load(make_job(engine, 4), on_phase=phases.append), phases


def test_phases_come_in_order(loop: tuple[LoadResult, list[Phase]]) -> None:
    assert loop[1] == ["warmup", "measure", "drain"]


def test_all_is_well(loop: tuple[LoadResult, list[Phase]]) -> None:
    result = loop[0]
    assert result.failure is None
    assert all(trace.ok for trace in result.traces)
    assert result.exact_tokens
    assert not result.exhausted
    assert abs(result.clock_epoch - time.time()) < 120


def test_window_opens_when_the_first_have_lost_step(loop: tuple[LoadResult, list[Phase]]) -> None:
    result = loop[0]
    assert result.window is not None
    opened = result.window[0]
    before = [t for t in phase(result, "warmup") if t.chunk_times[-1] <= opened]
    assert len(before) >= 4
    first = phase(result, "warmup")[:4]
    mean = sum(trace.chunk_times[-1] - trace.sent for trace in before) / len(before)
    assert opened >= max(trace.chunk_times[0] for trace in first) + 0.9 * mean
    assert opened >= 0.2


def test_window_ends_with_the_last_dispatch(loop: tuple[LoadResult, list[Phase]]) -> None:
    result = loop[0]
    assert result.window is not None
    opened, closed = result.window
    sent = [trace.sent for trace in phase(result, "measured")]
    assert closed == max(sent)
    assert opened <= min(sent)
    assert closed - opened >= 0.6
    assert sorted(sent)[-2] - opened < 0.6


def test_batch_stays_full_through_the_switch(loop: tuple[LoadResult, list[Phase]]) -> None:
    """As many requests are under way as the load says, but for the moments between one and its successor."""
    result = loop[0]
    assert result.window is not None
    opened, closed = result.window
    moments = [opened + (closed - opened) * part / 50 for part in range(1, 50)]
    under_way = [sum(trace.sent <= moment <= trace.chunk_times[-1] for trace in result.traces) for moment in moments]
    assert max(under_way) == 4
    assert sum(under_way) / len(under_way) > 3
    assert any(trace.sent < opened < trace.chunk_times[-1] for trace in phase(result, "warmup"))


def test_measured_prompts_are_sent_in_order_and_once(loop: tuple[LoadResult, list[Phase]]) -> None:
    measured = phase(loop[0], "measured")
    assert [trace.prompt_id for trace in measured] == [f"m{number}" for number in range(len(measured))]
    assert [trace.index for trace in measured] == list(range(len(measured)))


def test_counters_cover_the_window(loop: tuple[LoadResult, list[Phase]]) -> None:
    result = loop[0]
    assert result.window is not None
    assert result.metrics_before is not None
    assert result.metrics_after is not None
    counters = count_between(parse_metrics(result.metrics_before), parse_metrics(result.metrics_after))
    seen = sum(
        tokens
        for trace in result.traces
        for moment, tokens in zip(trace.chunk_times, trace.chunk_tokens, strict=True)
        if result.window[0] < moment <= result.window[1]
    )
    assert counters.generation_tokens == pytest.approx(seen, rel=0.15)


def test_load_is_kept_up_until_the_measured_requests_end(tmp_path: Path) -> None:
    notes = tmp_path / "journal"
    with fake_engine(tmp_path, journal=str(notes)) as server:
        result = run_load(make_job(server, 4))
        deadline = time.monotonic() + 10
        while 'running{engine="0",' not in (text := ask(server.port, "/metrics").text) or "} 0\n" not in text:
            assert time.monotonic() < deadline, "requests that were cut off still run"
    assert result.window is not None
    sent = notes.read_text().count('"event": "request"')
    assert sent > len(result.traces)  # the filling ones leave no record
    assert max(trace.sent for trace in result.traces) == result.window[1]


def test_minimum_of_requests(engine: Server) -> None:
    result = run_load(make_job(engine, 2, seconds=0.01, min_requests=17))
    assert len(phase(result, "measured")) == 17
    assert not result.exhausted


def test_measured_prompts_run_out(engine: Server) -> None:
    result = run_load(make_job(engine, 2, measured=draws("m", 5), seconds=30))
    assert len(phase(result, "measured")) == 5
    assert result.exhausted
    assert result.window is not None
    assert result.window[1] == max(trace.sent for trace in result.traces)
    assert result.failure is None


def test_no_prompts_at_all(engine: Server) -> None:
    result = run_load(make_job(engine, 2, measured=draws("m", 0)))
    assert result.failure is not None
    assert result.failure.kind == "no_prompts"


def test_garbage_collection_is_as_before(engine: Server) -> None:
    run_load(make_job(engine, 1, measured=draws("m", 2)))
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_refusals_end_the_cell(tmp_path: Path) -> None:
    with fake_engine(tmp_path, status="500") as server:
        result = run_load(make_job(server, 4))
    assert result.failure is not None
    assert result.failure.kind == "all_requests_failed"
    assert "HTTP 500: made up" in result.failure.reason
    assert result.window is None


def test_cut_streams_lose_only_themselves(tmp_path: Path) -> None:
    with fake_engine(tmp_path, cut="5") as server:
        result = run_load(make_job(server, 2))
    assert result.failure is None
    measured = phase(result, "measured")
    cut = [trace for trace in measured if not trace.ok]
    assert cut
    assert len(measured) > len(cut)
    assert all("cut" in (trace.error or "") and trace.chunk_times for trace in cut)


def test_too_long_prompts_are_counted_and_the_loop_goes_on(tmp_path: Path) -> None:
    with fake_engine(tmp_path, context="50") as server:
        measured = draws("m", None, lambda number: "x" * (90 if number % 4 == 0 else 9))
        result = run_load(make_job(server, 2, measured=measured))
    sent = phase(result, "measured")
    assert result.failure is None
    assert [trace.too_long for trace in sent] == [trace.index % 4 == 0 for trace in sent]


def test_all_prompts_too_long_still_ends(tmp_path: Path) -> None:
    with fake_engine(tmp_path, context="0") as server:
        result = run_load(make_job(server, 2, measured=draws("m", 6)))
    assert result.failure is None
    assert [trace.too_long for trace in phase(result, "measured")] == [True] * 6


def test_no_usage_in_the_chunks(tmp_path: Path) -> None:
    with fake_engine(tmp_path, usage="none") as server:
        result = run_load(make_job(server, 2))
    assert not result.exact_tokens
    assert all(sum(trace.chunk_tokens) == trace.output_tokens for trace in result.traces)


def test_engine_that_dies(tmp_path: Path) -> None:
    with fake_engine(tmp_path) as server:
        children = psutil.Process().children(recursive=True)
        (engine,) = (child for child in children if child.cmdline()[1] == FAKE and server.model in child.cmdline())
        threading.Timer(0.8, os.kill, (engine.pid, 9)).start()
        started = time.monotonic()
        result = run_load(make_job(server, 2, seconds=60), alive=server.alive)
    assert result.failure is not None
    assert time.monotonic() - started < 30


def test_engine_that_stalls_hits_the_limit(tmp_path: Path) -> None:
    with fake_engine(tmp_path, stall="4") as server:
        result = run_load(make_job(server, 2, timeout=2.0))
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    assert "(warming up; " in result.failure.reason
    assert "2 under way, the oldest for " in result.failure.reason


def test_fault_of_this_program_is_not_swallowed(engine: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(answer: RawAnswer) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(RawAnswer, "trace", broken)
    with pytest.raises(ZeroDivisionError):
        run_load(make_job(engine, 2))


def test_interrupt_comes_through(engine: Server) -> None:
    def interrupt(phase: Phase) -> None:
        if phase == "measure":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_load(make_job(engine, 2), on_phase=interrupt)
    assert run_load(make_job(engine, 2)).failure is None
