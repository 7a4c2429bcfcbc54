from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from avbench.adaptive.budget import admit, max_logits_rows, size_budget, spread_evenly, survival
from avbench.adaptive.costs import CostTables
from avbench.errors import AvbenchError


def linear(requests: int, tokens: int, *, fixed: float = 4.0, each: float = 1.0, draft: float = 0.0) -> CostTables:
    return CostTables(draft=np.full(requests + 1, draft), verify=fixed + each * np.arange(tokens + 1.0))


def test_survival_is_the_running_product() -> None:
    assert survival(np.array([[0.5, 0.5, 1.0], [1.0, 0.2, 0.0]])).tolist() == [[0.5, 0.25, 0.25], [1.0, 0.2, 0.0]]


def test_budget_maximises_tokens_per_cost() -> None:
    """By hand: 2, 2.9, 3.7, 4.2, 4.3, 4.4, 4.5 tokens over 6, 7, .. 12: 4.2 / 9 = 0.467 beats 3.7 / 8 = 0.4625."""
    confidences = np.array([[0.9, 1 / 9, 1.0], [0.8, 0.625, 0.2]], dtype=np.float64)
    budget = size_budget(confidences, np.array([3, 3]), other_tokens=2, sampling_requests=2, costs=linear(2, 8))
    assert budget == 3


def test_the_first_maximum_wins() -> None:
    """1/1, 2/2 and 3/3 are equal."""
    tables = CostTables(draft=np.zeros(2), verify=np.array([9.0, 1.0, 2.0, 3.0]))
    assert size_budget(np.ones((1, 2)), np.array([2]), other_tokens=1, sampling_requests=1, costs=tables) == 0


def test_a_request_in_prefill_adds_no_token_of_its_own() -> None:
    """At 0 sampled tokens anything beats verifying nothing; at 1 the step of 10 does not pay."""
    tables = CostTables(draft=np.zeros(2), verify=np.array([1.0, 1.0, 10.0]))
    sized = [
        size_budget(np.array([[0.9]]), np.array([1]), other_tokens=1, sampling_requests=sampling, costs=tables)
        for sampling in (0, 1)
    ]
    assert sized == [1, 0]


def test_drafting_cost_of_the_batch_counts() -> None:
    """A draft that is already paid for makes it worth verifying more."""
    confidences, scheduled = np.array([[0.5, 0.5]]), np.array([2])
    cheap, dear = (
        size_budget(confidences, scheduled, other_tokens=1, sampling_requests=1, costs=linear(1, 3, fixed=0.2, draft=d))
        for d in (0.0, 9.0)
    )
    assert (cheap, dear) == (0, 2)


def test_only_scheduled_drafts_are_eligible() -> None:
    confidences = np.full((2, 3), 0.99)
    free = CostTables(draft=np.zeros(3), verify=np.ones(9))
    assert size_budget(confidences, np.array([1, 0]), other_tokens=2, sampling_requests=2, costs=free) == 1


@pytest.mark.parametrize(("rows", "budget"), [(0, 0), (2, 0), (3, 1), (5, 3), (100, 6)])
def test_logits_rows_cap_the_budget(rows: int, budget: int) -> None:
    free = CostTables(draft=np.zeros(3), verify=np.ones(9))
    sized = size_budget(
        np.full((2, 3), 0.99), np.array([3, 3]), other_tokens=2, sampling_requests=2, costs=free, max_total_logits=rows
    )
    assert sized == budget


def test_logits_rows_of_a_vocabulary() -> None:
    assert max_logits_rows(202_048) == 1328
    assert max_logits_rows(2**30) == 1


@pytest.mark.parametrize(("requests", "tokens"), [(1, 9), (2, 3)])
def test_a_batch_beyond_the_tables_is_refused(requests: int, tokens: int) -> None:
    with pytest.raises(AvbenchError, match="larger than the cost tables"):
        size_budget(
            np.ones((2, 2)), np.array([2, 2]), other_tokens=2, sampling_requests=2, costs=linear(requests, tokens)
        )


