"""What the HTTP process and the engine core say to each other: pickled values over one socket pair.

The core sends at most one `StepOutput` per engine step. It never waits for a client: the HTTP process reads at once
and buffers what a slow client has not taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Submit:
    """HTTP -> core: a new request. The prompt fits the context; `max_tokens` is already cut to what is left of it."""

    request_id: int
    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int | None
    ignore_eos: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Abort:
    """HTTP -> core: the client went away, or a stop string was found. No answer follows."""

    request_id: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Shutdown:
    """HTTP -> core: leave the loop and exit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """core -> HTTP, once: weights loaded, costs profiled."""

    vocabulary: int
    max_model_len: int
    eos_token_id: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestTokens:
    """The tokens one request got in one step. With `finish` set it is the last word on that request.

    An end-of-text token that ended the request is included in `tokens` (it was generated and counts in usage).
    """

    request_id: int
    tokens: tuple[int, ...]
    finish: FinishReason | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecStep:
    """Speculation in one step, summed over requests. `draft_tokens` counts drafts scheduled, as vLLM does."""

    drafts: int = 0  # requests that had drafts scheduled
    draft_tokens: int = 0
    verified: int = 0
    accepted: int = 0
    accepted_per_position: tuple[int, ...] = field(default=())


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOutput:
    """core -> HTTP, after an engine step (or when requests were only admitted or dropped)."""

    requests: tuple[RequestTokens, ...]
    running: int
    waiting: int
    prompt_tokens: int  # prefilled in this step
    spec: SpecStep | None  # None: no speculative config
