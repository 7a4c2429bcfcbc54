"""A small real engine process for fast tests: vLLM's flags, routes, metrics and streams, made-up tokens, no torch.

It behaves well unless told otherwise by its environment:

FAKE_STEP         s per engine step (default 0.004)
FAKE_START        `hang`: never binds; `unready`: /health stays 503; `oom`: dies of MemoryError
FAKE_START_ONCE   folder: the k-th start does what its file `k` says instead (same words)
FAKE_DIE_AFTER    exit with code 3 in the middle of the n-th request of the process
FAKE_DIE_ARM      only when this arm's K equals the value (`0`: no speculation)
FAKE_STATUS       answer generation requests with this HTTP status
FAKE_STATUS_ARM   only when this arm's K equals the value
FAKE_CUT          cut every n-th stream in the middle
FAKE_STALL        from the n-th request on, streams stop after their first chunk
FAKE_CONTEXT      context in characters; a longer prompt gets vLLM's 400
FAKE_USAGE        `none`: no usage in the chunks, only at the end
FAKE_DEAF         ignore SIGTERM
FAKE_CHILD        start two sleeping children, one of them in a session of its own
FAKE_JOURNAL      file that gets one JSON line per event (start, ready, request, end, sigterm), with Unix times
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web

ENV = os.environ


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fake_engine")
    for name in ("model", "served-model-name", "dtype"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    for name in ("port", "max-num-seqs", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--speculative-config", type=json.loads, default={})
    return parser.parse_args()


class Engine:
    """All requests share one step clock; each request gets 1 + accepted tokens per step."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        config = options.speculative_config
        self.k = int(config.get("num_speculative_tokens", 0))
        self.adaptive = bool(config.get("enable_adaptive_verification"))
        self.step_seconds = float(ENV.get("FAKE_STEP", "0.004"))
        self.counts = dict.fromkeys(("drafts", "draft_tokens", "accepted", "verified", "generated", "prompt"), 0)
        self.positions = [0] * self.k
        self.running = 0
        self.steps = 0
        self.requests = 0
        self.tick = asyncio.Condition()
        self.trace = Trace(self.k, self.adaptive)

    async def clock(self) -> None:
        while True:
            await asyncio.sleep(self.step_seconds)
            if self.running:
                admitted = self.running * (self.k // 2 if self.adaptive else self.k)
                self.trace.step(self.steps, self.step_seconds, self.running, self.running * self.k, admitted)
                self.steps += 1
            else:
                self.trace.flush()
            async with self.tick:
                self.tick.notify_all()

    async def next_step(self) -> None:
        async with self.tick:
            await self.tick.wait()

    def draw(self, rng: random.Random) -> int:
        """Tokens of one request-step."""
        if not self.k:
            return 1
        verified = self.k // 2 if self.adaptive else self.k
        accepted = 0
        while accepted < verified and rng.random() < 0.7:
            self.positions[accepted] += 1
            accepted += 1
        for name, count in (("drafts", 1), ("draft_tokens", self.k), ("accepted", accepted), ("verified", verified)):
            self.counts[name] += count
        return 1 + accepted


class Trace:
    """The trace file of the contract: one `steps` line per 20 steps, and when the engine goes idle."""

    def __init__(self, k: int, adaptive: bool) -> None:
        folder = ENV.get("AVBENCH_TRACE_DIR")
        self.file = (Path(folder) / "trace.jsonl").open("a") if folder else None
        self.rows: list[tuple[float, int, int, int]] = []
        self.k, self.adaptive, self.refits, self.steps = k, adaptive, 0, 0
        interval = int(ENV.get("AVBENCH_REFIT_INTERVAL", "100"))
        self.interval = interval
        source = "estimator" if adaptive else None
        self.write("start", version="fake-1", k=k or None, refit_interval=interval, vocabulary=99, source=source)
        if adaptive:
            self.write("costs", draft=[[1, 0.5]], verify=[[1, 2.0], [64, 8.0]], context=100)

    def write(self, event: str, **fields: Any) -> None:
        if self.file:
            self.file.write(json.dumps({"event": event, "time": time.time(), **fields}) + "\n")
            self.file.flush()

    def flush(self) -> None:
        if self.rows:
            names = ("seconds", "requests", "scheduled", "admitted")
            columns = {name: [row[i] for row in self.rows] for i, name in enumerate(names)}
            self.write("steps", step=self.steps - len(self.rows), **columns)
            self.rows = []

    def step(self, number: int, *row: Any) -> None:
        self.rows.append(row)
        self.steps = number + 1
        if len(self.rows) == 20:
            self.flush()
        if self.adaptive and number and number % self.interval == 0:
            self.refits += 1
            known = self.k // 2
            counts = [50] * known + [0] * (self.k - known)
            intercepts = [-0.1 * i for i in range(self.k)]
            self.write(
                "refit", step=number, refit=self.refits, slope=0.5, intercepts=intercepts, counts=counts, log_loss=0.6
            )


def journal(event: str, **fields: Any) -> None:
    if path := ENV.get("FAKE_JOURNAL"):
        with Path(path).open("a") as file:
            file.write(json.dumps({"event": event, "time": time.time(), "pid": os.getpid(), **fields}) + "\n")


def meant(engine: Engine, name: str) -> bool:
    return name not in ENV or int(ENV[name]) == engine.k


def api_error(status: int, message: str) -> web.Response:
    kind = "BadRequestError" if status == 400 else "InternalServerError"
    return web.json_response(
        {"error": {"message": message, "type": kind, "param": None, "code": status}}, status=status
    )


async def generate(request: web.Request) -> web.StreamResponse:
    engine: Engine = request.app["engine"]
    body = await request.json()
    engine.requests += 1
    number = engine.requests
    chat = request.path.startswith("/v1/chat")
    prompt = body["messages"][-1]["content"] if chat else body["prompt"]
    journal("request", number=number, prompt=prompt, seed=body["seed"], path=request.path)
    if body["model"] != engine.options.served_model_name:
        return api_error(404, f"The model `{body['model']}` does not exist.")
    if "FAKE_STATUS" in ENV and meant(engine, "FAKE_STATUS_ARM"):
        return api_error(int(ENV["FAKE_STATUS"]), "made up")
    if len(prompt) > (context := int(ENV.get("FAKE_CONTEXT", "100000"))):
        words = f"This model's maximum context length is {context} tokens. However, you requested {len(prompt)} tokens."
        return api_error(400, words)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    engine.running += 1
    try:
        with contextlib.suppress(ConnectionResetError):
            await stream(engine, response, body, len(prompt), number, chat=chat)
    finally:
        engine.running -= 1
    return response


async def stream(
    engine: Engine, response: web.StreamResponse, body: dict[str, Any], prompt: int, number: int, *, chat: bool
) -> None:
    rng = random.Random(body["seed"])
    limit = body["max_tokens"]
    natural = limit if body.get("ignore_eos") else rng.randint(max(1, limit // 2), 2 * limit)
    target, sent = min(limit, natural), 0
    if chat:
        await response.write(chunk({"delta": {"role": "assistant", "content": ""}}, prompt, 0))
    while sent < target:
        await engine.next_step()
        new = min(engine.draw(rng) if sent else 1, target - sent)
        sent += new
        engine.counts["generated"] += new
        finish = None if sent < target else "length" if sent == limit else "stop"
        text = "ab" * new
        choice = {"delta": {"content": text}} if chat else {"text": text}
        await response.write(chunk({**choice, "finish_reason": finish}, prompt, sent))
        if int(ENV.get("FAKE_DIE_AFTER", "0")) == number and meant(engine, "FAKE_DIE_ARM"):
            sys.stderr.write("Fatal: made-up fault\n")
            sys.stderr.flush()
            os._exit(3)
        if int(ENV.get("FAKE_STALL", "1000000")) <= number:
            await asyncio.sleep(3600)
        if "FAKE_CUT" in ENV and number % int(ENV["FAKE_CUT"]) == 0 and sent > target // 2:
            raise ConnectionResetError
    engine.counts["prompt"] += prompt
    await response.write(chunk(None, prompt, sent))
    await response.write(b"data: [DONE]\n\n")
    journal("end", number=number, tokens=sent)


def chunk(choice: dict[str, Any] | None, prompt: int, sent: int) -> bytes:
    body: dict[str, Any] = {"choices": [] if choice is None else [{"index": 0, "finish_reason": None, **choice}]}
    if choice is None or ENV.get("FAKE_USAGE") != "none":
        body["usage"] = {"prompt_tokens": prompt, "completion_tokens": sent, "total_tokens": prompt + sent}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


async def metrics(request: web.Request) -> web.Response:
    engine: Engine = request.app["engine"]
    labels = f'engine="0",model_name="{engine.options.served_model_name}"'
    values = {
        "vllm:generation_tokens": engine.counts["generated"],
        "vllm:prompt_tokens": engine.counts["prompt"],
        "vllm:num_preemptions": 0,
    }
    if engine.k:
        for name in ("drafts", "draft_tokens", "accepted"):
            spelled = "accepted_tokens" if name == "accepted" else name
            values[f"vllm:spec_decode_num_{spelled}"] = engine.counts[name]
        values["avbench:spec_decode_num_verified_tokens"] = engine.counts["verified"]
    gauges = ["# TYPE vllm:num_requests_running gauge", f"vllm:num_requests_running{{{labels}}} {engine.running}"]
    lines = gauges + [line for name, value in values.items() for line in counter(name, {labels: value})]
    if engine.k:
        accepted = {f'{labels},position="{i}"': count for i, count in enumerate(engine.positions)}
        lines += counter("vllm:spec_decode_num_accepted_tokens_per_pos", accepted)
    return web.Response(text="\n".join(lines) + "\n")


def counter(name: str, samples: dict[str, int]) -> list[str]:
    head = [f"# HELP {name}_total made up", f"# TYPE {name}_total counter"]
    created = [f"{name}_created{{{labels}}} 1.7e+09" for labels in samples]
    return head + [f"{name}_total{{{labels}}} {float(value)}" for labels, value in samples.items()] + created


async def health(request: web.Request) -> web.Response:
    return web.Response(status=503 if ENV.get("FAKE_START") == "unready" else 200)


async def models(request: web.Request) -> web.Response:
    name = request.app["engine"].options.served_model_name
    return web.json_response({"object": "list", "data": [{"id": name, "object": "model"}]})


async def version(request: web.Request) -> web.Response:
    return web.json_response({"version": ENV.get("FAKE_VERSION", "fake-1")})


async def serve(options: argparse.Namespace) -> None:
    engine = Engine(options)
    app = web.Application(client_max_size=1 << 24)
    app["engine"] = engine
    app.add_routes([web.get(f"/{name}", globals()[name]) for name in ("health", "version", "metrics")])
    app.add_routes([web.get("/v1/models", models)])
    app.add_routes([web.post(f"/v1/{route}", generate) for route in ("completions", "chat/completions")])
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, options.host, options.port, reuse_address=True).start()
    journal("ready", port=options.port)
    over = asyncio.Event()
    if "FAKE_DEAF" not in ENV:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    ticking = asyncio.create_task(engine.clock())
    await over.wait()
    journal("sigterm")
    ticking.cancel()
    await runner.cleanup()


def start_fault() -> str:
    if folder := ENV.get("FAKE_START_ONCE"):
        started = len(list(Path(folder).glob("started-*")))
        (Path(folder) / f"started-{started}").touch()
        order = Path(folder) / str(started)
        return order.read_text().strip() if order.exists() else ""
    return ENV.get("FAKE_START", "")


def main() -> None:
    options = parse()
    journal("start", argv=sys.argv[1:], trace=ENV.get("AVBENCH_TRACE_DIR"))
    sys.stderr.write(f"fake engine on port {options.port}\n")
    if "FAKE_DEAF" in ENV:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "FAKE_CHILD" in ENV:
        for session in (False, True):
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=session)
    fault = start_fault()
    if fault == "hang":
        time.sleep(3600)
    if fault == "oom":
        raise MemoryError
    asyncio.run(serve(options))


if __name__ == "__main__":
    main()
