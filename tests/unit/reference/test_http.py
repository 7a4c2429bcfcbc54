"""The HTTP process as a client sees it: real sockets, and a real core process that echoes prompts, without a model."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from avbench import __version__

Start = Callable[..., Any]
EOS = 1
TOKENS = 3  # the echo core's tokens a step
# 200 control characters a step: 1.4 kB an event, so that a few thousand steps overflow every socket buffer.
FLOOD = {"ECHO_CONTEXT": "10000000", "ECHO_TOKENS": "200", "ECHO_STEP_SECONDS": "0.0002"}
USAGE = {"include_usage": True, "continuous_usage_stats": True}


def ids(model: Path, text: str) -> list[int]:
    tokens: list[int] = Tokenizer.from_file(str(model / "tokenizer.json")).encode(text, add_special_tokens=False).ids
    return tokens


def open_stream(port: int, receive_buffer: int | None = None, **body: Any) -> socket.socket:
    """A client that has sent its request and reads nothing yet."""
    client = socket.socket()
    if receive_buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(60)
    client.connect(("127.0.0.1", port))
    raw = json.dumps(body | {"stream": True}).encode()
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(raw), raw))
    return client


def read_all(client: socket.socket, until: bytes = b"[DONE]") -> bytes:
    data = bytearray()
    while until not in data[-5000:] and (part := client.recv(4096)):
        data += part
    return bytes(data)


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def alive(pid: int) -> bool:
    """Neither gone nor a zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


# What is answered


def test_completion(echo: Any) -> None:
    answer = echo.post("/v1/completions", model="echo", prompt="the quick fox", max_tokens=50)
    prompt_tokens = answer["usage"]["prompt_tokens"]
    assert answer["usage"] == {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + 50,
        "completion_tokens": 50,
    }
    assert answer["choices"][0]["text"].startswith("the quick foxthe quick fox")
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["object"] == "text_completion"


def test_completion_of_token_ids(echo: Any, echo_model: Path) -> None:
    prompt = ids(echo_model, "über €")
    for form in (prompt, [prompt]):
        answer = echo.post("/v1/completions", prompt=form, max_tokens=len(prompt))
        assert answer["choices"][0]["text"] == "über €"
        assert answer["usage"]["prompt_tokens"] == len(prompt)


def test_default_max_tokens_are_sixteen(echo: Any) -> None:
    assert echo.post("/v1/completions", prompt=["hi"])["usage"]["completion_tokens"] == 16


def test_a_string_prompt_gets_the_begin_token(echo: Any, echo_model: Path) -> None:
    prompt_tokens = echo.post("/v1/completions", prompt="hi")["usage"]["prompt_tokens"]
    assert prompt_tokens == len(ids(echo_model, "hi")) + 1


def test_chat(echo: Any, echo_model: Path) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "system", "content": "be"}, {"role": "user", "content": parts}]
    text = "[system] be\n[user] a\nb\n"
    count = len(ids(echo_model, "<s>" + text))
    answer = echo.post("/v1/chat/completions", messages=messages, max_completion_tokens=count)
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": text}
    assert answer["usage"]["prompt_tokens"] == count


def test_a_chat_may_fill_the_context(start_echo: Start) -> None:
    server = start_echo(ECHO_CONTEXT="100").wait_ready()
    answer = server.post("/v1/chat/completions", messages=[{"role": "user", "content": "hi"}])
    assert answer["usage"]["total_tokens"] == 100
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a_long_prompt_is_tokenised_too(echo: Any, echo_model: Path) -> None:
    text = "the quick brown fox jumps over the lazy dog " * 600  # over the bound for a thread
    count = len(ids(echo_model, text)) + 1
    status, raw = echo.request("POST", "/v1/completions", {"prompt": text, "max_tokens": 1})
    assert status == 400
    assert f"maximum context length is 4096 tokens. However, you requested {count + 1} tokens".encode() in raw


def test_stream_has_one_event_a_step(echo: Any) -> None:
    *chunks, done = echo.events("/v1/completions", prompt="the quick fox", max_tokens=10)
    assert done == "[DONE]"
    assert len(chunks) == 4  # 3 + 3 + 3 + 1 tokens
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "length"]
    assert all("usage" not in chunk for chunk in chunks)
    assert len({chunk["id"] for chunk in chunks}) == 1
    whole = echo.post("/v1/completions", prompt="the quick fox", max_tokens=10)["choices"][0]["text"]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole


