from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from avbench.reference.fields import ApiError
from avbench.reference.protocol import Call, fitting_max_tokens, parse_call
from avbench.reference.responses import Delta, Response

HELLO = [{"role": "user", "content": "hi"}]


def parse(chat: bool = False, **body: Any) -> Call:
    asked = {"messages": HELLO} if chat else {"prompt": "hi"}
    return parse_call(json.dumps(asked | body).encode(), chat=chat, served="m")


def refused(raw: bytes, chat: bool = False) -> dict[str, Any]:
    with pytest.raises(ApiError) as caught:
        parse_call(raw, chat=chat, served="m")
    error: dict[str, Any] = orjson.loads(caught.value.body())["error"]
    assert error["code"] == caught.value.code
    return error


def test_defaults_are_vllms() -> None:
    assert parse() == Call(
        prompt="hi",
        messages=None,
        max_tokens=16,
        temperature=1.0,
        top_p=1.0,
        seed=None,
        stop=(),
        ignore_eos=False,
        stream=False,
        include_usage=False,
        continuous_usage=False,
    )
    assert parse(chat=True).max_tokens is None


@pytest.mark.parametrize(("asked", "used"), [(0, 0.0), (1e-39, 0.01), (0.009, 0.01), (0.01, 0.01), (0.7, 0.7)])
def test_tiny_temperatures_are_raised_as_in_vllm(asked: float, used: float) -> None:
    assert parse(temperature=asked).temperature == used


def test_null_means_absent() -> None:
    nothing: dict[str, Any] = dict.fromkeys(
        ["model", "max_tokens", "temperature", "top_p", "seed", "stop", "stream", "n", "logit_bias"]
    )
    assert parse(**nothing, stream_options=None) == parse()


def test_everything_set() -> None:
    call = parse(
        model="m",
        max_tokens=5,
        temperature=0,
        top_p=0.5,
        seed=7,
        stop=["a", "b"],
        ignore_eos=True,
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        user="someone",
        priority=0,
    )
    assert (call.max_tokens, call.temperature, call.top_p, call.seed) == (5, 0.0, 0.5, 7)
    assert (call.stop, call.ignore_eos) == (("a", "b"), True)
    assert (call.stream, call.include_usage, call.continuous_usage) == (True, True, True)


def test_continuous_usage_needs_include_usage() -> None:
    call = parse(stream=True, stream_options={"continuous_usage_stats": True})
    assert (call.include_usage, call.continuous_usage) == (False, False)


def test_max_completion_tokens_comes_first() -> None:
    assert parse(chat=True, max_tokens=5, max_completion_tokens=6).max_tokens == 6


@pytest.mark.parametrize(("seed", "used"), [(-1, None), (0, 0), (2**63 - 1, 2**63 - 1), (-5, 2**63 - 5)])
def test_seed(seed: int, used: int | None) -> None:
    assert parse(seed=seed).seed == used


@pytest.mark.parametrize(
    ("prompt", "read"),
    [("", ""), ([1, 2], (1, 2)), (["hi"], "hi"), ([[1, 2]], (1, 2)), ("\u00fc\u20ac", "\u00fc\u20ac")],
)
def test_prompt_forms(prompt: object, read: object) -> None:
    assert parse(prompt=prompt).prompt == read


