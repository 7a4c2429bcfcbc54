"""What was measured in one cell, as it is kept on disk. Raw values live beside it in `requests.parquet`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SCHEMA = 1
Status = Literal["done", "failed", "cancelled"]
TOO_LONG = "too_long: "  # starts the error of a request whose prompt exceeds the model's context


@dataclass(frozen=True, kw_only=True)
class RequestTrace:
    """One request as the client saw it. Times are seconds of the client's monotonic clock, from the cell's start.

    `chunk_times[i]` is when the i-th chunk with tokens arrived and `chunk_tokens[i]` how many output tokens it
    brought, by the server's own usage figures; the two have one length.
    """

    index: int  # position in the dispatch order of its phase
    prompt_id: str
    sample: int  # which walk over the prompt set
    seed: int
    phase: Literal["warmup", "measured"]
    sent: float
    chunk_times: tuple[float, ...]
    chunk_tokens: tuple[int, ...]
    prompt_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None
    error: str | None
    status: int | None  # HTTP status, None if there was no answer

    @property
    def ok(self) -> bool:
        """Ended as the protocol demands."""
        return self.error is None

    @property
    def too_long(self) -> bool:
        """The server refused the prompt because it exceeds the model's context."""
        return self.error is not None and self.error.startswith(TOO_LONG)


@dataclass(frozen=True, kw_only=True)
class SpecCounters:
    """Differences of the server's counters over the steady window. None: the server does not say."""

    drafts: int  # request-steps in which drafts were scheduled
    draft_tokens: int  # drafts SCHEDULED; under AV this is more than were verified
    accepted: int
    accepted_per_position: tuple[int, ...]
    verified: int | None
    generation_tokens: int
    preemptions: int | None


@dataclass(frozen=True, kw_only=True)
class Percentiles:
    """Of one quantity over the requests that count."""

    mean: float
    p5: float
    p50: float
    p95: float
    p99: float
    n: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Figures derived from the raw values; definitions in `record/quantities.py`. Seconds; absent is None."""

    requests: int  # dispatched inside the steady window: those whose latencies count
    failed: int
    too_long: int  # prompts the server refused because they exceed the context
    output_tokens: int
    prompt_tokens: int
    window_seconds: float
    steady_throughput: float | None  # tok/s
    output_throughput: float | None  # tok/s
    interactivity: Percentiles | None  # tok/s/user
    ttft: Percentiles | None
    tpot: Percentiles | None
    itl: Percentiles | None
    e2el: Percentiles | None
    acceptance_length: float | None
    acceptance_rate: float | None  # accepted / verified under AV, accepted / draft tokens else
    acceptance_per_position: tuple[float, ...] | None  # unconditional
    verified_per_request_step: float | None
    tokens_per_request_step: float | None
    finish_reasons: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class CellFailure:
    """Why a cell has no figures."""

    kind: str  # `engine_died`, `start_timeout`, `all_requests_failed`, `timeout`, `cancelled`, ...
    reason: str


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The record of one cell."""

    schema: int
    cell_id: str
    identity: str
    arm: str  # Arm.id
    workload: str
    concurrency: int
    pass_number: int
    status: Status
    failure: CellFailure | None
    started_at: str  # ISO 8601, UTC
    clock_epoch: float  # Unix time at which the cell's monotonic clock read 0: joins client times with the trace
    window: tuple[float, float] | None  # steady window, s on the cell's clock
    warmup_requests: int
    server: str  # folder under `servers/`
    server_steps: tuple[int, int] | None  # first and last engine step inside the window, from the trace
    estimator_state: Literal["fresh", "carried"] | None  # None: not an adaptive arm
    loads_before: tuple[str, ...]
    counters: SpecCounters | None
    summary: Summary | None
    notes: tuple[str, ...] = ()  # doubts of the measuring code itself, in words
    clock: Literal["emulated"] | None = None  # its seconds are virtual, taken from a cost table; None: real