def test_chat_stream_with_final_usage(echo: Any) -> None:
    messages = [{"role": "user", "content": "hi"}]
    role, *chunks, usage, done = echo.events(
        "/v1/chat/completions", messages=messages, max_tokens=6, stream_options={"include_usage": True}
    )
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len(chunks) == 2
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks).startswith("[")
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 6)
    assert done == "[DONE]"


def test_usage_counts_every_step_even_without_text(start_echo: Start, echo_model: Path) -> None:
    """One token a step and characters of several bytes: steps that finish no character have an event with no text."""
    server = start_echo(ECHO_TOKENS="1").wait_ready()
    prompt = ids(echo_model, "€ß𝄞漢")
    *chunks, usage, _ = server.events("/v1/completions", prompt=prompt, max_tokens=len(prompt), stream_options=USAGE)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == list(range(1, len(prompt) + 1))
    texts = [chunk["choices"][0]["text"] for chunk in chunks]
    assert "".join(texts) == "€ß𝄞漢"
    assert set(texts) == {"", "€", "ß", "𝄞", "漢"}
    assert usage["usage"] == chunks[-1]["usage"]


def test_the_end_token_counts_but_is_not_shown(echo: Any, echo_model: Path) -> None:
    prompt = [*ids(echo_model, "fox"), EOS]
    answer = echo.post("/v1/completions", prompt=prompt, max_tokens=100)
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["stop_reason"] is None
    assert answer["choices"][0]["text"] == "fox"
    assert answer["usage"]["completion_tokens"] == len(prompt)


def test_ignore_eos_goes_on(echo: Any, echo_model: Path) -> None:
    prompt = [*ids(echo_model, "fox"), EOS]
    answer = echo.post("/v1/completions", prompt=prompt, max_tokens=2 * len(prompt), ignore_eos=True)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["text"] == "foxfox"


def test_stop_string_cuts_the_text_and_frees_the_slot(start_echo: Start, echo_model: Path) -> None:
    server = start_echo("--max-num-seqs", "1").wait_ready()
    prompt = ids(echo_model, "the quick brown fox")
    asked = {"prompt": prompt, "max_tokens": 4000, "stop": ["nothing", "k bro"]}
    answer = server.post("/v1/completions", **asked)
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("the quic", "stop", "k bro")
    assert answer["usage"]["completion_tokens"] % TOKENS == 0  # all tokens of the step that found it
    assert answer["usage"]["completion_tokens"] < len(prompt) + TOKENS
    chunks = server.events("/v1/completions", **asked)[:-1]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "the quic"
    # 4000 tokens would hold the only slot for 2.7 s at least.
    eventually(lambda: server.metric("vllm:num_requests_running") == 0, seconds=2.0)
    assert server.metric("vllm:request_success_total", finished_reason="stop") == 2


def test_models(echo: Any) -> None:
    status, raw = echo.request("GET", "/v1/models")
    (model,) = json.loads(raw)["data"]
    assert (status, model["id"], model["max_model_len"]) == (200, "echo", 4096)


def test_version_and_ping(echo: Any) -> None:
    assert echo.request("GET", "/version") == (
        200,
        json.dumps({"version": __version__}, separators=(",", ":")).encode(),
    )
    assert echo.request("GET", "/ping") == echo.request("POST", "/ping") == (200, b"")


def test_metrics_of_a_finished_request(start_echo: Start, echo_model: Path) -> None:
    config = {"method": "draft_model", "model": str(echo_model), "num_speculative_tokens": 4}
    server = start_echo("--speculative-config", json.dumps(config)).wait_ready()
    server.post("/v1/completions", prompt=[5, 6, 7], max_tokens=7)
    counted = {
        "vllm:prompt_tokens_total": 3,
        "vllm:generation_tokens_total": 7,
        "vllm:spec_decode_num_drafts_total": 3,
        "vllm:spec_decode_num_draft_tokens_total": 12,
        "vllm:spec_decode_num_accepted_tokens_total": 4,
        "avbench:spec_decode_num_verified_tokens_total": 7,
        "vllm:num_requests_running": 0,
        "vllm:time_to_first_token_seconds_count": 1,
        "vllm:inter_token_latency_seconds_count": 2,
    }
    assert {name: server.metric(name) for name in counted} == counted
    per_position = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    assert [server.metric(per_position, position=str(at)) for at in range(4)] == [2, 2, 0, 0]
    assert server.metric("vllm:request_success_total", finished_reason="length") == 1


