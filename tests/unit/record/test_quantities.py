"""Each quantity on cases small enough to be reckoned by hand."""

from __future__ import annotations

import pytest

from avbench.record.measurement import RequestTrace, Summary
from avbench.record.quantities import (
    QUANTITIES,
    acceptance_length,
    acceptance_per_position,
    acceptance_rate,
    conditional_acceptance,
    dispatched_inside,
    e2el,
    interactivity,
    output_throughput,
    steady_throughput,
    step_gaps,
    throughput_per_gpu,
    tokens_per_request_step,
    tpot,
    ttft,
    verified_per_request_step,
)
from avbench.spec.arm import Arm
from tests.traces import make_counters, make_trace

NONE = Arm(kind="none")
FIXED = Arm(kind="fixed", k=3)
ADAPTIVE = Arm(kind="adaptive", k=3, source="estimator")

# Sent at 10; 1 token at 10.5, then 3 at 11, 2 at 12: 6 tokens.
USUAL = make_trace(10.0, (10.5, 1), (11.0, 3), (12.0, 2))
# The first chunk already carries 4 of 6 tokens.
BURST = make_trace(10.0, (10.5, 4), (12.5, 2))
ONE_TOKEN = make_trace(10.0, (10.4, 1))
ONE_CHUNK = make_trace(10.0, (10.4, 5))
REFUSED = make_trace(10.0, error="HTTP 500", status=500)


@pytest.mark.parametrize(
    ("trace", "expected"), [(USUAL, 0.5), (BURST, 0.5), (ONE_TOKEN, 0.4), (ONE_CHUNK, 0.4), (REFUSED, None)]
)
def test_ttft(trace: RequestTrace, expected: float | None) -> None:
    assert ttft(trace) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(("trace", "expected"), [(USUAL, 2.0), (BURST, 2.5), (ONE_TOKEN, 0.4), (REFUSED, None)])
def test_e2el(trace: RequestTrace, expected: float | None) -> None:
    assert e2el(trace) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("trace", "expected"),
    [(USUAL, 1.5 / 5), (BURST, 2.0 / 5), (ONE_TOKEN, None), (ONE_CHUNK, 0.0), (REFUSED, None)],
)
def test_tpot_is_vllms_form(trace: RequestTrace, expected: float | None) -> None:
    assert tpot(trace) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("trace", "expected"),
    [(USUAL, 5 / 1.5), (BURST, 2 / 2.0), (ONE_TOKEN, None), (ONE_CHUNK, None), (REFUSED, None)],
)
def test_interactivity_leaves_the_first_chunk_out(trace: RequestTrace, expected: float | None) -> None:
    assert interactivity(trace) == (None if expected is None else pytest.approx(expected))


def test_interactivity_of_chunks_that_arrive_together() -> None:
    assert interactivity(make_trace(0.0, (1.0, 1), (1.0, 2))) is None


def test_step_gaps() -> None:
    assert step_gaps(USUAL) == pytest.approx((0.5, 1.0))
    assert step_gaps(ONE_TOKEN) == ()


def test_requests_that_start_inside_and_end_after_count() -> None:
    early = make_trace(0.9, (1.5, 1))
    inside = make_trace(1.0, (5.0, 1), (9.0, 1))
    last = make_trace(2.0, (8.0, 1))
    late = make_trace(2.1, (2.2, 1))
    warm = make_trace(1.5, (1.6, 1), phase="warmup")
    assert dispatched_inside([early, inside, last, late, warm], (1.0, 2.0)) == [inside, last]


def test_steady_throughput_counts_arrivals_whoever_sent_when() -> None:
    before = make_trace(0.0, (0.9, 5), (1.5, 2), phase="warmup")  # 2 of its 7 tokens arrive inside
    across = make_trace(2.5, (2.9, 3), (3.5, 4))  # 3 of its 7
    edges = make_trace(0.5, (1.0, 100), (3.0, 1))  # (1, 3]: the opening moment is outside, the closing one inside
    failed = make_trace(1.5, (2.0, 50), error="cut")
    assert steady_throughput([before, across, edges, failed], (1.0, 3.0)) == pytest.approx((2 + 3 + 1 + 50) / 2)


def test_steady_throughput_of_an_empty_window() -> None:
    assert steady_throughput([USUAL], (1.0, 1.0)) is None


def test_output_throughput_is_from_the_first_send_to_the_end_of_the_window() -> None:
    run = [make_trace(1.0, (2.0, 4), phase="warmup"), make_trace(2.0, (3.0, 2), (6.0, 4)), REFUSED]
    assert output_throughput(run, 6.0) == pytest.approx(10 / (6.0 - 1.0))
    assert output_throughput(run, 5.0) == pytest.approx(6 / (5.0 - 1.0))
    assert output_throughput([REFUSED], 6.0) is None
    assert output_throughput([], 6.0) is None


def test_throughput_per_gpu() -> None:
    assert throughput_per_gpu(100.0, 4) == 25.0


def test_acceptance_length() -> None:
    assert acceptance_length(make_counters()) == pytest.approx(2.2)
    assert acceptance_length(make_counters(drafts=0)) is None


def test_acceptance_rate_is_against_what_was_verified() -> None:
    assert acceptance_rate(make_counters(), FIXED) == pytest.approx(120 / 300)
    assert acceptance_rate(make_counters(), ADAPTIVE) == pytest.approx(120 / 200)
    assert acceptance_rate(make_counters(verified=None), ADAPTIVE) is None
    assert acceptance_rate(make_counters(verified=None), FIXED) == pytest.approx(120 / 300)
    assert acceptance_rate(make_counters(draft_tokens=0, accepted=0), NONE) is None


def test_per_position_acceptance() -> None:
    unconditional = acceptance_per_position(make_counters())
    assert unconditional == pytest.approx((0.7, 0.35, 0.15))
    assert unconditional is not None
    assert conditional_acceptance(unconditional) == pytest.approx((0.7, 0.5, 0.15 / 0.35))
    assert conditional_acceptance((0.5, 0.0, 0.0)) == (0.5, 0.0, None)
    assert acceptance_per_position(make_counters(drafts=0)) is None


def test_length_is_one_plus_the_sum_of_positions() -> None:
    counters = make_counters()
    assert acceptance_length(counters) == pytest.approx(1 + sum(acceptance_per_position(counters) or ()))


def test_verified_drafts_per_request_step() -> None:
    assert verified_per_request_step(make_counters(), ADAPTIVE) == pytest.approx(2.0)
    assert verified_per_request_step(make_counters(), FIXED) == pytest.approx(3.0)
    assert verified_per_request_step(make_counters(verified=None), ADAPTIVE) is None
    assert verified_per_request_step(make_counters(drafts=0, draft_tokens=0), NONE) is None


def test_tokens_per_request_step() -> None:
    assert tokens_per_request_step([USUAL, BURST]) == pytest.approx((3 + 2 + 2) / 3)
    assert tokens_per_request_step([ONE_TOKEN, REFUSED]) is None


def test_glossary_is_complete() -> None:
    assert all(name == quantity.name for name, quantity in QUANTITIES.items())
    assert all(quantity.unit and quantity.definition.endswith(".") for quantity in QUANTITIES.values())
    figures = {"interactivity", "ttft", "tpot", "itl", "e2el", "steady_throughput", "output_throughput"}
    figures |= {name for name in Summary.__dataclass_fields__ if "accept" in name or "per_request_step" in name}
    assert figures <= set(QUANTITIES)