def test_content_parts_are_joined_by_newlines() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "system", "content": None}, {"role": "user", "content": parts, "name": "x"}]
    assert parse(chat=True, messages=messages).messages == (
        {"role": "system", "content": ""},
        {"role": "user", "content": "a\nb", "name": "x"},
    )


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"max_tokens": "5"}, "max_tokens", '`max_tokens` must be an integer, got "5".'),
        ({"max_tokens": 1.5}, "max_tokens", "`max_tokens` must be an integer, got 1.5."),
        ({"max_tokens": True}, "max_tokens", "`max_tokens` must be an integer, got true."),
        ({"max_tokens": 0}, "max_tokens", "max_tokens must be at least 1, got 0."),
        ({"max_completion_tokens": -1}, "max_completion_tokens", "max_completion_tokens must be at least 1, got -1."),
        ({"temperature": "hot"}, "temperature", '`temperature` must be a number, got "hot".'),
        ({"temperature": False}, "temperature", "`temperature` must be a number, got false."),
        ({"temperature": 1e300}, "temperature", "temperature must be at most 1e+06, got 1e+300."),
        ({"temperature": -0.5}, "temperature", "temperature must be non-negative, got -0.5."),
        ({"top_p": 0}, "top_p", "top_p must be in (0, 1], got 0.0."),
        ({"top_p": 1.1}, "top_p", "top_p must be in (0, 1], got 1.1."),
        ({"top_p": [1]}, "top_p", "`top_p` must be a number, got [1]."),
        ({"seed": 1.5}, "seed", "`seed` must be a 64-bit integer, got 1.5."),
        ({"seed": 2**70}, "seed", "`seed` must be a 64-bit integer, got 1.1805916207174113e+21."),
        ({"stop": 3}, "stop", "`stop` must be a string or a list of strings, got 3."),
        ({"stop": ["a", 3]}, "stop", '`stop` must be a string or a list of strings, got ["a",3].'),
        ({"stop": [""]}, "stop", "stop cannot contain an empty string."),
        ({"stream": "yes"}, "stream", '`stream` must be true or false, got "yes".'),
        ({"ignore_eos": 1}, "ignore_eos", "`ignore_eos` must be true or false, got 1."),
        (
            {"stream_options": {"include_usage": True}},
            "stream_options",
            "Stream options can only be defined when `stream=True`.",
        ),
        (
            {"stream": True, "stream_options": {"include_usage": 1}},
            "stream_options",
            "`stream_options.include_usage` must be true or false, got 1.",
        ),
        ({"stream": True, "stream_options": []}, "stream_options", "`stream_options` must be an object, got []."),
        ({"model": 3}, "model", "`model` must be a string, got 3."),
        ({"prompt": None}, "prompt", "`prompt` must be a string or a list of token ids, got null."),
        ({"prompt": []}, "prompt", "`prompt` must be a string or a list of token ids, got []."),
        ({"prompt": [1, "a"]}, "prompt", '`prompt` must be a string or a list of token ids, got [1,"a"].'),
        ({"prompt": [True]}, "prompt", "`prompt` must be a string or a list of token ids, got [true]."),
        ({"prompt": ["a", "b"]}, "prompt", "`prompt` holds 2 prompts; this engine takes one a request."),
        ({"n": 2}, "n", "`n` is not supported by this engine."),
        ({"logprobs": 0}, "logprobs", "`logprobs` is not supported by this engine."),
        ({"echo": True}, "echo", "`echo` is not supported by this engine."),
        ({"suffix": "x"}, "suffix", "`suffix` is not supported by this engine."),
        ({"best_of": 2}, "best_of", "`best_of` is not supported by this engine."),
        ({"top_k": 5}, "top_k", "`top_k` is not supported by this engine."),
        ({"min_p": 0.1}, "min_p", "`min_p` is not supported by this engine."),
        ({"presence_penalty": 0.1}, "presence_penalty", "`presence_penalty` is not supported by this engine."),
        ({"logit_bias": {"1": 5}}, "logit_bias", "`logit_bias` is not supported by this engine."),
        ({"min_tokens": 3}, "min_tokens", "`min_tokens` is not supported by this engine."),
    ],
)
def test_bad_completion_fields(body: dict[str, Any], param: str, message: str) -> None:
    error = refused(json.dumps({"prompt": "hi"} | body).encode())
    assert error == {"message": message, "type": "BadRequestError", "param": param, "code": 400}


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({}, "messages", "`messages` must be a list of at least one message, got null."),
        ({"messages": []}, "messages", "`messages` must be a list of at least one message, got []."),
        (
            {"messages": [{"content": "x"}]},
            "messages",
            '`messages[0]` must be an object with `role` and `content`, got {"content":"x"}.',
        ),
        (
            {"messages": [*HELLO, {"role": "user", "content": 3}]},
            "messages",
            "`messages[1].content` must be a string or a list of text parts, got 3.",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages",
            '`messages[0].content` must be a string or a list of text parts, got [{"type":"image_url"}].',
        ),
        ({"messages": HELLO, "tools": [{"type": "function"}]}, "tools", "`tools` is not supported by this engine."),
        ({"messages": HELLO, "logprobs": True}, "logprobs", "`logprobs` is not supported by this engine."),
        (
            {"messages": HELLO, "response_format": {"type": "json_object"}},
            "response_format",
            "`response_format` is not supported by this engine.",
        ),
    ],
)
def test_bad_chat_fields(body: dict[str, Any], param: str, message: str) -> None:
    error = refused(json.dumps(body).encode(), chat=True)
    assert error == {"message": message, "type": "BadRequestError", "param": param, "code": 400}


@pytest.mark.parametrize(
    "neutral",
    [
        {"n": 1},
        {"top_k": -1},
        {"top_k": 0},
        {"repetition_penalty": 1.0},
        {"frequency_penalty": 0.0},
        {"logit_bias": {}},
        {"echo": False},
        {"response_format": {"type": "text"}},
        {"add_special_tokens": True},
    ],
)
def test_neutral_values_are_taken(neutral: dict[str, Any]) -> None:
    assert parse(**neutral) == parse()


