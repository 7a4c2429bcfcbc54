from __future__ import annotations

import pytest

from avbench.record.measurement import TOO_LONG
from avbench.record.summary import percentiles, summarise
from avbench.spec.arm import Arm
from tests.traces import make_counters, make_trace

ADAPTIVE = Arm(kind="adaptive", k=3, source="estimator")
WINDOW = (1.0, 3.0)
TRACES = (
    make_trace(0.0, (0.5, 1), (1.5, 3), phase="warmup"),
    make_trace(1.0, (1.5, 1), (2.5, 4), finish_reason="length"),
    make_trace(2.0, (3.0, 1), (4.0, 1), prompt_tokens=20),
    make_trace(2.5, (2.7, 1), error="cut"),
    make_trace(2.6, error=TOO_LONG + "maximum context length", status=400),
    make_trace(3.5, (3.6, 9)),
)


def test_summary_by_hand() -> None:
    summary = summarise(TRACES, WINDOW, make_counters(), ADAPTIVE)
    assert (summary.requests, summary.failed, summary.too_long) == (4, 1, 1)
    assert summary.output_tokens == 5 + 2
    assert summary.prompt_tokens == 30
    assert summary.window_seconds == 2.0
    assert summary.steady_throughput == pytest.approx((3 + 1 + 4 + 1 + 1) / 2)  # the cut stream's token arrived too
    assert summary.ttft is not None
    assert (summary.ttft.n, summary.ttft.mean) == (2, pytest.approx(0.75))
    assert summary.interactivity is not None
    assert summary.interactivity.p50 == pytest.approx((4 / 1 + 1 / 1) / 2)
    assert summary.itl is not None
    assert summary.itl.n == 2
    assert summary.tokens_per_request_step == pytest.approx(2.5)
    assert summary.acceptance_rate == pytest.approx(0.6)
    assert summary.finish_reasons == {"length": 1, "stop": 1}


def test_no_counters() -> None:
    summary = summarise(TRACES, WINDOW, None, ADAPTIVE)
    assert summary.acceptance_length is None
    assert summary.acceptance_per_position is None
    assert summary.steady_throughput is not None


def test_nothing_good() -> None:
    summary = summarise(TRACES[3:5], WINDOW, None, ADAPTIVE)
    assert summary.ttft is summary.tpot is summary.interactivity is None
    assert summary.output_throughput == summary.steady_throughput * 2.0 / 0.5
    assert summary.steady_throughput == 0.5  # one token came before the stream was cut


def test_percentiles_interpolate() -> None:
    found = percentiles(float(value) for value in range(101))
    assert found is not None
    assert (found.p5, found.p50, found.p95, found.p99, found.mean, found.n) == (5, 50, 95, 99, 50, 101)
    assert percentiles([]) is None
