from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from avbench.engine.process import EngineProcess

# Starts one child in its own group and one that left it, writes their ids, then waits.
FAMILY = """
import subprocess, sys, time, signal
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleep = [sys.executable, "-c", "import time; time.sleep(300)"]
pids = [subprocess.Popen(sleep, start_new_session=far).pid for far in (False, True)]
open(sys.argv[1], "w").write(" ".join(map(str, pids)))
time.sleep(0.1 if sys.argv[2] == "short" else 300)
"""


def eventually(true: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def start(tmp_path: Path, *argv: str) -> EngineProcess:
    return EngineProcess([sys.executable, "-c", *argv], {}, tmp_path / "log")


def start_family(tmp_path: Path, manner: str) -> tuple[EngineProcess, list[int]]:
    notes = tmp_path / "pids"
    process = start(tmp_path, FAMILY, str(notes), manner)
    assert eventually(lambda: notes.exists() and len(notes.read_text().split()) == 2)
    return process, [int(pid) for pid in notes.read_text().split()]


@pytest.mark.parametrize(("code", "expected"), [("7", 7), ("0", 0)])
def test_exit_code_and_log(tmp_path: Path, code: str, expected: int) -> None:
    program = f"import os, sys; print('hello ' + os.environ['NAME']); sys.exit({code})"
    process = EngineProcess([sys.executable, "-c", program], {"NAME": "you"}, tmp_path / "log")
    assert eventually(lambda: not process.alive())
    assert process.exit_code == expected
    assert (tmp_path / "log").read_text() == "hello you\n"
    process.stop()


def test_signal_is_a_negative_exit_code(tmp_path: Path) -> None:
    process = start(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert eventually(lambda: not process.alive())
    assert process.exit_code == -signal.SIGKILL
    process.stop()


def test_command_that_does_not_exist(tmp_path: Path) -> None:
    process = EngineProcess(["/no/such/engine"], {}, tmp_path / "log")
    assert eventually(lambda: not process.alive())
    assert process.exit_code == 127
    assert "cannot start `/no/such/engine`" in (tmp_path / "log").read_text()
    process.stop()


@pytest.mark.parametrize("manner", ["polite", "deaf"])
def test_stop_leaves_nothing(tmp_path: Path, manner: str) -> None:
    process, children = start_family(tmp_path, manner)
    assert process.pid is None or living([process.pid])
    process.stop(grace=0.3)
    assert not process.alive()
    assert living(children) == []


def test_orphans_of_a_dead_engine_are_ended(tmp_path: Path) -> None:
    process, children = start_family(tmp_path, "short")
    assert eventually(lambda: not process.alive())
    process.stop()
    assert living(children) == []


def test_interrupt_while_stopping_kills_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process, children = start_family(tmp_path, "deaf")

    def interrupted(seconds: float) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "_wait_leash", interrupted)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        process.stop(grace=60)
    assert time.monotonic() - started < 30
    assert living(children) == []


def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    program = (
        "import sys, time; from pathlib import Path; from avbench.engine.process import EngineProcess\n"
        "EngineProcess([sys.executable, '-c', *sys.argv[2:]], {}, Path(sys.argv[1])); time.sleep(300)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "log"), FAMILY, str(notes), "deaf"]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as parent:
        assert eventually(lambda: notes.exists() and len(notes.read_text().split()) == 2)
        started = psutil.Process(parent.pid).children(recursive=True)
        assert len(started) >= 2
        parent.kill()
    pids = [child.pid for child in started] + [int(pid) for pid in notes.read_text().split()]
    assert eventually(lambda: living(pids) == [])


def test_engine_is_in_a_group_of_its_own(tmp_path: Path) -> None:
    process = start(tmp_path, "import time; time.sleep(300)")
    assert eventually(lambda: process.alive() and process.pid is not None)
    assert process.pid is not None
    assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
    process.stop()
