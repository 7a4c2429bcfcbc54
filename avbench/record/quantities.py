"""What avbench measures. Each quantity stands here once: its name, unit, definition and the function that computes it.

The report quotes the definitions. A request counts when it ended without an error; its tokens are the server's own
usage figures (`RequestTrace.chunk_tokens`), never the number of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from avbench.record.measurement import RequestTrace, SpecCounters
from avbench.spec.arm import Arm

Window = tuple[float, float]


def ttft(trace: RequestTrace) -> float | None:
    """Seconds to the first token; None without a token."""
    return trace.chunk_times[0] - trace.sent if trace.chunk_times else None


def e2el(trace: RequestTrace) -> float | None:
    """Seconds to the last token; None without a token."""
    return trace.chunk_times[-1] - trace.sent if trace.chunk_times else None


def tpot(trace: RequestTrace) -> float | None:
    """Seconds per output token after the first; None for fewer than two tokens."""
    first, last, tokens = ttft(trace), e2el(trace), trace.output_tokens
    if first is None or last is None or tokens is None or tokens < 2:
        return None
    return (last - first) / (tokens - 1)


def interactivity(trace: RequestTrace) -> float | None:
    """Tokens per second after the first chunk; None when no time passed after it."""
    if trace.output_tokens is None or len(trace.chunk_times) < 2:
        return None
    seconds = trace.chunk_times[-1] - trace.chunk_times[0]
    return (trace.output_tokens - trace.chunk_tokens[0]) / seconds if seconds > 0 else None


def step_gaps(trace: RequestTrace) -> tuple[float, ...]:
    """Seconds between neighbouring chunks with tokens."""
    return tuple(after - before for before, after in pairwise(trace.chunk_times))


def dispatched_inside(traces: Iterable[RequestTrace], window: Window) -> list[RequestTrace]:
    """The measured requests that were sent inside the window, whenever they ended."""
    start, end = window
    return [trace for trace in traces if trace.phase == "measured" and start <= trace.sent <= end]


def steady_throughput(traces: Iterable[RequestTrace], window: Window) -> float | None:
    """Tokens per second inside the window; None if it has no length."""
    start, end = window
    if end <= start:
        return None
    arrived = sum(
        tokens
        for trace in traces  # also of requests that failed later: these tokens did arrive
        for time, tokens in zip(trace.chunk_times, trace.chunk_tokens, strict=True)
        if start < time <= end
    )
    return arrived / (end - start)


def throughput_per_gpu(steady: float, gpus: int) -> float:
    """Tokens per second per GPU; `gpus` is tp x pp x dp of the engine."""
    return steady / gpus


def output_throughput(traces: Sequence[RequestTrace], end: float) -> float | None:
    """Tokens per second from the first send to `end` (s, the window's end); None without a token."""
    start = min((trace.sent for trace in traces), default=end)
    rate = steady_throughput(traces, (start, end))
    return rate or None


def acceptance_length(counters: SpecCounters) -> float | None:
    """Tokens per drafted request-step, bonus token included; None when nothing was drafted."""
    return 1.0 + counters.accepted / counters.drafts if counters.drafts else None


def verified_drafts(counters: SpecCounters, arm: Arm) -> int | None:
    """Drafts that the target verified; without adaptive verification all that were scheduled are."""
    return counters.verified if arm.kind == "adaptive" else counters.draft_tokens


def acceptance_rate(counters: SpecCounters, arm: Arm) -> float | None:
    """Accepted per verified draft, 0 to 1; None when none was verified or the server does not count them."""
    verified = verified_drafts(counters, arm)
    return counters.accepted / verified if verified else None


def acceptance_per_position(counters: SpecCounters) -> tuple[float, ...] | None:
    """Accepted at each draft position per drafted request-step, 0 to 1; None when nothing was drafted."""
    if not counters.drafts:
        return None
    return tuple(accepted / counters.drafts for accepted in counters.accepted_per_position)


def conditional_acceptance(per_position: Sequence[float]) -> tuple[float | None, ...]:
    """Accepted at k given that all before k were accepted; None where none was."""
    before = (1.0, *per_position)
    return tuple(here / previous if previous else None for previous, here in zip(before, per_position, strict=False))


def verified_per_request_step(counters: SpecCounters, arm: Arm) -> float | None:
    """Verified drafts per drafted request-step; None when nothing was drafted or the server does not count them."""
    verified = verified_drafts(counters, arm)
    return verified / counters.drafts if counters.drafts and verified is not None else None


def tokens_per_request_step(traces: Iterable[RequestTrace]) -> float | None:
    """Tokens after the first chunk per chunk after the first; None without such chunks."""
    later = [trace.chunk_tokens[1:] for trace in traces if trace.ok]
    steps = sum(len(tokens) for tokens in later)
    return sum(sum(tokens) for tokens in later) / steps if steps else None


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """One entry of the glossary. `compute` takes what its own signature says."""

    name: str
    unit: str
    definition: str
    compute: Callable[..., object]


def _glossary(*quantities: Quantity) -> Mapping[str, Quantity]:
    return MappingProxyType({quantity.name: quantity for quantity in quantities})


QUANTITIES: Mapping[str, Quantity] = _glossary(
    Quantity(
        name="ttft",
        unit="s",
        definition="first token - request sent. The first token comes with the first chunk that has content, reasoning "
        "text or a tool call, or whose usage says completion_tokens > 0; a chunk with only a role never counts.",
        compute=ttft,
    ),
    Quantity(name="e2el", unit="s", definition="last token - request sent.", compute=e2el),
    Quantity(
        name="tpot",
        unit="s",
        definition="(e2el - ttft) / (output tokens - 1), per request: vLLM's form, kept for parity. Undefined for one "
        "token. With speculation the first chunk may carry several tokens, and this form then flatters.",
        compute=tpot,
    ),
    Quantity(
        name="interactivity",
        unit="tok/s/user",
        definition="(output tokens - tokens of the first chunk) / (last token - first token), per request: right when "
        "the first chunk carries several tokens. Median over requests; the slow tail is its 5th percentile.",
        compute=interactivity,
    ),
    Quantity(
        name="itl",
        unit="s",
        definition="step gap: time between neighbouring chunks of a stream. With speculation one chunk is one engine "
        "step with several tokens, so this is not the time per token.",
        compute=step_gaps,
    ),
    Quantity(
        name="steady_throughput",
        unit="tok/s",
        definition="output tokens that arrived inside the steady window / its length. The window opens when the first "
        "C requests of the loop have their first token and one mean request time has passed since, and the warm-up "
        "rule is met; it ends when the last measured request is dispatched. The load is kept up until all measured "
        "requests have ended.",
        compute=steady_throughput,
    ),
    Quantity(
        name="throughput_per_gpu",
        unit="tok/s/GPU",
        definition="steady throughput / GPUs of the engine (tp x pp x dp).",
        compute=throughput_per_gpu,
    ),
    Quantity(
        name="output_throughput",
        unit="tok/s",
        definition="output tokens that arrived from the first send to the end of the steady window, warm-up included "
        "because the loop does not pause after it / that time. `vllm bench serve` divides by the time to the last "
        "token; here the load is kept up to the end, so there is no thinning tail to divide by.",
        compute=output_throughput,
    ),
    Quantity(
        name="acceptance_length",
        unit="tokens",
        definition="1 + accepted / drafts from the server's counters over the window, bonus token included. A drafts "
        "counter skips steps in which nothing was drafted: between arms with and without such steps compare "
        "tokens per request-step.",
        compute=acceptance_length,
    ),
    Quantity(
        name="acceptance_rate",
        unit="fraction",
        definition="accepted / draft tokens; under adaptive verification accepted / verified drafts, because there the "
        "server's draft tokens count drafts that were never verified.",
        compute=acceptance_rate,
    ),
    Quantity(
        name="acceptance_per_position",
        unit="fraction",
        definition="accepted at draft position k / drafts (unconditional).",
        compute=acceptance_per_position,
    ),
    Quantity(
        name="verified_per_request_step",
        unit="drafts",
        definition="drafts that the target verified / request-steps in which drafts were scheduled. Per request, not "
        "per engine step: the two differ by the batch size.",
        compute=verified_per_request_step,
    ),
    Quantity(
        name="tokens_per_request_step",
        unit="tokens",
        definition="output tokens after the first chunk / chunks after the first: one chunk is one engine step of one "
        "request.",
        compute=tokens_per_request_step,
    ),
)
