"""`/metrics` with vLLM's names. A step adds to plain integers; the Prometheus objects are made when somebody asks."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from avbench.reference.messages import FinishReason, SpecStep, StepOutput

ENGINE = "0"
LABELS = ("model_name", "engine")
# vLLM's bounds, seconds.
TTFT_BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0)
ITL_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
E2E_BOUNDS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0)


class RequestTimes:
    """When a request came and when it last got tokens (monotonic seconds)."""

    __slots__ = ("arrived", "last_token")

    def __init__(self, arrived: float) -> None:
        self.arrived = arrived
        self.last_token: float | None = None


class Histogram:
    """Counts per bucket and the sum, in seconds."""

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self._name, self._text = name, text
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """A bucket holds values up to and including its bound."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def family(self, labels: Sequence[str]) -> Metric:
        """Cumulative, as Prometheus wants it."""
        bounds = [*(repr(bound) for bound in self._bounds), "+Inf"]
        buckets = list(zip(bounds, itertools.accumulate(self._counts), strict=True))
        family = HistogramMetricFamily(self._name, self._text, labels=LABELS)
        family.add_metric(labels, buckets, self._sum)
        return family


class EngineMetrics(Collector):
    """All counters of one engine. `depth` is K, or None without a speculative config: then no counter of it exists."""

    def __init__(self, model_name: str, depth: int | None) -> None:
        self._labels = (model_name, ENGINE)
        self._running = self._waiting = 0
        self._prompt_tokens = self._generation_tokens = 0
        self._finished: dict[FinishReason, int] = dict.fromkeys(get_args(FinishReason), 0)
        self._spec = None if depth is None else SpecTotals(depth)
        self._ttft = Histogram("vllm:time_to_first_token_seconds", "Time to first token in seconds.", TTFT_BOUNDS)
        self._itl = Histogram("vllm:inter_token_latency_seconds", "Time between two outputs in seconds.", ITL_BOUNDS)
        self._e2e = Histogram("vllm:e2e_request_latency_seconds", "Request latency in seconds.", E2E_BOUNDS)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def step(self, step: StepOutput) -> None:
        """Count one engine step."""
        self._running, self._waiting = step.running, step.waiting
        self._prompt_tokens += step.prompt_tokens
        if self._spec is not None and step.spec is not None:
            self._spec.add(step.spec)

    def tokens(self, count: int, times: RequestTimes, now: float) -> None:
        """Count what one request got in a step."""
        self._generation_tokens += count
        if count == 0:
            return
        if times.last_token is None:
            self._ttft.observe(now - times.arrived)
        else:
            self._itl.observe(now - times.last_token)
        times.last_token = now

    def finished(self, reason: FinishReason, times: RequestTimes, now: float) -> None:
        """Count the end of a request."""
        self._finished[reason] += 1
        self._e2e.observe(now - times.arrived)

    def exposition(self) -> bytes:
        """The text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """All families, for the registry."""
        yield self._gauge("vllm:num_requests_running", "Number of requests in the running batch.", self._running)
        yield self._gauge("vllm:num_requests_waiting", "Number of requests waiting for a slot.", self._waiting)
        # The KV cache is allocated once for all slots: nothing is ever preempted.
        yield self._counter("vllm:num_preemptions", "Cumulative number of preemptions.", 0)
        yield self._counter("vllm:prompt_tokens", "Number of prefill tokens processed.", self._prompt_tokens)
        yield self._counter("vllm:generation_tokens", "Number of tokens generated.", self._generation_tokens)
        success = CounterMetricFamily(
            "vllm:request_success", "Requests that ended, by reason.", labels=(*LABELS, "finished_reason")
        )
        for reason, count in self._finished.items():
            success.add_metric((*self._labels, reason), count)
        yield success
        yield from (histogram.family(self._labels) for histogram in (self._ttft, self._itl, self._e2e))
        if self._spec is not None:
            yield from self._spec.families(self._labels)

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(name, text, labels=LABELS)
        family.add_metric(self._labels, value)
        return family


class SpecTotals:
    """Speculation since the start. Draft tokens are those scheduled (always K a draft), as vLLM counts them."""

    def __init__(self, depth: int) -> None:
        self._drafts = self._draft_tokens = self._verified = self._accepted = 0
        self._per_position = [0] * depth

    def add(self, spec: SpecStep) -> None:
        """Add one step."""
        self._drafts += spec.drafts
        self._draft_tokens += spec.draft_tokens
        self._verified += spec.verified
        self._accepted += spec.accepted
        for position, count in enumerate(spec.accepted_per_position):
            self._per_position[position] += count

    def families(self, labels: Sequence[str]) -> Iterator[Metric]:
        """vLLM's four counters, and the one it lacks: drafts that were really verified."""
        for name, text, value in (
            ("vllm:spec_decode_num_drafts", "Number of spec decoding drafts.", self._drafts),
            ("vllm:spec_decode_num_draft_tokens", "Number of draft tokens scheduled.", self._draft_tokens),
            ("vllm:spec_decode_num_accepted_tokens", "Number of accepted tokens.", self._accepted),
            ("avbench:spec_decode_num_verified_tokens", "Number of draft tokens verified.", self._verified),
        ):
            family = CounterMetricFamily(name, text, labels=LABELS)
            family.add_metric(labels, value)
            yield family
        name = "vllm:spec_decode_num_accepted_tokens_per_pos"
        family = CounterMetricFamily(name, "Accepted tokens per draft position.", labels=(*LABELS, "position"))
        for position, count in enumerate(self._per_position):
            family.add_metric((*labels, str(position)), count)
        yield family
