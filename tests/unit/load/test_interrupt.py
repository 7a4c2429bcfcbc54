from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import pytest
import uvloop

from avbench.load.interrupt import signals_cancel

Result = TypeVar("Result")


def run(work: Coroutine[None, None, Result]) -> Result:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@contextmanager
def handler(number: signal.Signals) -> Iterator[None]:
    """A handler as the command line has it: it raises."""

    def raises(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, raises)
    try:
        yield
    finally:
        assert signal.getsignal(number) is raises
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_becomes_an_interrupt_after_the_task_has_cleaned_up(number: signal.Signals) -> None:
    cleaned = []

    async def work() -> None:
        with signals_cancel():
            try:
                asyncio.get_running_loop().call_soon(os.kill, os.getpid(), number)  # inside a callback of the loop
                await asyncio.sleep(30)
            finally:
                await asyncio.sleep(0.01)
                cleaned.append(True)

    with (
        handler(number),
        pytest.raises(KeyboardInterrupt),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(work())
    assert cleaned == [True]


def test_ignored_signal_stays_ignored() -> None:
    async def work() -> str:
        with signals_cancel():
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.05)
            return "went on"

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert run(work()) == "went on"
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_cancellations_stay_cancellations() -> None:
    async def work() -> None:
        with signals_cancel():
            await asyncio.sleep(30)

    async def outer() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(outer())


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    async def work() -> int:
        with signals_cancel():
            return 5

    found = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(work())))
    thread.start()
    thread.join()
    assert found == [5]
