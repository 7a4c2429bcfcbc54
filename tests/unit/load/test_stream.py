from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avbench.load.stream import parse_stream

DONE = b"data: [DONE]\n\n"


def event(text: str | None = None, usage: int | None = None, finish: str | None = None, **delta: Any) -> bytes:
    """A completions chunk with `text`, or a chat chunk with `delta`; neither: a usage chunk without choices."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if text is not None:
        choice["text"] = text
    elif delta:
        choice["delta"] = delta
    chunk: dict[str, Any] = {"choices": [choice] if len(choice) > 2 or finish else []}
    if usage is not None:
        chunk["usage"] = {"prompt_tokens": 7, "completion_tokens": usage}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def test_tokens_by_usage_not_by_chunks() -> None:
    pieces = [event("a", 1), event("bcd", 4), event("e", 5, "stop"), event(usage=5) + DONE]
    tokens = parse_stream(pieces, [1.0, 2.0, 3.0, 4.0])
    assert tokens.times == (1.0, 2.0, 3.0)
    assert tokens.counts == (1, 3, 1)
    assert (tokens.prompt_tokens, tokens.output_tokens, tokens.finish_reason) == (7, 5, "stop")
    assert tokens.error is None
    assert tokens.exact


def test_role_only_chunk_never_counts() -> None:
    role, text, end = event(usage=0, role="assistant", content=""), event(usage=3, content="abc"), event(usage=3)
    tokens = parse_stream([role, text, end, DONE], [1.0, 2.0, 3.0, 4.0])
    assert tokens.times == (2.0,)
    assert tokens.counts == (3,)


def test_tokens_without_text_count() -> None:
    """Half a character: no text yet, but the usage says that a token came."""
    tokens = parse_stream([event("", 1), event("é", 2, "stop"), DONE], [1.0, 2.0, 3.0])
    assert tokens.times == (1.0, 2.0)


@pytest.mark.parametrize("part", ["content", "reasoning_content", "reasoning", "tool_calls"])
def test_without_chunk_usage_text_of_any_kind_is_a_token(part: str) -> None:
    pieces = [event(role="assistant"), event(**{part: "x"}), event(**{part: "y"}), event(finish="stop"), event(usage=5)]
    tokens = parse_stream([*pieces, DONE], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert tokens.times == (2.0, 3.0)
    assert sum(tokens.counts) == tokens.output_tokens == 5
    assert not tokens.exact


def test_events_in_one_piece_share_its_time_and_a_torn_event_has_that_of_its_end() -> None:
    whole = event("a", 1) + event("b", 2) + event("c", 3, "length") + DONE
    cut = len(event("a", 1) + event("b", 2)) + 5
    tokens = parse_stream([whole[:cut], whole[cut:]], [1.0, 9.0])
    assert tokens.times == (1.0, 1.0, 9.0)


@given(st.lists(st.integers(1, 60), max_size=30), st.data())
def test_any_cutting_gives_the_same_counts(cuts: list[int], data: st.DataObject) -> None:
    whole = b": ping\r\n\r\n" + event("a", 1) + event("bc", 3).replace(b"\n", b"\r\n") + event("d", 4, "stop") + DONE
    pieces, start = [], 0
    for cut in cuts:
        pieces.append(whole[start : start + cut])
        start += cut
    pieces.append(whole[start:])
    times = [float(index) for index in range(len(pieces))]
    tokens = parse_stream(pieces, times)
    assert tokens.counts == (1, 2, 1)
    assert tokens.error is None
    assert list(tokens.times) == sorted(tokens.times)
    ends = [sum(len(piece) for piece in pieces[: index + 1]) for index in range(len(pieces))]
    first = whole.index(b"\n", whole.index(b"data:")) + 1
    assert tokens.times[0] == next(time for time, end in zip(times, ends, strict=True) if end >= first)


def test_cut_stream_keeps_what_came() -> None:
    tokens = parse_stream([event("a", 1), event("b", 2)[:-9]], [1.0, 2.0])
    assert tokens.counts == (1,)
    assert tokens.error == "the stream was cut before its end"


def test_finished_but_no_done_marker_is_no_error() -> None:
    assert parse_stream([event("a", 1, "stop")], [1.0]).error is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"data: {broken\n\n", "malformed chunk: {broken"),
        (b"data: [1, 2]\n\n", "malformed chunk: [1, 2]"),
        (b'data: {"choices": [{"text": "a"}], "usage": {"total": 1}}\n\n', "malformed chunk"),
        (b'data: {"error": {"message": "out of blocks", "code": 500}}\n\n', "error in the stream: out of blocks"),
    ],
)
def test_bad_chunks_are_errors_with_their_text(data: bytes, words: str) -> None:
    tokens = parse_stream([event("a", 1), data, event("b", 2, "stop"), DONE], [1.0, 2.0, 3.0, 4.0])
    assert tokens.error is not None
    assert tokens.error.startswith(words)
    assert tokens.counts == (1,)
