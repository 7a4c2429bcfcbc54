from __future__ import annotations

import asyncio

import pytest

from avbench.reference.fields import ApiError
from avbench.reference.frontend import OpenRequest, unavailable
from avbench.reference.messages import FinishReason, RequestTokens
from avbench.reference.responses import Delta
from avbench.reference.text import TextStream

PIECES = {5: b"five ", 6: b"six "}


def request() -> OpenRequest:
    return OpenRequest(1, TextStream(PIECES), 0.0)


def tokens(*ids: int, finish: FinishReason | None = None) -> RequestTokens:
    return RequestTokens(request_id=1, tokens=ids, finish=finish)


def test_the_end_token_has_no_text_even_if_it_is_no_special_token() -> None:
    assert request().push(tokens(5, 6, finish="stop")) == Delta("five ", 2, "stop", None)
    assert request().push(tokens(5, 6, finish="length")) == Delta("five six ", 2, "length", None)


def test_deltas_wait_until_they_are_taken() -> None:
    async def talk() -> None:
        open_request = request()
        open_request.push(tokens(5))
        open_request.push(tokens(6, 6))
        assert await open_request.take() == [Delta("five ", 1, None, None), Delta("six six ", 3, None, None)]
        later = asyncio.create_task(open_request.take())
        await asyncio.sleep(0)
        assert not later.done()
        open_request.push(tokens(5, finish="length"))
        assert await later == [Delta("five ", 4, "length", None)]

    asyncio.run(talk())


def test_what_came_before_an_error_is_not_lost() -> None:
    async def talk() -> None:
        open_request = request()
        open_request.push(tokens(5))
        open_request.fail(unavailable("no more"))
        assert len(await open_request.take()) == 1
        for _ in range(2):
            with pytest.raises(ApiError, match="no more"):
                await open_request.take()

    asyncio.run(talk())
