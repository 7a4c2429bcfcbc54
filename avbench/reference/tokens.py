"""The checkpoint's tokenizer without transformers: text to ids, the bytes of each id, chat messages to text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from avbench.errors import UsageError


class ModelTokenizer:
    """`tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` of a checkpoint folder."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            hint = "save the tokenizer with transformers' `save_pretrained`; slow tokenizers are not supported"
            raise UsageError(f"`{folder}` has no `tokenizer.json`", hint=hint)
        try:
            config = _read_config(folder / "tokenizer_config.json")
            layout = json.loads(path.read_text(encoding="utf-8"))
            self._tokenizer = Tokenizer.from_file(str(path))
            self._template = _template(folder, config)
        except Exception as error:  # `tokenizers` raises nothing narrower
            raise UsageError(f"the tokenizer of `{folder}` cannot be read: {error}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._special = dict(_special_tokens(config))
        self.pieces = _pieces(self._tokenizer, layout, path)

    def encode(self, text: str, *, special: bool) -> tuple[int, ...]:
        """Ids of `text`; `special` adds what the tokenizer's post-processor puts round it (a begin token)."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def render(self, messages: list[dict[str, Any]]) -> str:
        """The prompt text of a conversation, ready for the answer. Raises ValueError when the template refuses it."""
        if self._template is None:
            raise ValueError("this model has no chat template; use /v1/completions")
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._special)
        except (TemplateError, TypeError, KeyError) as error:
            raise ValueError(f"the chat template refuses these messages: {error}") from None


def _read_config(path: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return config


def _pieces(tokenizer: Tokenizer, layout: dict[str, Any], path: Path) -> dict[int, bytes]:
    """Bytes of every id that has text; special tokens have none, as with vLLM's default `skip_special_tokens`."""
    decoder = layout.get("decoder") or {}
    kinds = {part["type"] for part in decoder.get("decoders", [decoder]) if "type" in part}
    special = {token["id"] for token in layout.get("added_tokens", []) if token["special"]}
    vocabulary = {
        id_: token for token, id_ in tokenizer.get_vocab(with_added_tokens=True).items() if id_ not in special
    }
    if "ByteLevel" in kinds:
        alphabet = byte_alphabet()
        return {id_: _byte_level(token, alphabet) for id_, token in vocabulary.items()}
    if "ByteFallback" in kinds:
        return {id_: _byte_fallback(token) for id_, token in vocabulary.items()}
    hint = "byte-level BPE and SentencePiece with byte fallback are"
    raise UsageError(f"`{path}`: the decoder {sorted(kinds)} is not supported", hint=hint)


def byte_alphabet() -> dict[str, int]:
    """GPT-2's one printable character per byte: itself where printable, else the next code point from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = sorted(set(range(256)) - set(printable))
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(hidden)}


def _byte_level(token: str, alphabet: Mapping[str, int]) -> bytes:
    """An added token may hold characters outside the alphabet (a space): it is its own text, as in `tokenizers`."""
    values = [alphabet.get(character, -1) for character in token]
    return token.encode() if -1 in values else bytes(values)


def _byte_fallback(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("\u2581", " ").encode()


def _special_tokens(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """`bos_token` and the like, saved as a string or as an object with `content`."""
    for key, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(text, str):
            yield key, text


def _template(folder: Path, config: dict[str, Any]) -> Template | None:
    """transformers 5 saves `chat_template.jinja`; before that the template stood in `tokenizer_config.json`."""
    path = folder / "chat_template.jinja"
    source = path.read_text(encoding="utf-8") if path.is_file() else config.get("chat_template")
    if isinstance(source, list):
        source = next((item["template"] for item in source if item["name"] == "default"), None)
    if source is None:
        return None
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    return environment.from_string(source)


def _to_json(value: object, indent: int | None = None) -> str:
    """Jinja's own filter escapes HTML; a prompt must not be."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)
