"""The routes. Each generation request is one task: submit, take deltas, write them; when it ends its slot is free."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import orjson
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from avbench import __version__
from avbench.reference.fields import ApiError
from avbench.reference.frontend import Frontend, OpenRequest
from avbench.reference.messages import Ready
from avbench.reference.metrics import EngineMetrics
from avbench.reference.protocol import Call, fitting_max_tokens, parse_call
from avbench.reference.responses import DONE, Delta, Response, error_event
from avbench.reference.tokens import ModelTokenizer

MAX_BODY_BYTES = 64 << 20
LONG_TEXT = 20_000  # characters; longer ones are tokenised (milliseconds and more) off the event loop
SSE_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}

log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpServer:
    """An aiohttp application over one Frontend."""

    def __init__(self, frontend: Frontend, metrics: EngineMetrics, tokenizer: ModelTokenizer, served: str) -> None:
        self._frontend = frontend
        self._metrics = metrics
        self._tokenizer = tokenizer
        self._served = served

    def application(self) -> web.Application:
        """All routes, with every failure turned into an error body."""
        app = web.Application(middlewares=[_errors], client_max_size=MAX_BODY_BYTES)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._exposition)
        app.router.add_get("/version", self._version)
        app.router.add_get("/health", self._health)
        app.router.add_route("*", "/ping", self._health)
        return app

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=False)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=True)

    async def _generate(self, http: web.Request, *, chat: bool) -> web.StreamResponse:
        ready = self._frontend.check_ready()
        call = parse_call(await http.read(), chat=chat, served=self._served)
        prompt = await self._prompt_ids(call, ready)
        request = self._frontend.submit(
            call, prompt, fitting_max_tokens(call.max_tokens, len(prompt), ready.max_model_len)
        )
        response = Response(call, self._served, len(prompt))
        try:
            return await (_stream(http, request, response) if call.stream else _whole(request, response))
        finally:
            self._frontend.release(request)

    async def _prompt_ids(self, call: Call, ready: Ready) -> tuple[int, ...]:
        if isinstance(call.prompt, tuple):
            for token in call.prompt:
                if not 0 <= token < ready.vocabulary:
                    raise ApiError(f"Token id {token} is out of vocabulary", param="prompt")
            return call.prompt
        text = self._chat_text(call) if call.prompt is None else call.prompt
        if len(text) > LONG_TEXT:
            return await asyncio.to_thread(self._tokenizer.encode, text, special=not call.chat)
        return self._tokenizer.encode(text, special=not call.chat)

    def _chat_text(self, call: Call) -> str:
        try:
            return self._tokenizer.render(list(call.messages or ()))
        except ValueError as error:
            raise ApiError(str(error), param="messages") from None

    async def _models(self, _: web.Request) -> web.Response:
        ready = self._frontend.check_ready()
        model = {"id": self._served, "object": "model", "owned_by": "avbench", "max_model_len": ready.max_model_len}
        return _json(orjson.dumps({"object": "list", "data": [model]}))

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self._frontend.healthy else 503)

    async def _version(self, _: web.Request) -> web.Response:
        return _json(orjson.dumps({"version": __version__}))

    async def _exposition(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _whole(request: OpenRequest, response: Response) -> web.Response:
    deltas: list[Delta] = []
    while not deltas or deltas[-1].finish is None:
        deltas += await request.take()
    return _json(response.whole(deltas))


async def _stream(http: web.Request, request: OpenRequest, response: Response) -> web.StreamResponse:
    stream = web.StreamResponse(headers=SSE_HEADERS)
    with contextlib.suppress(ConnectionError):  # the client went away in the middle of a write: nobody to answer
        await stream.prepare(http)
        async for events in _events(request, response):
            await stream.write(events)
        await stream.write_eof()
    return stream


async def _events(request: OpenRequest, response: Response) -> AsyncIterator[bytes]:
    """Everything that has come, joined, until the last delta; vLLM ends a failed stream with an error and DONE."""
    last = False
    while not last:
        try:
            deltas = await request.take()
        except ApiError as error:
            yield error_event(error.body()) + DONE
            return
        last = deltas[-1].finish is not None
        yield response.events(deltas)


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        return _json(error.body(), error.code)
    except web.HTTPException as error:
        return _json(ApiError.of_status(error.status).body(), error.status)
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return _json(ApiError("Internal server error", code=500, kind="InternalServerError").body(), 500)
