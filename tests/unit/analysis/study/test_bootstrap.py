"""Replicates against exact values, and intervals against how values really vary."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from avbench.analysis.study import bootstrap
from avbench.analysis.study.bootstrap import (
    GROUPS,
    MIN_REQUESTS,
    histograms,
    interval,
    request_groups,
    resample,
    weighted_auc,
)
from avbench.analysis.study.drafts import NO_REQUEST
from avbench.analysis.study.metrics import Ranked, ece, losses, measure
from tests.label_factories import Truth, make_labels


def sample(requests: int = 60, *, seed: int = 0, steps: int = 200) -> Ranked:
    """q_max, raw, over labels of about that many requests."""
    columns = make_labels(
        Truth(between_requests=1.2), steps=steps, slots=requests, request_steps=10_000, seed=seed, nulls=False
    )
    predictions = columns["q_max"].astype(np.float32)
    order = np.argsort(predictions)[::-1]
    request = columns["request"].astype(np.int32)
    groups = request_groups(request, np.zeros(len(request), dtype=np.int16))
    return Ranked(predictions=predictions[order], labels=columns["label"][order], groups=groups[order])


def test_groups_are_whole_requests() -> None:
    request = np.array([5, 5, 9, NO_REQUEST, 9, 2], dtype=np.int32)
    groups = request_groups(request, np.zeros(6, dtype=np.int16))
    assert groups[0] == groups[1]
    assert groups[2] == groups[4]
    assert len({groups[0], groups[2], groups[5]}) == 3
    assert groups[3] == -1


def test_every_data_set_is_spread_over_the_groups() -> None:
    """1000 requests, 950 of them in the first data set: the 50 others lie in 50 different groups."""
    request = np.arange(1000, dtype=np.int32)
    data_set = (request % 20 == 0).astype(np.int16)
    groups = request_groups(request, data_set)
    assert np.bincount(groups).tolist() == [5] * GROUPS
    assert len(set(groups[data_set == 1].tolist())) == 50


def test_binned_replicates_are_those_of_drafts_repeated_by_hand() -> None:
    """A group drawn w times is w copies of its drafts: exact AUC by scikit-learn, losses and ECE over the copies.

    Bins of equal occupancy cost the AUC of a replicate up to 1e-5 here, a hundredth of its interval and less.
    """
    ranked = sample(30)
    found = resample(ranked, 5)
    assert found is not None
    weights = bootstrap._weights(30, 5)
    for replicate in range(5):
        copies = weights[replicate].astype(int)[ranked.groups]
        predictions, labels = np.repeat(ranked.predictions, copies), np.repeat(ranked.labels, copies)
        assert found.auc[replicate] == pytest.approx(roc_auc_score(labels, predictions), abs=3e-5)
        assert found.log_loss[replicate] == pytest.approx(losses(predictions, labels).mean(), abs=1e-6)
        assert found.ece[replicate] == pytest.approx(ece(predictions, labels), abs=1e-6)
        assert found.predicted[replicate] == pytest.approx(predictions.mean(), abs=1e-6)
        assert found.observed[replicate] == pytest.approx(labels.mean(), abs=1e-9)


def test_binning_does_not_bias_the_auc() -> None:
    """Over 60 different data sets the mean difference to the exact value is nothing, and no single one is seen."""
    gaps = []
    for seed in range(60):
        ranked = sample(20, seed=seed, steps=40)
        groups = ranked.groups.astype(np.intp)
        binned = weighted_auc(np.ones((1, 20)), *histograms(ranked, groups, 20))[0]
        gaps.append(binned - roc_auc_score(ranked.labels, ranked.predictions))
    assert np.abs(gaps).max() < 5e-5
    assert abs(np.mean(gaps)) < 5e-6


def test_many_ties_stay_ties() -> None:
    ranked = sample(30)
    coarse = Ranked(predictions=np.round(ranked.predictions, 1), labels=ranked.labels, groups=ranked.groups)
    binned = weighted_auc(np.ones((1, 30)), *histograms(coarse, coarse.groups.astype(np.intp), 30))[0]
    assert binned == pytest.approx(roc_auc_score(coarse.labels, coarse.predictions), abs=1e-12)


@pytest.mark.parametrize("metric", ["auc", "log_loss"])
def test_the_interval_covers_as_often_as_it_says(metric: str) -> None:
    """120 data sets of 60 requests each: a 95 % interval misses the mean of all values 6 times, binomial sd 2.4; a
    bootstrap over so few units is a little short. Drafts taken for independent would miss far more often."""
    found = []
    for seed in range(120):
        ranked = sample(60, seed=seed * 7, steps=30)
        point = measure(ranked)
        drawn = resample(ranked, 400)
        assert point is not None
        assert drawn is not None
        ends = interval(getattr(point, metric), getattr(drawn, metric))
        assert ends is not None
        found.append((getattr(point, metric), *ends))
    truth = np.mean([value for value, _, _ in found])
    missed = sum(not low <= truth <= high for _, low, high in found)
    assert 1 <= missed <= 15


def test_the_interval_lies_around_the_value() -> None:
    drawn = np.linspace(0.0, 1.0, 1001)
    assert interval(10.0, drawn) == pytest.approx((9.525, 10.475))
    assert interval(10.0, None) is None


def test_no_interval_if_a_class_is_often_absent() -> None:
    drawn = np.array([0.5] * 90 + [np.nan] * 10)
    assert interval(0.5, drawn) is None
    assert interval(0.5, drawn[6:]) is None  # 10 of 94
    assert interval(0.5, np.array([0.5] * 97 + [np.nan] * 3)) == (0.5, 0.5)


def test_too_few_requests_have_no_interval() -> None:
    assert resample(sample(MIN_REQUESTS - 1), 10) is None
    assert resample(sample(MIN_REQUESTS), 10) is not None


def test_drafts_without_a_request_do_not_take_part() -> None:
    ranked = sample(30)
    nameless = np.arange(len(ranked)) % 3 == 0
    mixed = Ranked(
        predictions=ranked.predictions,
        labels=ranked.labels,
        groups=np.where(nameless, -1, ranked.groups).astype(np.int16),
    )
    own, rest = resample(mixed, 10), resample(mixed.within(~nameless), 10)
    assert own is not None
    assert rest is not None
    assert own.log_loss.tolist() == rest.log_loss.tolist()
