from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from avbench.adaptive.features import feature_of_complement, logit_qmax


def test_feature_is_the_log_odds_of_the_most_likely_token() -> None:
    q = np.array([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05]])
    assert logit_qmax(np.log(q)) == pytest.approx(np.log([0.7 / 0.3, 0.9 / 0.1]), abs=1e-6)


def test_temperature_divides_and_greedy_leaves_the_logits_alone() -> None:
    logits = np.array([[2.0, 0.0, -1.0]] * 4, dtype=np.float32)
    scaled = logit_qmax(logits, np.array([2.0, 1.0, 0.0, -3.0]))
    assert scaled[0] == logit_qmax(logits[0] / 2)
    assert scaled[1] == scaled[2] == scaled[3] == logit_qmax(logits[0])


def test_one_temperature_per_request_covers_all_positions() -> None:
    logits = np.random.default_rng(0).standard_normal((3, 4, 11)).astype(np.float32)
    temperature = np.array([0.5, 1.0, 2.0])
    features = logit_qmax(logits, temperature[:, None])
    assert features.shape == (3, 4)
    assert features[2, 1] == logit_qmax(logits[2, 1], 2.0)


def test_features_are_clamped_on_both_sides() -> None:
    sure = np.array([100.0, 0.0, 0.0])
    clueless = np.zeros(3)
    assert logit_qmax(sure) == 40.0
    assert logit_qmax(clueless) == pytest.approx(-np.log(2))
    assert feature_of_complement(np.array([0.0, np.inf, -1e-9])).tolist() == [40.0, -40.0, 40.0]


def test_the_complement_has_float32_noise() -> None:
    """float32 cannot hold 1 + 2^-24: the largest feature below the clamp is -ln(2^-23) = 15.94."""
    apart = np.array([14.0, 15.9, 17.0, 30.0])
    features = logit_qmax(np.stack([apart, np.zeros(4)], axis=1))
    assert features[1] == pytest.approx(15.942, abs=1e-3)
    assert features[2:].tolist() == [40.0, 40.0]
    assert features[0] != pytest.approx(14.0, abs=1e-4)
    assert features[0] == pytest.approx(14.0, abs=0.1)


@pytest.mark.parametrize("row", [[np.nan, 1.0, 2.0], [-np.inf] * 3, [np.inf, 0.0, 0.0], [-np.inf, 3.0, -np.inf]])
def test_rows_that_are_no_distribution_count_as_sure(row: list[float]) -> None:
    assert logit_qmax(np.array(row)) == 40.0


@pytest.mark.parametrize("vocabulary", [1, 2, 7, 8, 9, 127, 300, 4095, 4096, 4097, 9000])
def test_any_vocabulary_agrees_with_float64(vocabulary: int) -> None:
    logits = np.random.default_rng(vocabulary).standard_normal((5, vocabulary)) * 2
    others = np.sort(logits - logits.max(axis=1, keepdims=True), axis=1)[:, :-1]
    with np.errstate(divide="ignore"):
        wanted = np.clip(-np.log(np.exp(others).sum(axis=1)), -40, 40)
    assert logit_qmax(logits) == pytest.approx(wanted, abs=2e-4)


@settings(deadline=None)
@given(
    arrays(np.float32, (3, 17), elements=st.floats(-30, 30, width=32)),
    st.floats(-5, 5, width=32),
)
def test_a_shift_of_all_logits_changes_nothing_beyond_rounding(logits: np.ndarray, shift: float) -> None:
    before, after = logit_qmax(logits), logit_qmax(logits + np.float32(shift))
    complement = np.exp(-before.astype(np.float64))
    # A shifted float32 logit is off by at most 2 ulp of 35 = 8e-6 and the complement by its own 17 ulp of 1.
    noise = 2e-5 + 2e-6 / np.maximum(complement, 1e-30)
    assert np.all((np.abs(before - after) <= noise) | (np.maximum(before, after) > 13))


@settings(deadline=None)
@given(arrays(np.float32, (2, 5), elements=st.floats(0, 1, width=32)))
def test_softmax_pieces_give_the_same_feature(logits: np.ndarray) -> None:
    total = np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1, dtype=np.float32)
    assert feature_of_complement(total - np.float32(1)) == pytest.approx(logit_qmax(logits), abs=1e-5)
