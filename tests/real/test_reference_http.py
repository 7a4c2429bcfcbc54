"""The whole embedded engine, HTTP process and core, on small random Llama checkpoints, against transformers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
TEXT = "def greet(name):\n    return f'hello {name}'\n"
CHAT_TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
K = 4
ARMS = {"none": None, "fixed": False, "adaptive": True}  # enable_adaptive_verification, or no speculation
USAGE = {"include_usage": True, "continuous_usage_stats": True}


def save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, pre_tokenizers, processors, trainers
    from tokenizers.models import BPE

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT * 3], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=CHAT_TEMPLATE
    ).save_pretrained(folder)


def save_model(folder: Path, layers: int, seed: int) -> None:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=1,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    save_tokenizer(folder)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    save_model(folder / "target", layers=2, seed=1)
    save_model(folder / "draft", layers=1, seed=2)
    return folder / "target", folder / "draft"


class Engine:
    def __init__(self, pair: tuple[Path, Path], folder: Path, adaptive: bool | None, *flags: str) -> None:
        target, draft = pair
        self.log, self.trace = folder / "log", folder / "trace"
        self.trace.mkdir()
        speculative = {
            "method": "draft_model",
            "model": str(draft),
            "num_speculative_tokens": K,
            "draft_sample_method": "probabilistic",
            "enable_adaptive_verification": adaptive,
        }
        spec = [] if adaptive is None else ["--speculative-config", json.dumps(speculative)]
        argv = ["--model", str(target), "--served-model-name", "tiny", "--port", "0", "--max-num-seqs", "8"]
        environment = {"PYTHONPATH": str(ROOT), "AVBENCH_TRACE_DIR": str(self.trace), "AVBENCH_REFIT_INTERVAL": "10"}
        with self.log.open("w") as log:
            command = [sys.executable, "-m", "avbench.reference", *argv, *spec, *flags]
            self.process = subprocess.Popen(command, stderr=log, env=os.environ | environment)
        self.port = self._wait_ready()

    def _wait_ready(self) -> int:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := re.search(r"ready: tiny on http://127\.0\.0\.1:(\d+), context 512", self.log.read_text()):
                return int(found[1])
            time.sleep(0.05)
        self.process.kill()
        raise AssertionError(f"not ready: {self.log.read_text()}")

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, answer.read()

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        status, raw = self.request("POST", path, body)
        assert status == 200, raw
        answer: dict[str, Any] = json.loads(raw)
        return answer

    def stream(self, **body: Any) -> list[dict[str, Any]]:
        status, raw = self.request("POST", "/v1/completions", body | {"stream": True, "stream_options": USAGE})
        assert status == 200, raw
        *chunks, done = raw.decode().removesuffix("\n\n").split("\n\n")
        assert done == "data: [DONE]"
        return [json.loads(chunk.removeprefix("data: ")) for chunk in chunks]

    def metrics(self) -> dict[str, float]:
        """Sums over labels."""
        sums: dict[str, float] = {}
        for family in text_string_to_metric_families(self.request("GET", "/metrics")[1].decode()):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums

    def core_pid(self) -> int:
        (child,) = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(child)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module", params=list(ARMS))
def arm(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def engine(arm: str, pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    server = Engine(pair, tmp_path_factory.mktemp("engine"), ARMS[arm])
    yield server
    assert server.stop() == 0


def greedy_by_transformers(target: Path, prompt: str, count: int) -> str:
    model = transformers.LlamaForCausalLM.from_pretrained(target)
    tokenizer = transformers.AutoTokenizer.from_pretrained(target)
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    out = model.generate(ids, do_sample=False, max_new_tokens=count, min_new_tokens=count, pad_token_id=1)
    text: str = tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


@pytest.mark.parametrize("prompt", [TEXT, "hello", "€uro über"])
def test_greedy_text_is_that_of_transformers(engine: Engine, pair: tuple[Path, Path], prompt: str) -> None:
    answer = engine.post("/v1/completions", prompt=prompt, max_tokens=40, temperature=0, ignore_eos=True)
    assert answer["choices"][0]["text"] == greedy_by_transformers(pair[0], prompt, 40)
    assert answer["usage"]["completion_tokens"] == 40


def test_greedy_text_does_not_depend_on_company(engine: Engine) -> None:
    asked = {"max_tokens": 30, "temperature": 0, "ignore_eos": True}
    prompts = [TEXT[: 3 + at] for at in range(16)]
    alone = [engine.post("/v1/completions", prompt=prompt, **asked)["choices"][0]["text"] for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as pool:
        streams = list(pool.map(lambda prompt: engine.stream(prompt=prompt, **asked), prompts))
    together = ["".join(chunk["choices"][0]["text"] for chunk in chunks[:-1]) for chunks in streams]
    assert together == alone


def test_a_stream_adds_up(engine: Engine, arm: str) -> None:
    *chunks, usage = engine.stream(prompt=TEXT, max_tokens=60, ignore_eos=True, seed=3)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    steps = [after - before for before, after in zip([0, *counts], counts, strict=False)]
    assert usage["usage"]["completion_tokens"] == counts[-1] == 60
    assert min(steps) >= 1
    assert max(steps) <= (1 if arm == "none" else K + 1)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]


def test_a_seed_repeats(engine: Engine) -> None:
    asked = {"prompt": "hello", "max_tokens": 24, "temperature": 1.0, "top_p": 0.9, "ignore_eos": True}
    first, again, other = (
        engine.post("/v1/completions", **asked, seed=seed)["choices"][0]["text"] for seed in (5, 5, 6)
    )
    assert first == again != other


def test_chat(engine: Engine, pair: tuple[Path, Path]) -> None:
    asked = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 20, "temperature": 0}
    answer = engine.post("/v1/chat/completions", **asked, ignore_eos=True)
    assert answer["choices"][0]["message"]["content"] == greedy_by_transformers(pair[0], "hello\n", 20)


def test_a_prompt_longer_than_the_context(engine: Engine) -> None:
    status, raw = engine.request("POST", "/v1/completions", {"prompt": [5] * 512, "max_tokens": 1})
    assert status == 400
    assert "maximum context length is 512 tokens" in json.loads(raw)["error"]["message"]


def test_the_context_can_be_filled(engine: Engine) -> None:
    answer = engine.post("/v1/completions", prompt=[5] * 480, max_tokens=32, ignore_eos=True)
    assert answer["usage"]["total_tokens"] == 512


def test_counters_agree_with_what_clients_got(engine: Engine, arm: str) -> None:
    before = engine.metrics()
    for seed in range(3):
        engine.post("/v1/completions", prompt="hello", max_tokens=30, ignore_eos=True, seed=seed)
    after = engine.metrics()
    grown = {name: value - before[name] for name, value in after.items()}
    assert grown["vllm:generation_tokens_total"] == 90
    assert grown["vllm:request_success_total"] == 3
    assert after["vllm:num_requests_running"] == after["vllm:num_requests_waiting"] == 0
    if arm == "none":
        assert not any("spec_decode" in name for name in after)
        return
    drafts, scheduled = grown["vllm:spec_decode_num_drafts_total"], grown["vllm:spec_decode_num_draft_tokens_total"]
    accepted = grown["vllm:spec_decode_num_accepted_tokens_total"]
    verified = grown["avbench:spec_decode_num_verified_tokens_total"]
    assert accepted == grown["vllm:spec_decode_num_accepted_tokens_per_pos_total"]
    assert drafts <= scheduled <= drafts * K
    assert accepted <= verified <= scheduled
    if arm == "fixed":
        assert verified == scheduled


def test_a_client_that_goes_away_frees_its_slot(engine: Engine) -> None:
    connections = [HTTPConnection("127.0.0.1", engine.port, timeout=60) for _ in range(16)]
    body = json.dumps({"prompt": "hello", "max_tokens": 400, "ignore_eos": True, "stream": True})
    for connection in connections:
        connection.request("POST", "/v1/completions", body)
    first = connections[0].getresponse()
    first.read(50)
    first.close()
    for connection in connections:
        connection.close()
    assert engine.post("/v1/completions", prompt="hello", max_tokens=3, ignore_eos=True)["usage"]["total_tokens"] > 3
    deadline = time.monotonic() + 20
    while engine.metrics()["vllm:num_requests_running"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert engine.metrics()["vllm:num_requests_running"] == 0


def test_a_trace_is_written(engine: Engine, arm: str) -> None:
    expected = {"none": {"steps"}, "fixed": {"start", "steps"}, "adaptive": {"start", "costs", "refit", "steps"}}[arm]
    for _ in range(3):
        engine.post("/v1/completions", prompt="hello", max_tokens=200, ignore_eos=True)
    deadline = time.monotonic() + 20
    events: set[str] = set()
    while not expected <= events and time.monotonic() < deadline:
        lines = (engine.trace / "trace.jsonl").read_text().splitlines(keepends=True)
        events = {json.loads(line)["event"] for line in lines if line.endswith("\n")}
        time.sleep(0.05)
    assert expected <= events


def test_sigterm_in_the_middle_of_work(pair: tuple[Path, Path], tmp_path: Path) -> None:
    server = Engine(pair, tmp_path, False)
    core = server.core_pid()
    connections = [HTTPConnection("127.0.0.1", server.port, timeout=60) for _ in range(4)]
    for connection in connections:
        body = json.dumps({"prompt": "hello", "max_tokens": 400, "ignore_eos": True, "stream": True})
        connection.request("POST", "/v1/completions", body)
    time.sleep(0.3)
    start = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - start < 5
    assert not Path(f"/proc/{core}").exists()
    for connection in connections:
        connection.close()


def test_a_missing_model_is_one_clear_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "avbench.reference", "--model", str(tmp_path / "nowhere")]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: --model: `{tmp_path / 'nowhere'}` is not a folder\nhint: ")
