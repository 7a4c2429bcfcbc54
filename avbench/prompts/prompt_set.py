"""A set of prompts and what identifies it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message of a conversation, as the chat endpoint takes it."""

    role: str
    content: str


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """Either `text`, or a conversation in `messages`: exactly one of them is set."""

    id: str
    text: str | None = None
    messages: tuple[Message, ...] | None = None

    def as_messages(self) -> list[dict[str, str]]:
        """For `/v1/chat/completions`: a text becomes one user message."""
        messages = self.messages or (Message(role="user", content=self.text or ""),)
        return [{"role": message.role, "content": message.content} for message in messages]


@dataclass(frozen=True, kw_only=True)
class PromptSet:
    """Prompts in their file's order."""

    name: str
    prompts: tuple[Prompt, ...]

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of ids and contents in order. The file's place, name and form (keys, gzip) are not part of it."""
        content = [
            [prompt.id, prompt.text, [[message.role, message.content] for message in prompt.messages or ()]]
            for prompt in self.prompts
        ]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