# What is refused

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPT_FORMS = "a string or a list of token ids"
ONE_PROMPT = "this engine takes one a request."
UNEXPECTED_END = "unexpected end of data: line 1 column 2 (char 1)"
TOO_LONG = (
    "This model's maximum context length is 4096 tokens. However, you requested 4097 tokens (4000 in the messages, "
    "97 in the completion). Please reduce the length of the messages or completion."
)


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        (COMPLETIONS, {"prompt": "a", "n": 2}, 400, ("`n` is not supported by this engine.", "n")),
        (COMPLETIONS, {"prompt": ["a", "b"]}, 400, (f"`prompt` holds 2 prompts; {ONE_PROMPT}", "prompt")),
        (COMPLETIONS, {"prompt": [3, 400]}, 400, ("Token id 400 is out of vocabulary", "prompt")),
        (COMPLETIONS, {"prompt": [-1]}, 400, ("Token id -1 is out of vocabulary", "prompt")),
        (COMPLETIONS, {"prompt": [[]]}, 400, (f"`prompt` must be {PROMPT_FORMS}, got [].", "prompt")),
        (COMPLETIONS, b"[", 400, ("The body is not valid JSON: " + UNEXPECTED_END, None)),
        (COMPLETIONS, {"model": "x", "prompt": "a"}, 404, ("The model `x` does not exist.", "model")),
        (COMPLETIONS, {"prompt": [5] * 4000, "max_tokens": 97}, 400, (TOO_LONG, "input_tokens")),
        (CHAT, {"prompt": "a"}, 400, ("`messages` must be a list of at least one message, got null.", "messages")),
        ("/v1/embeddings", {"input": "a"}, 404, ("Not Found", None)),
        ("/v1/models", {}, 405, ("Method Not Allowed", None)),
    ],
)
def test_refusals(echo: Any, path: str, body: Any, status: int, error: tuple[str, str | None]) -> None:
    answered, raw = echo.request("POST", path, body)
    told = json.loads(raw)["error"]
    assert (answered, told["code"], told["message"], told["param"]) == (status, status, *error)
    kinds = {
        400: "BadRequestError",
        404: "Not Found" if error[1] is None else "NotFoundError",
        405: "Method Not Allowed",
    }
    assert told["type"] == kinds[status]


def test_a_refused_stream_is_no_stream(echo: Any) -> None:
    status, raw = echo.request("POST", "/v1/completions", {"prompt": "a", "stream": True, "top_k": 3})
    assert (status, json.loads(raw)["error"]["param"]) == (400, "top_k")


def test_too_large_a_body(echo: Any) -> None:
    status, raw = echo.request("POST", "/v1/completions", b" " * (65 << 20))
    assert (status, json.loads(raw)["error"]["type"]) == (413, HTTPStatus(413).phrase)


def test_loading(start_echo: Start) -> None:
    server = start_echo(ECHO_LOAD_SECONDS="3", port=free_port())
    assert server.core_pid > 0  # the port is claimed before the core starts
    assert server.request("GET", "/health") == (503, b"")
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": []})):
        status, raw = server.request("POST", path, body)
        assert (status, json.loads(raw)["error"]["type"]) == (503, "ServiceUnavailableError")
    assert server.metric("vllm:num_requests_running") == 0
    eventually(lambda: bool(server.request("GET", "/health") == (200, b"")))
    assert server.post("/v1/completions", prompt="hi")["usage"]["completion_tokens"] == 16


# Clients that misbehave


def test_a_client_that_goes_away_frees_its_slot(start_echo: Start) -> None:
    server = start_echo("--max-num-seqs", "1", ECHO_CONTEXT="1000000").wait_ready()
    client = open_stream(server.port, prompt=[5, 6], max_tokens=500_000)
    assert read_all(client, until=b'"text"')
    client.close()
    assert server.post("/v1/completions", prompt="hi", max_tokens=4)["usage"]["completion_tokens"] == 4
    assert server.metric("vllm:request_success_total", finished_reason="abort") == 1