@pytest.mark.parametrize("raw", [b"", b"{", b'{"prompt": "\\ud800"}', b'{"temperature": NaN}', b"\xff"])
def test_invalid_json(raw: bytes) -> None:
    error = refused(raw)
    assert error["message"].startswith("The body is not valid JSON: ")
    assert error["code"] == 400


def test_body_that_is_no_object() -> None:
    assert refused(b"[]")["message"] == "The body must be a JSON object."


def test_long_values_are_shortened_in_messages() -> None:
    assert len(refused(json.dumps({"prompt": "hi", "stop": {"x" * 1000: 1}}).encode())["message"]) < 130


def test_unknown_model() -> None:
    assert refused(b'{"model": "x", "prompt": "hi"}') == {
        "message": "The model `x` does not exist.",
        "type": "NotFoundError",
        "param": "model",
        "code": 404,
    }


@pytest.mark.parametrize(("asked", "prompt", "given"), [(5, 10, 5), (6, 10, 6), (None, 10, 6), (None, 15, 1)])
def test_fitting_max_tokens(asked: int | None, prompt: int, given: int) -> None:
    assert fitting_max_tokens(asked, prompt, 16) == given


@pytest.mark.parametrize(("asked", "prompt", "total", "out"), [(7, 10, 17, 7), (None, 16, 17, 1), (1, 100, 101, 1)])
def test_prompt_that_does_not_fit(asked: int | None, prompt: int, total: int, out: int) -> None:
    expected = (
        f"This model's maximum context length is 16 tokens. However, you requested {total} tokens "
        f"({prompt} in the messages, {out} in the completion). Please reduce the length of the messages or completion."
    )
    with pytest.raises(ApiError) as caught:
        fitting_max_tokens(asked, prompt, 16)
    assert str(caught.value) == expected


def test_empty_prompt() -> None:
    with pytest.raises(ApiError, match="The decoder prompt cannot be empty"):
        fitting_max_tokens(1, 0, 16)


def events(call: Call, deltas: list[Delta]) -> list[Any]:
    raw = Response(call, "m", 4).events(deltas)
    lines = raw.decode().removesuffix("\n\n").split("\n\n")
    return [json.loads(line.removeprefix("data: ")) if "[DONE]" not in line else line for line in lines]


def test_completion_events() -> None:
    call = parse(stream=True)
    first, last, done = events(call, [Delta('a"\n', 2, None, None), Delta("", 3, "stop", "END")])
    assert first["object"] == "text_completion"
    assert first["id"].startswith("cmpl-")
    assert first["model"] == "m"
    assert first["choices"] == [
        {"index": 0, "text": 'a"\n', "logprobs": None, "finish_reason": None, "stop_reason": None}
    ]
    assert "usage" not in first
    assert last["choices"][0] == first["choices"][0] | {"text": "", "finish_reason": "stop", "stop_reason": "END"}
    assert (last["id"], last["created"]) == (first["id"], first["created"])
    assert done == "data: [DONE]"


def test_chat_events_with_usage() -> None:
    call = parse(chat=True, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    role, first, last, usage, done = events(call, [Delta("a", 2, None, None), Delta("b", 3, "length", None)])
    assert role["object"] == "chat.completion.chunk"
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["choices"][0]["delta"] for chunk in (first, last)] == [{"content": "a"}, {"content": "b"}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in (role, first, last)] == [None, None, "length"]
    assert [chunk["usage"]["completion_tokens"] for chunk in (role, first, last, usage)] == [0, 2, 3, 3]
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 4, "total_tokens": 7, "completion_tokens": 3}
    assert done == "data: [DONE]"


def test_usage_only_at_the_end() -> None:
    call = parse(stream=True, stream_options={"include_usage": True})
    first, usage, _ = events(call, [Delta("a", 2, "length", None)])
    assert "usage" not in first
    assert usage["usage"]["total_tokens"] == 6


@pytest.mark.parametrize(
    ("chat", "said"), [(False, {"text": "ab"}), (True, {"message": {"role": "assistant", "content": "ab"}})]
)
def test_whole_answers(chat: bool, said: dict[str, Any]) -> None:
    raw = Response(parse(chat=chat), "m", 4).whole([Delta("a", 2, None, None), Delta("b", 3, "length", None)])
    answer = json.loads(raw)
    assert answer["object"] == ("chat.completion" if chat else "text_completion")
    assert answer["choices"] == [{"index": 0, **said, "logprobs": None, "finish_reason": "length", "stop_reason": None}]
    assert answer["usage"] == {"prompt_tokens": 4, "total_tokens": 7, "completion_tokens": 3}
