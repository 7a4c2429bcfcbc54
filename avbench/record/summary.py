"""From raw requests and counters to the figures of one cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from avbench.record.measurement import Percentiles, RequestTrace, SpecCounters, Summary
from avbench.record.quantities import (
    Window,
    acceptance_length,
    acceptance_per_position,
    acceptance_rate,
    dispatched_inside,
    e2el,
    interactivity,
    output_throughput,
    steady_throughput,
    step_gaps,
    tokens_per_request_step,
    tpot,
    ttft,
    verified_per_request_step,
)
from avbench.spec.arm import Arm


def summarise(traces: Sequence[RequestTrace], window: Window, counters: SpecCounters | None, arm: Arm) -> Summary:
    """`window` in seconds on the traces' clock. Latencies are over requests dispatched inside it that ended well."""
    sent = dispatched_inside(traces, window)
    good = [trace for trace in sent if trace.ok]
    too_long = sum(trace.too_long for trace in sent)
    return Summary(
        requests=len(sent),
        failed=len(sent) - len(good) - too_long,
        too_long=too_long,
        output_tokens=sum(trace.output_tokens or 0 for trace in good),
        prompt_tokens=sum(trace.prompt_tokens or 0 for trace in good),
        window_seconds=window[1] - window[0],
        steady_throughput=steady_throughput(traces, window),
        output_throughput=output_throughput(traces, window[1]),
        interactivity=_over_requests(interactivity, good),
        ttft=_over_requests(ttft, good),
        tpot=_over_requests(tpot, good),
        itl=percentiles(gap for trace in good for gap in step_gaps(trace)),
        e2el=_over_requests(e2el, good),
        acceptance_length=acceptance_length(counters) if counters else None,
        acceptance_rate=acceptance_rate(counters, arm) if counters else None,
        acceptance_per_position=acceptance_per_position(counters) if counters else None,
        verified_per_request_step=verified_per_request_step(counters, arm) if counters else None,
        tokens_per_request_step=tokens_per_request_step(good),
        finish_reasons=dict(sorted(Counter(trace.finish_reason or "unknown" for trace in good).items())),
    )


def percentiles(values: Iterable[float]) -> Percentiles | None:
    """Linear interpolation between order statistics; None without values."""
    numbers = np.fromiter(values, dtype=np.float64)
    if numbers.size == 0:
        return None
    p5, p50, p95, p99 = (float(value) for value in np.percentile(numbers, (5, 50, 95, 99)))
    return Percentiles(mean=float(numbers.mean()), p5=p5, p50=p50, p95=p95, p99=p99, n=int(numbers.size))


def _over_requests(
    quantity: Callable[[RequestTrace], float | None], traces: Iterable[RequestTrace]
) -> Percentiles | None:
    values = (quantity(trace) for trace in traces)
    return percentiles(value for value in values if value is not None)
