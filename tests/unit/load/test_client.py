from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from avbench.load.client import Client, RawAnswer
from avbench.prompts import Draw, Prompt
from avbench.prompts.prompt_set import Message
from avbench.record.measurement import RequestTrace
from avbench.spec.sweep import Sampling, Workload

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RAW = Workload(name="w", prompts="x", max_tokens=5, sampling=Sampling(temperature=0.5, top_p=0.9), chat=False)
CHAT = Workload(name="w", prompts="x", max_tokens=5, sampling=Sampling(), ignore_eos=True)
DRAW = Draw(Prompt(id="p1", text="hello"), 2, 99)
GOOD = b'data: {"choices":[{"text":"a"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
END = b'data: {"choices":[{"text":"","finish_reason":"stop"}],"usage":{"completion_tokens":2}}\n\ndata: [DONE]\n\n'


def ask(handler: Handler, workload: Workload = RAW, draw: Draw = DRAW, timeout: float = 20.0) -> RequestTrace:
    """Send one request to a server with this handler."""

    async def run() -> RequestTrace:
        app = web.Application()
        app.router.add_post("/v1/completions", handler)
        app.router.add_post("/v1/chat/completions", handler)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        started: list[RawAnswer] = []
        async with Client(f"http://127.0.0.1:{port}", "m", workload, connections=1, timeout=timeout) as client:
            client.restart_clock()
            answer = await client.send(draw, 4, "measured", started.append)
        assert started == [answer]
        await runner.cleanup()
        return answer.trace()[0]

    return asyncio.run(run())


async def stream(request: web.Request, *pieces: bytes, pause: float = 0.0) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece)
        await asyncio.sleep(pause)
    return response


def test_good_answer() -> None:
    bodies = []

    async def handler(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        return await stream(request, GOOD, END, pause=0.05)

    trace = ask(handler)
    assert trace.error is None
    assert (trace.index, trace.prompt_id, trace.sample, trace.seed, trace.phase) == (4, "p1", 2, 99, "measured")
    assert (trace.prompt_tokens, trace.output_tokens, trace.finish_reason, trace.status) == (3, 2, "stop", 200)
    assert trace.chunk_tokens == (2,)
    assert 0 <= trace.sent < trace.chunk_times[0]
    assert bodies == [
        {
            "model": "m",
            "prompt": "hello",
            "max_tokens": 5,
            "temperature": 0.5,
            "top_p": 0.9,
            "seed": 99,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
    ]


@pytest.mark.parametrize(
    ("prompt", "messages"),
    [
        (Prompt(id="a", text="hi"), [{"role": "user", "content": "hi"}]),
        (
            Prompt(id="a", messages=(Message(role="system", content="s"), Message(role="user", content="u"))),
            [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        ),
    ],
)
def test_chat_body(prompt: Prompt, messages: list[dict[str, str]]) -> None:
    bodies = []

    async def handler(request: web.Request) -> web.StreamResponse:
        bodies.append((request.path, await request.json()))
        return await stream(request, GOOD, END)

    ask(handler, CHAT, Draw(prompt, 0, 1))
    ((path, body),) = bodies
    assert path == "/v1/chat/completions"
    assert body["messages"] == messages
    assert body["ignore_eos"] is True
    assert "prompt" not in body


def test_refusal_keeps_the_servers_words() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "`seed` must be an integer", "code": 400}}, status=400)

    trace = ask(handler)
    assert trace.error == "HTTP 400: `seed` must be an integer"
    assert trace.status == 400
    assert not trace.too_long


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 16 tokens. However, you requested 20 tokens (15 in the messages).",
        "'max_tokens' is too large: 9. This model's maximum context length is 16 tokens",
    ],
)
def test_too_long_prompt_is_told_apart(message: str) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": message}}, status=400)

    assert ask(handler).too_long


def test_server_error_without_json() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=500, text="Internal Server Error")

    assert ask(handler).error == "HTTP 500: Internal Server Error"


def test_stream_cut_by_the_server() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = await stream(request, GOOD, pause=0.05)
        assert request.transport is not None
        request.transport.abort()
        return response

    trace = ask(handler)
    assert trace.error is not None
    assert trace.error.startswith("the stream was cut")
    assert trace.chunk_tokens == (2,)
    assert trace.status == 200


def test_stream_that_ends_too_early() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(request, GOOD)

    assert ask(handler).error == "the stream was cut before its end"


def test_answer_without_tokens_is_an_error() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(request, b"data: [DONE]\n\n")

    assert ask(handler).error == "the answer has no tokens"


def test_time_limit() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(request, GOOD, pause=30)

    trace = ask(handler, timeout=0.5)
    assert trace.error == "no end of the answer within the cell's time limit"
    assert trace.chunk_tokens == (2,)


def test_refused_connection() -> None:
    async def run() -> RequestTrace:
        async with Client("http://127.0.0.1:1", "m", RAW, connections=1, timeout=5) as client:
            await client.open_connections()
            return (await client.send(DRAW, 0, "warmup", lambda _: None)).trace()[0]

    trace = asyncio.run(run())
    assert trace.error is not None
    assert "connect" in trace.error.lower()
    assert trace.status is None


def test_connections_are_open_before_the_first_request() -> None:
    peers: list[str] = []

    async def run() -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            assert request.transport is not None
            peers.append(request.transport.get_extra_info("peername"))
            return web.Response(text="ok")

        app = web.Application()
        app.router.add_route("*", "/{any:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with Client(url, "m", RAW, connections=8, timeout=5) as client:
            await client.open_connections()
            before = len(set(peers))
            await asyncio.gather(*(client.send(DRAW, i, "warmup", lambda _: None) for i in range(8)))
            assert before == len(set(peers)) == 8
        await runner.cleanup()

    asyncio.run(run())