def test_a_client_that_leaves_while_it_waits_is_forgotten(start_echo: Start) -> None:
    server = start_echo("--max-num-seqs", "1", ECHO_CONTEXT="1000000").wait_ready()
    running = open_stream(server.port, prompt=[5, 6], max_tokens=500_000)
    running.recv(4096)
    waiting = open_stream(server.port, prompt=[5, 6], max_tokens=500_000)
    eventually(lambda: server.metric("vllm:num_requests_waiting") == 1)
    waiting.close()
    eventually(lambda: server.metric("vllm:num_requests_waiting") == 0)
    assert server.metric("vllm:num_requests_running") == 1
    running.close()
    eventually(lambda: server.metric("vllm:num_requests_running") == 0)


def test_a_client_without_streaming_goes_away(start_echo: Start) -> None:
    server = start_echo("--max-num-seqs", "1", ECHO_CONTEXT="1000000").wait_ready()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        raw = json.dumps({"prompt": [5], "max_tokens": 500_000}).encode()
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(raw), raw))
        eventually(lambda: server.metric("vllm:num_requests_running") == 1)
    eventually(lambda: server.metric("vllm:num_requests_running") == 0)


def test_a_client_that_does_not_read_delays_nobody(start_echo: Start, echo_model: Path) -> None:
    """Its 6 MB of events (more than a socket holds) are generated at full speed and wait for it, all of them."""
    server = start_echo(**FLOOD).wait_ready()
    client = open_stream(server.port, 4096, prompt=ids(echo_model, "\x01"), max_tokens=900_000, stream_options=USAGE)
    asked = {"prompt": "the quick fox", "max_tokens": 20_000}
    with ThreadPoolExecutor(8) as pool:
        others = [pool.submit(server.post, "/v1/completions", **asked) for _ in range(8)]
        assert [answer.result()["usage"]["completion_tokens"] for answer in others] == [20_000] * 8
    eventually(lambda: server.metric("vllm:request_success_total", finished_reason="length") == 9, seconds=100)
    assert server.metric("vllm:generation_tokens_total") == 900_000 + 8 * 20_000
    data = read_all(client)
    assert len(data) > 6_000_000
    assert data.count(b'"finish_reason"') == 900_000 / 200
    assert b'"completion_tokens":900000}' in data
    client.close()


def test_a_client_that_does_not_read_and_goes_away_frees_its_slot(start_echo: Start, echo_model: Path) -> None:
    server = start_echo(**FLOOD).wait_ready()
    client = open_stream(server.port, 4096, prompt=ids(echo_model, "\x01"), max_tokens=9_000_000)
    eventually(lambda: server.metric("vllm:generation_tokens_total") > 700_000, seconds=60)
    client.close()
    eventually(lambda: server.metric("vllm:num_requests_running") == 0)
    assert server.metric("vllm:generation_tokens_total") < 9_000_000


