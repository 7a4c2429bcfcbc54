"""Signals while the event loop runs."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals_cancel() -> Iterator[None]:
    """Ctrl-C and SIGTERM cancel the current task, and become KeyboardInterrupt when it has cleaned up.

    A signal handler that raises does so in whatever runs at that moment. In a callback of the event loop the loop logs
    the exception and goes on: the interrupt is lost and the stream that was being read hangs. Signals that were ignored
    or left to their default stay so; afterwards all handlers are as before.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    taken = [number for number, handler in before.items() if callable(handler)]
    if task is None or threading.current_thread() is not threading.main_thread():
        taken = []
    received = False

    def interrupt() -> None:
        nonlocal received
        received = True
        if task is not None:
            task.cancel()

    for number in taken:
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    except asyncio.CancelledError:
        if received:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
