"""Bodies and server-sent events of the two generation routes, key by key as vLLM sends them.

A chunk is built from parts that are serialised once per request; per step only the text goes through orjson.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from avbench.reference.messages import FinishReason
from avbench.reference.protocol import Call

DONE = b"data: [DONE]\n\n"


class Delta(NamedTuple):
    """What one request got in one engine step."""

    text: str
    completion_tokens: int  # generated so far, this step included
    finish: FinishReason | None
    stop_reason: str | None  # the stop string that was found


def error_event(body: bytes) -> bytes:
    """A stream's last words when the engine fails."""
    return b"data: " + body + b"\n\n"


class Response:
    """The answer to one request, whole or in chunks."""

    def __init__(self, call: Call, model: str, prompt_tokens: int) -> None:
        self._call = call
        self._prompt_tokens = prompt_tokens
        kind = ("chatcmpl", "chat.completion") if call.chat else ("cmpl", "text_completion")
        self._head = {"id": f"{kind[0]}-{uuid.uuid4().hex}", "object": kind[1], "created": int(time.time())}
        self._head["model"] = model
        self._event = self._event_head()
        self._before_text, self._after_text = (b'"delta":{"content":', b"}") if call.chat else (b'"text":', b"")
        self._role_due = call.chat

    def whole(self, deltas: Iterable[Delta]) -> bytes:
        """The JSON body of an answer that is not streamed."""
        deltas = list(deltas)
        text, last = "".join(delta.text for delta in deltas), deltas[-1]
        said: dict[str, Any] = (
            {"message": {"role": "assistant", "content": text}} if self._call.chat else {"text": text}
        )
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": last.finish, "stop_reason": last.stop_reason}
        return orjson.dumps(self._head | {"choices": [choice], "usage": self._usage(last.completion_tokens)})

    def events(self, deltas: Iterable[Delta]) -> bytes:
        """One event per delta. Before the first: the role of a chat. After the last: usage if asked for, and DONE."""
        parts: list[bytes] = []
        for delta in deltas:
            if self._role_due:
                self._role_due = False
                parts.append(self._role())
            parts.append(self._chunk(delta))
            if delta.finish is not None:
                parts.append(self._end(delta.completion_tokens))
        return b"".join(parts)

    def _event_head(self) -> bytes:
        kind = "chat.completion.chunk" if self._call.chat else "text_completion"
        return b"data: " + orjson.dumps(self._head | {"object": kind})[:-1] + b',"choices":['

    def _role(self) -> bytes:
        said = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        return b"".join([self._event, said, self._usage_member(0), b"}\n\n"])

    def _chunk(self, delta: Delta) -> bytes:
        finish = b"null" if delta.finish is None else orjson.dumps(delta.finish)
        stop = b"null" if delta.stop_reason is None else orjson.dumps(delta.stop_reason)
        return b'%b{"index":0,%b%b%b,"logprobs":null,"finish_reason":%b,"stop_reason":%b}]%b}\n\n' % (
            self._event,
            self._before_text,
            orjson.dumps(delta.text),
            self._after_text,
            finish,
            stop,
            self._usage_member(delta.completion_tokens),
        )

    def _end(self, completion_tokens: int) -> bytes:
        if not self._call.include_usage:
            return DONE
        usage = orjson.dumps(self._usage(completion_tokens))
        return b"".join([self._event, b'],"usage":', usage, b"}\n\n", DONE])

    def _usage(self, completion_tokens: int) -> dict[str, int]:
        total = self._prompt_tokens + completion_tokens
        return {"prompt_tokens": self._prompt_tokens, "total_tokens": total, "completion_tokens": completion_tokens}

    def _usage_member(self, completion_tokens: int) -> bytes:
        if not self._call.continuous_usage:
            return b""
        total = self._prompt_tokens + completion_tokens
        return b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}' % (
            self._prompt_tokens,
            total,
            completion_tokens,
        )