def test_many_streams_at_once_stay_apart(echo: Any, echo_model: Path) -> None:
    words = ["quick", "brown", "jumps", "lazy", "über", "€", "dog", "fox"] * 4

    def ask(word: str) -> tuple[str, int]:
        prompt = ids(echo_model, word)
        *chunks, usage, _ = echo.events(
            "/v1/completions", prompt=prompt, max_tokens=len(prompt) * 7, stream_options=USAGE
        )
        assert usage["usage"]["completion_tokens"] == len(prompt) * 7
        return "".join(chunk["choices"][0]["text"] for chunk in chunks), len(chunks)

    with ThreadPoolExecutor(len(words)) as pool:
        answers = list(pool.map(ask, words))
    assert [text for text, _ in answers] == [word * 7 for word in words]
    assert [count for _, count in answers] == [-(-len(ids(echo_model, word)) * 7 // TOKENS) for word in words]


# Ends


def test_sigterm_ends_everything_at_once(start_echo: Start) -> None:
    server = start_echo(ECHO_CONTEXT="1000000").wait_ready()
    client = open_stream(server.port, prompt=[5, 6], max_tokens=500_000)
    client.recv(4096)
    start = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 0
    assert time.monotonic() - start < 5
    assert b'"code":503' in read_all(client)
    assert not alive(server.core_pid)
    client.close()


def test_sigint_ends_everything_too(start_echo: Start) -> None:
    server = start_echo().wait_ready()
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(10) == 0
    assert not alive(server.core_pid)


def test_sigterm_with_a_core_that_does_not_listen(start_echo: Start) -> None:
    server = start_echo(ECHO_DEAF="1").wait_ready()
    client = open_stream(server.port, prompt=[5, 6], max_tokens=4000)
    client.recv(4096)
    start = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 0
    assert time.monotonic() - start < 5
    assert not alive(server.core_pid)
    client.close()


def test_sigterm_while_loading(start_echo: Start) -> None:
    server = start_echo(ECHO_LOAD_SECONDS="60")
    core = server.core_pid
    start = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 0
    assert time.monotonic() - start < 5
    assert not alive(core)


def test_sigterm_while_a_client_does_not_read(start_echo: Start, echo_model: Path) -> None:
    server = start_echo(**FLOOD).wait_ready()
    client = open_stream(server.port, 4096, prompt=ids(echo_model, "\x01"), max_tokens=9_000_000)
    eventually(lambda: server.metric("vllm:generation_tokens_total") > 700_000, seconds=60)
    start = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 0
    assert time.monotonic() - start < 5
    client.close()


def test_a_dead_core_is_told_to_everybody(start_echo: Start) -> None:
    server = start_echo(ECHO_CONTEXT="1000000").wait_ready()
    stream = open_stream(server.port, prompt=[5, 6], max_tokens=500_000)
    stream.recv(4096)
    whole: list[tuple[int, bytes]] = []
    asked = {"prompt": [5], "max_tokens": 500_000}
    waiter = threading.Thread(target=lambda: whole.append(server.request("POST", "/v1/completions", asked)))
    waiter.start()
    eventually(lambda: server.metric("vllm:num_requests_running") == 2)
    os.kill(server.core_pid, signal.SIGKILL)
    assert server.request("GET", "/health") == (503, b"") or server.process.wait(1) == 1
    told = read_all(stream)
    event = next(line for line in told.decode().splitlines() if line.startswith('data: {"error"'))
    assert json.loads(event[6:])["error"] == {
        "message": "The engine core has died.",
        "type": "InternalServerError",
        "param": None,
        "code": 500,
    }
    waiter.join()
    ((status, raw),) = whole
    assert (status, json.loads(raw)["error"]["type"]) == (500, "InternalServerError")
    assert server.process.wait(10) == 1
    assert "error: the engine core ended by itself (exit code -9)" in server.log.read_text()


def test_a_core_that_cannot_load(start_echo: Start) -> None:
    server = start_echo(ECHO_FAIL="1")
    assert server.process.wait(60) == 1
    assert server.log.read_text().splitlines()[1:] == [
        "error: the echo has no voice",
        "error: the engine core ended by itself (exit code 3)",
        "hint: the core's own message stands above",
    ]


def test_the_core_ends_when_the_front_is_killed(start_echo: Start) -> None:
    server = start_echo(ECHO_CONTEXT="1000000").wait_ready()
    client = open_stream(server.port, prompt=[5, 6], max_tokens=500_000)
    client.recv(4096)
    core = server.core_pid
    server.process.kill()
    eventually(lambda: not alive(core))
    client.close()


def test_a_taken_port_is_found_before_anything_is_loaded(start_echo: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = start_echo(port=port)
        assert server.process.wait(60) == 1
    assert server.log.read_text().splitlines() == [
        f"error: port {port} is in use on 127.0.0.1",
        "hint: stop the other server or choose another `--port`",
    ]


@pytest.mark.parametrize(
    ("flags", "code", "line"),
    [
        (["--max-num-seqs", "0"], 2, "error: --max-num-seqs is 0, expected a whole number of at least 1"),
        (["--port", "99999"], 2, "error: --port is 99999, expected 0 to 65535"),
        (["--host", "no.such.host.invalid"], 1, "error: cannot listen on no.such.host.invalid, port 0: "),
    ],
)
def test_bad_options(start_echo: Start, flags: list[str], code: int, line: str) -> None:
    server = start_echo(*flags)
    assert server.process.wait(60) == code
    assert server.log.read_text().startswith(line)


def test_the_front_needs_no_torch() -> None:
    check = "import sys, avbench.reference.__main__; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", check], env=os.environ | {"PYTHONPATH": str(root)}).returncode == 0
