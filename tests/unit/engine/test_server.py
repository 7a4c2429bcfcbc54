from __future__ import annotations

import http.server
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from avbench.engine.command import EngineCommand
from avbench.engine.failure import EngineStartError
from avbench.engine.probe import ask, pick_port
from avbench.engine.server import Server, keep_older

FAKE = str(Path(__file__).parents[2] / "fake_engine" / "__main__.py")


def fake_command(port: int, name: str) -> EngineCommand:
    flags = ("--model", "m", "--served-model-name", name, "--dtype", "f", "--port", str(port), "--max-num-seqs", "1")
    return EngineCommand(
        argv=(sys.executable, FAKE, *flags, "--max-model-len", "9", "--seed", "0"), env={"API_KEY": "hidden"}
    )


def children() -> list[int]:
    return [child.pid for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]


class Foreign(http.server.BaseHTTPRequestHandler):
    """Somebody else's server: healthy, with another model."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": "somebody-elses"}]}).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def foreign_port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_starts_proves_itself_and_stops(tmp_path: Path) -> None:
    with Server(fake_command, tmp_path / "s", start_timeout=30) as server:
        assert server.alive()
        assert server.death() is None
        assert server.version == "fake-1"
        assert ask(server.port, "/health").status == 200
        port = server.port
    assert ask(port, "/health").status is None
    assert children() == []
    kept = json.loads((tmp_path / "s" / "command.json").read_text())
    assert kept["env"]["API_KEY"] == "[redacted]"
    assert server.model in kept["argv"]
    assert "fake engine on port" in (tmp_path / "s" / "server.log").read_text()


def test_each_start_has_its_own_name(tmp_path: Path) -> None:
    names = []
    for _ in range(2):
        with Server(fake_command, tmp_path, start_timeout=30) as server:
            names.append(server.model)
    assert names[0] != names[1]
    assert (tmp_path / "server.log.1").exists()
    assert (tmp_path / "command.json.1").exists()


def test_exception_inside_leaves_no_process(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Server(fake_command, tmp_path, start_timeout=30):
        raise KeyboardInterrupt
    assert children() == []


def test_foreign_server_on_the_port_is_not_taken_for_ours(
    tmp_path: Path, foreign_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_START", "hang")  # ours never binds, so nothing but the name can tell
    with (
        pytest.raises(EngineStartError) as caught,
        Server(fake_command, tmp_path, start_timeout=30, choose_port=lambda: foreign_port),
    ):
        pass
    assert caught.value.failure.kind == "foreign_server"
    assert "somebody-elses" in caught.value.message
    assert children() == []


def test_taken_port_is_given_up_for_another(tmp_path: Path, foreign_port: int) -> None:
    ports = iter([foreign_port, pick_port()])
    with Server(fake_command, tmp_path, start_timeout=30, choose_port=lambda: next(ports)) as server:
        assert server.port != foreign_port
    assert (tmp_path / "server.log.1").exists()


def test_port_taken_by_a_silent_process(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(EngineStartError) as caught,
            Server(fake_command, tmp_path, start_timeout=30, choose_port=lambda: port),
        ):
            pass
    assert caught.value.failure.kind == "port_taken"
    assert children() == []


@pytest.mark.parametrize(
    ("fault", "kind"), [("hang", "start_timeout"), ("unready", "start_timeout"), ("oom", "out_of_memory")]
)
def test_start_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, kind: str) -> None:
    monkeypatch.setenv("FAKE_START", fault)
    timeout = 60 if kind == "out_of_memory" else 3
    with pytest.raises(EngineStartError) as caught, Server(fake_command, tmp_path, start_timeout=timeout):
        pass
    assert caught.value.failure.kind == kind
    assert children() == []


def test_death_while_serving_is_explained(tmp_path: Path) -> None:
    with Server(fake_command, tmp_path, start_timeout=30) as server:
        engine = next(child for child in psutil.Process().children(recursive=True) if FAKE in child.cmdline()[1:2])
        os.kill(engine.pid, 9)
        while server.alive():
            pass
        death = server.death()
    assert death is not None
    assert "SIGKILL while it was serving" in death.reason


def test_older_files_are_numbered(tmp_path: Path) -> None:
    for text in ("first", "second", "third"):
        keep_older(tmp_path)
        (tmp_path / "trace.jsonl").write_text(text)
    assert [(tmp_path / name).read_text() for name in ("trace.jsonl.1", "trace.jsonl.2", "trace.jsonl")] == [
        "first",
        "second",
        "third",
    ]
