"""Hand-computed values, and scikit-learn's own functions as a second opinion."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from avbench.analysis.study.calibration import reliability
from avbench.analysis.study.metrics import Ranked, auc, ece, ece_bins, losses, measure


def ranked(predictions: list[float], labels: list[int]) -> Ranked:
    order = np.argsort(predictions)[::-1]
    return Ranked(
        predictions=np.array(predictions, dtype=np.float32)[order],
        labels=np.array(labels, dtype=np.bool_)[order],
        groups=np.zeros(len(labels), dtype=np.int16),
    )


def test_auc_counts_pairs_and_halves_ties() -> None:
    """Accepted 0.9, 0.5, 0.5; rejected 0.5, 0.2: of 6 pairs 4 are won, 2 tied."""
    assert auc(ranked([0.9, 0.5, 0.5, 0.5, 0.2], [1, 1, 1, 0, 0])) == pytest.approx((4 + 2 / 2) / 6)


def test_one_class_has_no_auc_but_everything_else() -> None:
    point = measure(ranked([0.5, 0.25], [1, 1]))
    assert point is not None
    assert point.auc is None
    assert point.observed == 1
    assert point.log_loss == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert measure(ranked([], [])) is None


def test_the_loss_of_a_certainty_that_fails_is_that_of_the_last_place_of_one() -> None:
    loss = losses(np.array([1.0, 0.0, 1.0], dtype=np.float32), np.array([False, True, True]))
    assert loss == pytest.approx([24 * math.log(2), 24 * math.log(2), 0.0])


def test_ece_weights_the_gap_of_each_bin_by_its_drafts() -> None:
    """Bin 0 (0.05, 0.05: one accepted) gap 0.45; bin 14 (0.95: accepted) gap 0.05: (2 x 0.45 + 0.05) / 3."""
    predictions = np.array([0.05, 0.05, 0.95], dtype=np.float32)
    assert ece(predictions, np.array([True, False, True])) == pytest.approx((2 * 0.45 + 0.05) / 3, abs=1e-6)


def test_bins_are_fifteen_of_equal_width_and_one_lies_in_the_last() -> None:
    assert ece_bins(np.array([0.0, 0.0666, 0.0667, 0.5, 0.999, 1.0], dtype=np.float32)).tolist() == [0, 0, 1, 7, 14, 14]


def test_point_values_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    predictions = np.round(rng.random(5000), 2).tolist()  # ties
    labels = (rng.random(5000) < predictions).astype(int).tolist()
    point = measure(ranked(predictions, labels))
    assert point is not None
    exact = np.array(predictions, dtype=np.float32).astype(np.float64)
    assert point.auc == pytest.approx(roc_auc_score(labels, exact), abs=1e-12)
    inside = [(p, y) for p, y in zip(exact, labels, strict=True) if 0 < p < 1]
    own = measure(ranked(*map(list, zip(*inside, strict=True))))
    assert own is not None
    assert own.log_loss == pytest.approx(log_loss([y for _, y in inside], [p for p, _ in inside]), abs=1e-6)


def test_reliability_says_what_each_bin_predicted_and_saw() -> None:
    diagram = reliability("x", ranked([0.01, 0.03, 0.99], [0, 1, 1]))
    first, last = diagram.bins[0], diagram.bins[-1]
    assert (first.n, first.observed, last.n, last.observed) == (2, 0.5, 1, 1.0)
    assert first.predicted == pytest.approx(0.02)
    assert (first.low, last.high) == (0, 1)
    assert {(each.n, each.predicted, each.observed) for each in diagram.bins[1:-1]} == {(0, None, None)}
