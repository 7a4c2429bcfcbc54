"""Frozen dataclasses to JSON and back, strictly: a missing key or a wrong type is an error, never a guess."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union

T = TypeVar("T")


def encode(value: Any) -> Any:
    """JSON-ready form. Raises ValueError for NaN and infinity: an absent number is None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} cannot be recorded")
    return value


def decode(kind: type[T], data: Any) -> T:
    """Build a dataclass from JSON. Raises ValueError that names the field; keys it does not know are ignored."""
    return typing.cast(T, _decode(kind, data, kind.__name__))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(kind: Any, data: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _decode_dataclass(kind, data, where)
    if origin in (Union, types.UnionType):
        return _decode_union(arguments, data, where)
    if origin is Literal:
        return _checked(data in arguments, data, where)
    if origin is tuple:
        entries = _checked(isinstance(data, list), data, where)
        kinds = arguments[:1] * len(entries) if arguments[-1] is Ellipsis else arguments
        _checked(len(kinds) == len(entries), data, where)
        return tuple(
            _decode(entry_kind, entry, f"{where}[{i}]")
            for i, (entry_kind, entry) in enumerate(zip(kinds, entries, strict=True))
        )
    if origin is not None and issubclass(origin, Mapping):
        _checked(isinstance(data, dict), data, where)
        return {key: _decode(arguments[1], entry, f"{where}.{key}") for key, entry in data.items()}
    if kind is float:
        return float(_checked(isinstance(data, (int, float)) and not isinstance(data, bool), data, where))
    return _checked(isinstance(data, kind) and not (kind is int and isinstance(data, bool)), data, where)


def _decode_dataclass(kind: type, data: Any, where: str) -> Any:
    _checked(isinstance(data, dict), data, where)
    hints = _hints(kind)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name in data:
            values[field.name] = _decode(hints[field.name], data[field.name], f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{where}.{field.name} is missing")
    return kind(**values)


def _decode_union(arguments: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in arguments:
        return None
    (rest,) = (kind for kind in arguments if kind is not type(None))
    return _decode(rest, data, where)


def _checked(fine: bool, data: Any, where: str) -> Any:
    if not fine:
        raise ValueError(f"{where} has the unexpected value {data!r:.80}")
    return data
