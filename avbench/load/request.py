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
        "max_tokens": workload.max_tokens,
        "temperature": workload.sampling.temperature,
        "top_p": workload.sampling.top_p,
        "seed": draw.seed,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    if workload.chat:
        body["messages"] = draw.prompt.as_messages()
    else:
        body["prompt"] = _plain(draw.prompt)
    if workload.ignore_eos:
        body["ignore_eos"] = True
    return orjson.dumps(body)


def _plain(prompt: Prompt) -> str:
    if prompt.text is not None:
        return prompt.text
    return "\n\n".join(message.content for message in prompt.messages or ())
