from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from avbench.reference.corelink import CoreLink
from avbench.reference.messages import RequestTokens, StepOutput


@pytest.fixture
def links() -> Iterator[tuple[CoreLink, CoreLink]]:
    left, right = (CoreLink(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
    yield left, right
    left.close()
    right.close()


def drain(link: CoreLink, count: int) -> list[Any]:
    messages: list[Any] = []
    while len(messages) < count:
        messages += link.receive_all(block=False)
    return messages


def test_messages_arrive_whole_and_in_order(links: tuple[CoreLink, CoreLink]) -> None:
    left, right = links
    output = RequestTokens(request_id=1, tokens=(1, 2), finish="stop")
    step = StepOutput(requests=(output,), running=1, waiting=0, prompt_tokens=3, spec=None)
    for message in (step, "two", 3):
        left.send(message)
    assert right.receive_all(block=True) == [step, "two", 3]
    assert right.receive_all(block=False) == []


def test_send_never_waits_for_a_reader(links: tuple[CoreLink, CoreLink]) -> None:
    """Both ends send far more than the kernel holds before anyone reads: two blocking senders would stand still."""
    left, right = links
    sent = [bytes([at]) * 1_000_000 for at in range(40)]
    for message in sent:
        left.send(message)
        right.send(message)
    assert left.unsent_bytes > 0
    received: dict[CoreLink, list[bytes]] = {left: [], right: []}
    while any(len(messages) < len(sent) for messages in received.values()):
        for link, messages in received.items():
            messages += link.receive_all(block=False)
    assert received == {left: sent, right: sent}
    assert left.unsent_bytes == right.unsent_bytes == 0


def test_a_blocked_receiver_goes_on_sending(links: tuple[CoreLink, CoreLink]) -> None:
    left, right = links
    sent = [b"x" * 1_000_000] * 40
    for message in sent:
        left.send(message)

    def read_then_answer() -> None:
        drain(right, len(sent))
        right.send("got them all")

    answer = threading.Thread(target=read_then_answer)
    answer.start()
    assert left.receive_all(block=True) == ["got them all"]
    answer.join()


def test_block_waits_for_a_message(links: tuple[CoreLink, CoreLink]) -> None:
    left, right = links
    threading.Timer(0.2, left.send, ["late"]).start()
    start = time.monotonic()
    assert right.receive_all(block=True) == ["late"]
    assert time.monotonic() - start > 0.1


def test_block_may_be_limited(links: tuple[CoreLink, CoreLink]) -> None:
    left, right = links
    start = time.monotonic()
    assert right.receive_all(block=True, seconds=0.2) == []
    assert 0.2 <= time.monotonic() - start < 10
    left.send("here")
    assert right.receive_all(block=True, seconds=60) == ["here"]


def test_end_comes_after_the_last_message(links: tuple[CoreLink, CoreLink]) -> None:
    left, right = links
    left.send("last words")
    left.close()
    assert right.receive_all(block=False) == ["last words"]
    for block in (False, True):
        with pytest.raises(EOFError):
            right.receive_all(block=block)


def test_sending_to_a_closed_end(links: tuple[CoreLink, CoreLink]) -> None:
    left, right = links
    left.close()
    with pytest.raises(EOFError):
        right.send("anybody?")


def test_event_loop_end(links: tuple[CoreLink, CoreLink]) -> None:
    left, right = links
    got: list[Any] = []
    big = [b"x" * 1_000_000] * 20

    async def talk() -> None:
        closed = asyncio.Event()
        left.attach(asyncio.get_running_loop(), got.extend, closed.set)
        for message in big:
            left.send(message)  # more than the kernel holds: the loop sends the rest

        def read_answer_leave() -> None:
            drain(right, len(big))
            right.send("done")
            right.close()

        core = threading.Thread(target=read_answer_leave)
        core.start()
        await asyncio.wait_for(closed.wait(), 30)
        core.join()

    with contextlib.suppress(EOFError):
        asyncio.run(talk())
    assert got == ["done"]
