"""Checks of single request fields, and the error they raise. Wording and shapes are vLLM's."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any, TypeVar

import orjson

Body = dict[str, Any]
Type = TypeVar("Type")
MAX_TEMPERATURE = 1e6  # text is uniform noise long before; float32 ends at 3e38
MIN_TEMPERATURE = 0.01  # as in vLLM: below it the division overflows before the text changes


class ApiError(Exception):
    """An error answer: `{"error": {"message", "type", "param", "code"}}`."""

    def __init__(
        self, message: str, *, param: str | None = None, code: int = 400, kind: str = "BadRequestError"
    ) -> None:
        super().__init__(message)
        self.code = code
        self.too_long = param == "input_tokens"  # prompt and answer do not fit the context
        self._error = {"message": message, "type": kind, "param": param, "code": code}

    @classmethod
    def of_status(cls, code: int) -> ApiError:
        """No route, wrong method, body too large: the status' own phrase."""
        phrase = HTTPStatus(code).phrase
        return cls(phrase, code=code, kind=phrase)

    def body(self) -> bytes:
        """The JSON body."""
        return orjson.dumps({"error": self._error})


def wrong_type(field: str, value: object, expected: str) -> ApiError:
    shown = orjson.dumps(value).decode()
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return ApiError(f"`{field}` must be {expected}, got {shown}.", param=field.split(".")[0].split("[")[0])


def get_field(body: Body, field: str, kind: type[Type], expected: str, default: Type, where: str = "") -> Type:
    """The field's value if it is of `kind`; the default when it is absent or null. A bool is no number."""
    value = body.get(field)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise wrong_type(where + field, value, expected)
    return value


def _number(body: Body, field: str, default: float) -> float:
    value = body.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    value = get_field(body, field, float, "a number", default)
    if not math.isfinite(value):
        raise wrong_type(field, value, "a finite number")
    return value


def temperature(body: Body) -> float:
    value = _number(body, "temperature", 1.0)
    if value < 0:
        raise ApiError(f"temperature must be non-negative, got {value}.", param="temperature")
    if value > MAX_TEMPERATURE:
        raise ApiError(f"temperature must be at most {MAX_TEMPERATURE:g}, got {value}.", param="temperature")
    return max(value, MIN_TEMPERATURE) if value else 0.0


def top_p(body: Body) -> float:
    value = _number(body, "top_p", 1.0)
    if not 0 < value <= 1:
        raise ApiError(f"top_p must be in (0, 1], got {value}.", param="top_p")
    return value


def seed(body: Body) -> int | None:
    """vLLM: any 64-bit integer, -1 means none. Other negative seeds are folded into [0, 2**63)."""
    value = get_field(body, "seed", int, "a 64-bit integer", -1)
    return None if value == -1 else value % 2**63


def max_tokens(body: Body, default: int | None) -> int | None:
    for field in ("max_completion_tokens", "max_tokens"):
        value = body.get(field)
        if value is not None:
            value = get_field(body, field, int, "an integer", 0)
            if value < 1:
                raise ApiError(f"{field} must be at least 1, got {value}.", param=field)
            return value
    return default


def stop_strings(value: object) -> tuple[str, ...]:
    strings = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(strings, list) or not all(isinstance(string, str) for string in strings):
        raise wrong_type("stop", value, "a string or a list of strings")
    if "" in strings:
        raise ApiError("stop cannot contain an empty string.", param="stop")
    return tuple(strings)


def stream_options(body: Body, stream: bool) -> tuple[bool, bool]:
    """(usage at the end, usage in every chunk); the second needs the first, as in vLLM."""
    options: Body = get_field(body, "stream_options", dict, "an object", {})
    if options and not stream:
        raise ApiError("Stream options can only be defined when `stream=True`.", param="stream_options")
    asked = [
        get_field(options, field, bool, "true or false", False, "stream_options.")
        for field in ("include_usage", "continuous_usage_stats")
    ]
    return asked[0], all(asked)


def prompt(value: object) -> str | tuple[int, ...]:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        if all(isinstance(token, int) and not isinstance(token, bool) for token in value):
            return tuple(value)
        if all(isinstance(item, str | list) for item in value):
            if len(value) > 1:
                raise ApiError(f"`prompt` holds {len(value)} prompts; this engine takes one a request.", param="prompt")
            return prompt(value[0])
    raise wrong_type("prompt", value, "a string or a list of token ids")


def messages(value: object) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list) or not value:
        raise wrong_type("messages", value, "a list of at least one message")
    return tuple(_message(message, f"messages[{at}]") for at, message in enumerate(value))


def _message(message: object, where: str) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise wrong_type(where, message, "an object with `role` and `content`")
    return message | {"content": _content(message.get("content"), f"{where}.content")}


def _content(content: object, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    if not parts or len(texts) != len(parts):
        raise wrong_type(where, content, "a string or a list of text parts")
    return "\n".join(texts)
