from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers.models import BPE

ROOT = Path(__file__).parents[3]
ECHO_CORE = Path(__file__).with_name("echo_core.py")
LAUNCH = (
    "import sys; from avbench.reference.__main__ import main; "
    "sys.exit(main(sys.argv[2:], [sys.executable, sys.argv[1]]))"
)
START_SECONDS = 60.0


class EchoServer:
    """The real HTTP process in front of the echo core."""

    def __init__(self, model: Path, log: Path, *flags: str, port: int = 0, **environment: str) -> None:
        argv = ["--model", str(model), "--served-model-name", "echo", "--port", str(port), *flags]
        self.log = log
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, str(ECHO_CORE), *argv],
                stderr=stderr,
                env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
            )
        self.port = port

    def wait_ready(self) -> EchoServer:
        self.port = int(self.wait_for(r"ready: echo on http://127\.0\.0\.1:(\d+), context")[1])
        return self

    def wait_for(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if found := re.search(pattern, self.log.read_text()):
                return found
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in {self.log.read_text()!r}")

    @property
    def core_pid(self) -> int:
        return int(self.wait_for(r"echo core (\d+)")[1])

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection.request(method, path, raw, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        status, raw = self.request("POST", path, body)
        assert status == 200, raw
        answer: dict[str, Any] = json.loads(raw)
        return answer

    def events(self, path: str, **body: Any) -> list[Any]:
        """The JSON of each event of a stream; the text of the last one, `[DONE]`, as it is."""
        status, raw = self.request("POST", path, body | {"stream": True})
        assert status == 200, raw
        assert raw.endswith(b"\n\n")
        lines = raw.decode().removesuffix("\n\n").split("\n\n")
        assert all(line.startswith("data: ") for line in lines)
        return [json.loads(line[6:]) if line != "data: [DONE]" else "[DONE]" for line in lines]

    def metric(self, name: str, **labels: str) -> float:
        """The value of one sample of /metrics."""
        _, raw = self.request("GET", "/metrics")
        wanted = {"model_name": "echo", "engine": "0"} | labels
        for family in text_string_to_metric_families(raw.decode()):
            for sample in family.samples:
                if sample.name == name and sample.labels == wanted:
                    return float(sample.value)
        raise KeyError(name)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def echo_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a byte-level tokenizer: `<s>` is 0, `</s>` is 1, then bytes and a few merges."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog " * 3, "für über €"], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    (folder / "chat_template.jinja").write_text(template)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def start_echo(echo_model: Path, tmp_path: Path) -> Iterator[Callable[..., EchoServer]]:
    """Start servers that are stopped after the test."""
    servers: list[EchoServer] = []

    def start(*flags: str, **options: Any) -> EchoServer:
        servers.append(EchoServer(echo_model, tmp_path / f"{len(servers)}.log", *flags, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def echo(echo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EchoServer]:
    """One ready server for all tests of a file that leave nothing behind in it."""
    server = EchoServer(echo_model, tmp_path_factory.mktemp("echo") / "log")
    try:
        yield server.wait_ready()
    finally:
        server.stop()
