"""What one request asks for, as JSON."""

from __future__ import annotations

import orjson

from avbench.prompts import Draw, Prompt
from avbench.spec.sweep import Workload


def endpoint(workload: Workload) -> str:
    """The route that serves this workload."""
    return "/v1/chat/completions" if workload.chat else "/v1/completions"


def encode_body(draw: Draw, workload: Workload, model: str) -> bytes:
    """The body of a streamed request. `continuous_usage_stats` puts the token count into every chunk."""
    body: dict[str, object] = {
        "model": model,
        **request_settings(workload),
        "seed": draw.seed,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        **prompt_content(draw.prompt, workload),
    }
    return orjson.dumps(body)


def request_settings(workload: Workload) -> dict[str, object]:
    """What all requests of a workload have in common."""
    settings: dict[str, object] = {
        "max_tokens": workload.max_tokens,
        "temperature": workload.sampling.temperature,
        "top_p": workload.sampling.top_p,
    }
    return settings | ({"ignore_eos": True} if workload.ignore_eos else {})


def prompt_content(prompt: Prompt, workload: Workload) -> dict[str, object]:
    """`messages` for the chat endpoint, `prompt` for completions."""
    return {"messages": prompt.as_messages()} if workload.chat else {"prompt": _plain(prompt)}


def _plain(prompt: Prompt) -> str:
    if prompt.text is not None:
        return prompt.text
    return "\n\n".join(message.content for message in prompt.messages or ())
