"""What a generation request may say. Wording and defaults are vLLM's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from avbench.reference import fields
from avbench.reference.fields import ApiError, Body

COMPLETION_MAX_TOKENS = 16  # the default of /v1/completions; a chat may fill the context

# Fields this engine does not have, with the values that change nothing. Anything else in one of them is an error: the
# answer would not be what was asked for. Fields not listed here are ignored, as vLLM does.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "top_k": (0, -1),
    "min_p": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "min_tokens": (0,),
    "stop_token_ids": ([],),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "prompt_embeds": (),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "tools": ([],),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "structured_outputs": ({},),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "documents": ([],),
}
NEUTRAL_BY_KIND: dict[bool, dict[str, tuple[object, ...]]] = {
    False: NEUTRAL | {"logprobs": (), "add_special_tokens": (True,)},  # logprobs 0 asks for the sampled token's
    True: NEUTRAL | {"add_special_tokens": (False,)},
}


@dataclass(frozen=True, kw_only=True)
class Call:
    """One checked generation request. Exactly one of `prompt` and `messages` is set."""

    prompt: str | tuple[int, ...] | None
    messages: tuple[dict[str, Any], ...] | None
    max_tokens: int | None
    temperature: float
    top_p: float
    seed: int | None
    stop: tuple[str, ...]
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool

    @property
    def chat(self) -> bool:
        """Whether this is a chat completion."""
        return self.messages is not None


def parse_call(raw: bytes, *, chat: bool, served: str) -> Call:
    """Check a body against everything that can be known without a tokenizer. Raises ApiError that names the field."""
    body = _object(raw)
    _check_model(body, served)
    for field, neutral in NEUTRAL_BY_KIND[chat].items():
        if body.get(field) is not None and body[field] not in neutral:
            raise ApiError(f"`{field}` is not supported by this engine.", param=field)
    stream = fields.get_field(body, "stream", bool, "true or false", False)
    usage, continuous = fields.stream_options(body, stream)
    return Call(
        prompt=None if chat else fields.prompt(body.get("prompt")),
        messages=fields.messages(body.get("messages")) if chat else None,
        max_tokens=fields.max_tokens(body, None if chat else COMPLETION_MAX_TOKENS),
        temperature=fields.temperature(body),
        top_p=fields.top_p(body),
        seed=fields.seed(body),
        stop=fields.stop_strings(body.get("stop")),
        ignore_eos=fields.get_field(body, "ignore_eos", bool, "true or false", False),
        stream=stream,
        include_usage=usage,
        continuous_usage=continuous,
    )


def fitting_max_tokens(asked: int | None, prompt_tokens: int, context: int) -> int:
    """`asked`, or all that is left of the context. Raises ApiError when prompt and answer do not fit."""
    if prompt_tokens == 0:
        raise ApiError("The decoder prompt cannot be empty", param="prompt")
    wanted = 1 if asked is None else asked
    if prompt_tokens + wanted > context:
        raise ApiError(
            f"This model's maximum context length is {context} tokens. However, you requested "
            f"{prompt_tokens + wanted} tokens ({prompt_tokens} in the messages, {wanted} in the completion). "
            "Please reduce the length of the messages or completion.",
            param="input_tokens",
        )
    return context - prompt_tokens if asked is None else asked


def _object(raw: bytes) -> Body:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiError(f"The body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise ApiError("The body must be a JSON object.")
    return body


def _check_model(body: Body, served: str) -> None:
    model = fields.get_field(body, "model", str, "a string", served)
    if model != served:
        raise ApiError(f"The model `{model}` does not exist.", param="model", code=404, kind="NotFoundError")