def test_admission_takes_the_best_slots_of_all_requests() -> None:
    confidences = np.array([[0.9, 0.9, 0.9], [0.5, 1.0, 1.0], [0.95, 0.1, 1.0]])
    assert admit(confidences, np.array([3, 3, 3]), 3).tolist() == [2, 0, 1]
    assert admit(confidences, np.array([1, 3, 3]), 3).tolist() == [1, 1, 1]


def test_ties_go_to_the_lower_position_then_to_the_earlier_request() -> None:
    sure = np.ones((3, 3))
    assert [admit(sure, np.array([3, 3, 3]), budget).tolist() for budget in (1, 3, 4, 8)] == [
        [1, 0, 0],
        [1, 1, 1],
        [2, 1, 1],
        [3, 3, 2],
    ]


@pytest.mark.parametrize("budget", [6, 7, 100])
def test_a_budget_for_everything_admits_what_is_scheduled(budget: int) -> None:
    assert admit(np.zeros((3, 3)), np.array([1, 3, 2]), budget).tolist() == [1, 3, 2]


def test_budget_zero_admits_nothing() -> None:
    assert admit(np.ones((2, 2)), np.array([2, 2]), 0).tolist() == [0, 0]


confidences_and_schedules = st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(
    lambda shape: st.tuples(
        arrays(np.float32, shape, elements=st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1, width=32))),
        arrays(np.int64, shape[0], elements=st.integers(0, shape[1])),
    )
)


@settings(deadline=None)
@given(confidences_and_schedules, st.integers(0, 20))
def test_admission_is_the_best_choice_there_is(case: tuple[np.ndarray, np.ndarray], budget: int) -> None:
    confidences, scheduled = case
    admitted = admit(confidences, scheduled, budget)
    assert np.all((admitted >= 0) & (admitted <= scheduled))
    assert admitted.sum() == min(budget, scheduled.sum())
    gains = np.concatenate([np.zeros((len(scheduled), 1)), np.cumsum(survival(confidences), axis=1)], axis=1)

    def gain(choice: tuple[int, ...]) -> float:
        return float(sum(gains[r, n] for r, n in enumerate(choice)))

    rivals = [c for c in product(*(range(n + 1) for n in scheduled)) if sum(c) == admitted.sum()]
    assert gain(tuple(admitted)) == pytest.approx(max(map(gain, rivals)), abs=1e-6)


@settings(deadline=None)
@given(confidences_and_schedules, st.lists(st.floats(0.01, 1.0), min_size=30, max_size=30))
def test_budget_is_the_first_best_of_all_budgets(case: tuple[np.ndarray, np.ndarray], increments: list[float]) -> None:
    confidences, scheduled = case
    requests = len(scheduled)
    tables = CostTables(draft=np.full(requests + 1, 0.5), verify=np.cumsum(increments))
    sized = size_budget(confidences, scheduled, other_tokens=requests, sampling_requests=requests, costs=tables)
    scores = survival(confidences)
    rates = []
    for budget in range(int(scheduled.sum()) + 1):
        gain = sum(scores[r, :n].sum() for r, n in enumerate(admit(confidences, scheduled, budget)))
        rates.append((requests + gain) / (0.5 + tables.verify[requests + budget]))
    assert rates[sized] == pytest.approx(max(rates), rel=1e-6)
    assert all(rate < rates[sized] * (1 + 1e-6) for rate in rates[:sized])


@pytest.mark.parametrize(
    ("scheduled", "budget", "split"),
    [
        ([3, 3, 3], 4, [2, 1, 1]),
        ([0, 3, 3], 3, [0, 2, 1]),
        ([1, 3], 3, [2, 1]),  # more than the first request scheduled: vLLM's host knows no better
        ([1, 3], 4, [1, 3]),
        ([3, 0], 0, [0, 0]),
        ([0, 0], 0, [0, 0]),
    ],
)
def test_the_host_spreads_evenly(scheduled: list[int], budget: int, split: list[int]) -> None:
    assert spread_evenly(np.array(scheduled), budget).tolist() == split
