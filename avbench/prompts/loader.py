"""Prompt sets from JSONL: shipped ones by name, and the forms that common data sets come in."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from avbench.errors import UsageError
from avbench.prompts.prompt_set import Message, Prompt, PromptSet
from avbench.spec.prompt_files import prompts_name, resolve_prompts

LEAST_PROMPTS = 2  # one to warm up with, one to measure
_FORMS = "`messages`, `prompt`, `turns`, `question` or `text`"
_ID_KEYS = ("id", "task_id", "question_id")
Record = Mapping[str, Any]


def load_prompts(name_or_path: str, base: Path) -> PromptSet:
    """The set of a workload's `prompts:`; a relative path starts at `base`, the sweep file's folder.

    A line is `{"prompt": text}`, `{"messages": [{"role", "content"}, ...]}`, `{"turns": [text, ...]}` (MT-Bench and
    Spec-Bench: the first turn), `{"question": text}` (GSM8K) or `{"text": text}`; the first of these that is there
    counts, other keys are ignored. Its id is `id`, `task_id`, `question_id` or the line's number.
    Raises UsageError with file and line for everything else.
    """
    path = resolve_prompts(name_or_path, base)
    prompts: dict[str, Prompt] = {}
    lines: dict[str, int] = {}
    for number, line in _lines(path):
        prompt = _parse_line(path, number, line)
        if prompt.id in prompts:
            raise _bad(path, number, f"the id `{prompt.id}` is already on line {lines[prompt.id]}", "make ids unique.")
        prompts[prompt.id], lines[prompt.id] = prompt, number
    if len(prompts) < LEAST_PROMPTS:
        raise UsageError(
            f"{path}: {len(prompts)} prompts, expected at least {LEAST_PROMPTS}",
            hint="warm-up prompts come from outside the measured ones, so a set of one is too small.",
        )
    return PromptSet(name=prompts_name(name_or_path), prompts=tuple(prompts.values()))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered from 1, empty ones left out. Only line feeds end a line: JSON text may hold other separators."""
    for number, raw in enumerate(_read(path).split(b"\n"), start=1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise _bad(path, number, "not UTF-8", "save the file in the encoding UTF-8.") from error
        if line:
            yield number, line


def _read(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: not a whole gzip file: {error}", hint="fetch or compress it again.") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", hint="check the path and its rights.") from error


def _bad(path: Path, number: int, what: str, hint: str) -> UsageError:
    return UsageError(f"{path}:{number}: {what}", hint=hint)


def _parse_line(path: Path, number: int, line: str) -> Prompt:
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        hint = 'each line is one JSON object, such as {"prompt": "..."}.'
        raise _bad(path, number, f"not valid JSON: {error}", hint) from error
    if not isinstance(record, dict):
        raise _bad(path, number, "not a JSON object", f"each line is an object with {_FORMS}.")
    try:
        return _prompt(_identifier(record, number), record)
    except _FormError as error:
        raise _bad(path, number, str(error), f"each line is an object with {_FORMS}.") from error


class _FormError(ValueError):
    """What is wrong with one line; the place is added by the caller."""


def _identifier(record: Record, number: int) -> str:
    for key in _ID_KEYS:
        value = record.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise _FormError(f"`{key}` is {_kind(value)}, expected text or a whole number")
        return _sendable(str(value), key)
    return str(number)


def _prompt(identifier: str, record: Record) -> Prompt:
    for key, parse in _PARSERS.items():
        if key in record:
            return parse(identifier, key, record[key])
    keys = ", ".join(f"`{key}`" for key in list(record)[:5]) or "no keys"
    raise _FormError(f"no prompt: has {keys}")


def _from_text(identifier: str, key: str, value: object) -> Prompt:
    return Prompt(id=identifier, text=_text(value, key))


def _from_turns(identifier: str, key: str, value: object) -> Prompt:
    if not isinstance(value, list) or not value:
        raise _FormError(f"`{key}` is {_kind(value)}, expected a list of texts")
    return Prompt(id=identifier, text=_text(value[0], f"{key}[0]"))


def _from_messages(identifier: str, key: str, value: object) -> Prompt:
    if not isinstance(value, list) or not value:
        raise _FormError(f"`{key}` is {_kind(value)}, expected a list of messages")
    return Prompt(id=identifier, messages=tuple(_message(item, f"{key}[{at}]") for at, item in enumerate(value)))


def _message(item: object, key: str) -> Message:
    if not isinstance(item, dict):
        raise _FormError(f"`{key}` is {_kind(item)}, expected a mapping with `role` and `content`")
    return Message(role=_text(item.get("role"), f"{key}.role"), content=_text(item.get("content"), f"{key}.content"))


def _text(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise _FormError(f"`{key}` is {_kind(value)}, expected text")
    if not value.strip():
        raise _FormError(f"`{key}` is blank")
    return _sendable(value, key)


def _sendable(value: str, key: str) -> str:
    """JSON can spell half a character (a lone surrogate), which no server can be sent."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _FormError(f"`{key}` holds half a character (U+{ord(value[error.start]):04X})") from error
    return value


def _kind(value: object) -> str:
    if value is None:
        return "missing"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a mapping"}
    return f"an empty {names[type(value)].removeprefix('a ')}" if value in ("", [], {}) else names[type(value)]


_PARSERS: dict[str, Callable[[str, str, object], Prompt]] = {
    "messages": _from_messages,
    "prompt": _from_text,
    "turns": _from_turns,
    "question": _from_text,
    "text": _from_text,
}
