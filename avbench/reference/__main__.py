"""`python -m avbench.reference`: claim the port, start the core, serve until a signal or the core's end."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

import uvloop
from aiohttp import web

from avbench.errors import AvbenchError, UsageError
from avbench.reference.corelink import CORE_COMMAND, start_core
from avbench.reference.frontend import Frontend
from avbench.reference.http import HttpServer
from avbench.reference.metrics import EngineMetrics
from avbench.reference.options import EngineOptions, parse_options
from avbench.reference.tokens import ModelTokenizer

BACKLOG = 1024
CORE_EXIT_SECONDS = 3.0  # then it is killed; a supervisor may expect us gone 5 s after SIGTERM
WRITE_OUT_SECONDS = 0.5  # for answers that are on their way when the core has died or we are told to stop


def main(argv: Sequence[str] | None = None, core_command: Sequence[str] = CORE_COMMAND) -> int:
    """Run the server. Exit code: 0 after SIGTERM or SIGINT, 2 for bad options, 1 for a taken port or a dead core."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        options = parse_options(argv)
        tokenizer = ModelTokenizer(options.model)
        listener = listen(options.host, options.port)
    except AvbenchError as error:
        say(f"error: {error.message}")
        if error.hint is not None:
            say(f"hint: {error.hint}")
        return error.exit_code
    return uvloop.run(serve(options, argv, tokenizer, listener, core_command))


def listen(host: str, port: int) -> socket.socket:
    """Claim the port before minutes go into loading a model. Raises AvbenchError with exit code 1."""
    if not 0 <= port <= 65535:  # getaddrinfo would take it modulo 65536
        raise UsageError(f"--port is {port}, expected 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            hint = "stop the other server or choose another `--port`"
            raise AvbenchError(f"port {port} is in use on {host}", hint=hint) from None
        raise AvbenchError(f"cannot listen on {host}, port {port}: {error}") from None
    return listener


async def serve(
    options: EngineOptions,
    argv: Sequence[str],
    tokenizer: ModelTokenizer,
    listener: socket.socket,
    core_command: Sequence[str],
) -> int:
    """Serve until a signal (0) or until the core has ended by itself (1)."""
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    core, link = start_core(core_command, argv)
    try:
        depth = None if options.speculative is None else options.speculative.num_speculative_tokens
        metrics = EngineMetrics(options.served_model_name, depth)
        frontend = Frontend(link, metrics, tokenizer.pieces)
        server = HttpServer(frontend, metrics, tokenizer, options.served_model_name)
        # handler_cancellation: a closed connection cancels its task, which frees the slot.
        runner = web.AppRunner(
            server.application(), access_log=None, handler_cancellation=True, shutdown_timeout=WRITE_OUT_SECONDS
        )
        await runner.setup()
        await web.SockSite(runner, listener, backlog=BACKLOG).start()
        announce = asyncio.create_task(_announce(frontend, options, listener))
        await _first(told, frontend.gone)
        announce.cancel()
        return await _end(runner, frontend, core, told)
    finally:
        if core.poll() is None:
            core.kill()
        core.wait()


async def _announce(frontend: Frontend, options: EngineOptions, listener: socket.socket) -> None:
    start = time.monotonic()
    await frontend.became_ready.wait()
    host = f"[{options.host}]" if ":" in options.host else options.host
    name, context = options.served_model_name, frontend.check_ready().max_model_len
    url = f"http://{host}:{listener.getsockname()[1]}"
    say(f"ready: {name} on {url}, context {context} tokens, loaded in {time.monotonic() - start:.1f} s")


async def _end(runner: web.AppRunner, frontend: Frontend, core: subprocess.Popen[bytes], told: asyncio.Event) -> int:
    """Answer what is open, close the port, wait for the core."""
    if not told.is_set():
        await asyncio.sleep(WRITE_OUT_SECONDS)
    died = not told.is_set()
    frontend.stop()
    await asyncio.gather(runner.cleanup(), _exited(core))
    if died:
        code = core.poll()
        say(f"error: the engine core {'hangs' if code is None else f'ended by itself (exit code {code})'}")
        say("hint: the core's own message stands above")
    return int(died)


async def _exited(core: subprocess.Popen[bytes]) -> None:
    """Wait for the core; one that does not end in time is killed when `serve` returns."""
    deadline = time.monotonic() + CORE_EXIT_SECONDS
    while core.poll() is None and time.monotonic() < deadline:
        await asyncio.sleep(0.02)


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def say(line: str) -> None:
    """One line on stderr."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
