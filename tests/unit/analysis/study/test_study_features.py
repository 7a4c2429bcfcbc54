from __future__ import annotations

import math

import numpy as np
import pytest

from avbench.adaptive.features import logit_qmax
from avbench.analysis.study.drafts import logit
from avbench.analysis.study.features import ESTIMATOR, FEATURES, HEAD, LEADING, log, minus_log_minus_log
from tests.label_factories import make_labels
from tests.unit.analysis.study.conftest import drafts_of


def test_logit_is_that_of_the_engine_where_float32_can_tell() -> None:
    """The engine sums the other tokens' exponentials, this has 1 - q only: near 1 they differ by its rounding."""
    logits = np.array([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [5.0, 1.0, -2.0]])
    q_max = np.exp(logits).max(axis=1) / np.exp(logits).sum(axis=1)
    assert logit(q_max) == pytest.approx(logit_qmax(logits), abs=1e-5)
    assert logit(np.array([0.5])) == pytest.approx([0.0], abs=1e-7)


def test_the_ends_are_clamped() -> None:
    ends = np.array([0.0, 1.0], dtype=np.float32)
    assert logit(ends).tolist() == [-40, 40]
    assert log(ends).tolist() == [-40, 0]
    assert minus_log_minus_log(ends).tolist() == [-40, 40]
    assert logit(ends).dtype == log(ends).dtype == minus_log_minus_log(ends).dtype == np.float32


def test_hand_values() -> None:
    assert log(np.array([0.25])) == pytest.approx([-math.log(4)])
    assert minus_log_minus_log(np.array([math.exp(-2)])) == pytest.approx([-math.log(2)])
    assert minus_log_minus_log(np.array([math.exp(-1)])) == pytest.approx([0.0], abs=1e-6)


def test_each_feature_rises_with_confidence_and_reads_its_column() -> None:
    drafts = drafts_of(make_labels(steps=50))
    values = {feature.id: feature.of(drafts) for feature in FEATURES}
    assert values["entropy"] is not None
    assert values["entropy"].max() <= 0
    assert drafts.q_max is not None
    for name in ("logit_q_max", "log_q_max"):
        value = values[name]
        assert value is not None
        assert np.corrcoef(np.argsort(np.argsort(value)), np.argsort(np.argsort(drafts.q_max)))[0, 1] > 0.99
    head = values["head"]
    assert head is not None
    assert drafts.head is not None
    assert head == pytest.approx(1 / (1 + np.exp(-drafts.head)), abs=1e-6)


def test_exactly_the_features_of_the_drawn_token_are_lossy() -> None:
    assert [feature.needs for feature in FEATURES if not feature.lossless] == ["q_sampled", "q_sampled"]
    assert [feature.id for feature in FEATURES if not feature.fitted] == ["q_max", "head"]
    assert LEADING[1:] == (HEAD, ESTIMATOR)


def test_a_feature_without_its_column_is_none() -> None:
    columns = make_labels(steps=5)
    drafts = drafts_of(columns)
    without = type(drafts)(**{**drafts.__dict__, "head": None, "entropy": None})
    assert [feature.id for feature in FEATURES if feature.of(without) is None] == ["head", "entropy"]
