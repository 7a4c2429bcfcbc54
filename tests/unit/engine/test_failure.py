from __future__ import annotations

from pathlib import Path

import pytest

from avbench.engine.failure import classify_exit, classify_timeout, foreign_server, read_tail

LOGS = Path(__file__).parent / "logs"


@pytest.mark.parametrize(
    ("log", "exit_code", "kind"),
    [
        ("model_folder_missing", 2, "model_missing"),
        ("model_file_missing", 1, "model_missing"),
        ("port_in_use_reference", 1, "port_taken"),
        ("port_in_use_asyncio", 1, "port_taken"),
        ("torch_cpu_out_of_memory", 1, "out_of_memory"),
        ("python_memory_error", 1, "out_of_memory"),
        ("bad_arguments", 2, "bad_arguments"),
    ],
)
def test_captured_logs(log: str, exit_code: int, kind: str) -> None:
    lines = read_tail(LOGS / f"{log}.log")
    failure = classify_exit(exit_code, lines, ready=False)
    assert failure.kind == kind
    assert failure.hint
    assert lines[-1] in failure.reason


def test_structure_comes_before_text() -> None:
    misleading = ("OSError: [Errno 98] address already in use",)
    assert classify_exit(-9, misleading, ready=False).kind == "killed"
    assert classify_exit(127, misleading, ready=False).kind == "not_executable"


@pytest.mark.parametrize(("exit_code", "ready", "kind"), [(1, False, "died_before_ready"), (0, True, "engine_died")])
def test_unknown_stays_unknown(exit_code: int, ready: bool, kind: str) -> None:
    failure = classify_exit(exit_code, ("something new",), ready=ready)
    assert failure.kind == kind
    assert failure.hint is None


def test_reason_says_how_it_ended() -> None:
    assert "SIGSEGV while it was serving" in classify_exit(-11, (), ready=True).reason
    assert "exit code 1 before it was ready; its log is empty" in classify_exit(1, (), ready=False).reason


def test_timeout_says_what_health_said() -> None:
    failure = classify_timeout(12.5, "503", ("loading",))
    assert failure.kind == "start_timeout"
    assert failure.reason.splitlines()[0].startswith("the engine was not ready after 12.5 s (/health: 503)")


def test_foreign_server_is_named() -> None:
    assert "it serves llama, not `avbench-1`" in foreign_server(8000, "avbench-1", ["llama"]).reason


def test_tail_of_a_large_or_missing_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff\n" + b"".join(b"line %d\n\n" % number for number in range(20000)))
    assert read_tail(log, 2) == ("line 19998", "line 19999")
    assert read_tail(tmp_path / "none") == ()
