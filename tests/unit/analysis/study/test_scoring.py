"""Scores of labels whose truth is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from avbench.analysis.study.scoring import ALL, Part, Score, Subject, score_pool
from avbench.analysis.study.study import pool_rounds
from tests.label_factories import Truth, make_labels
from tests.unit.analysis.study.conftest import PoolOf


def scored(part: Part, source: str) -> Score:
    return next(score for score in part.scores if score.source == source)


@pytest.fixture(scope="module")
def subjects(pool_of: PoolOf) -> tuple[Subject, ...]:
    pool = pool_of(
        code=make_labels(Truth(mean=2.0), steps=1500, seed=1), prose=make_labels(Truth(mean=0.5), steps=1500, seed=2)
    )
    return score_pool(pool, pool_rounds(pool), replicates=200)


def test_the_pool_comes_first_then_its_data_sets(subjects: tuple[Subject, ...]) -> None:
    assert [subject.name for subject in subjects] == [ALL, "code", "prose"]
    whole, *sets = subjects
    assert whole.whole.n == sum(each.whole.n for each in sets)
    assert whole.whole.n == sum(part.n for part in whole.positions)
    assert whole.without_first.n == whole.whole.n - whole.positions[0].n
    assert [part.name for part in whole.positions] == [f"position {k}" for k in range(1, 8)]


def test_the_fitted_truth_is_calibrated_and_raw_is_not(subjects: tuple[Subject, ...]) -> None:
    """Noise alone gives an ECE of about 0.002 over 130,000 labels; the fit moves by its own noise besides."""
    for subject in subjects:
        fitted, raw = scored(subject.whole, "logit_q_max"), scored(subject.whole, "q_max")
        assert fitted.ece.value < 0.012
        assert raw.ece.value > 0.06
        assert fitted.predicted.value == pytest.approx(fitted.observed.value, abs=0.006)


def test_drawn_token_features_rank_better(subjects: tuple[Subject, ...]) -> None:
    whole = subjects[0].whole
    best = scored(whole, "logit_q_max").auc
    for source in ("logit_q_sampled", "log_log_q_sampled"):
        auc = scored(whole, source).auc
        assert auc is not None
        assert best is not None
        assert auc.low is not None
        assert best.high is not None
        assert auc.low > best.high


def test_point_values_are_those_of_the_rows(pool_of: PoolOf) -> None:
    columns = make_labels(steps=200)
    pool = pool_of(code=columns)
    (subject,) = score_pool(pool, pool_rounds(pool), replicates=0)
    third = columns["labelled"] & (columns["position"] == 2)
    score = scored(subject.positions[2], "q_max")
    assert score.n == third.sum()
    assert score.auc is not None
    assert score.auc.value == pytest.approx(
        roc_auc_score(columns["label"][third], columns["q_max"][third].astype(np.float32)), abs=1e-12
    )
    assert score.auc.low is None
    assert score.observed.value == pytest.approx(columns["label"][third].mean())
    assert {score.source for score in subject.positions[2].scores} == {"q_max", "head", "logit_q_max"}
    assert [diagram.source for diagram in subject.reliability] == [score.source for score in subject.whole.scores]
    for diagram in subject.reliability:
        assert sum(each.n for each in diagram.bins) == subject.whole.n


def test_a_better_head_leads_and_the_same_head_is_not_told_apart(pool_of: PoolOf) -> None:
    seeing = make_labels(Truth(head_noise=0.0), steps=600)
    pool = pool_of(code=seeing)
    (subject,) = score_pool(pool, pool_rounds(pool), replicates=200)
    leaders = {lead.metric: lead.leader for lead in subject.whole.leads}
    assert leaders["log_loss"] == "head"  # the truth itself, without the estimator's noise
    assert all(lead.difference.low is not None for lead in subject.whole.leads)
    blind = {**seeing, "head": np.zeros(len(seeing["head"]))}
    pool = pool_of(code=blind)
    (subject,) = score_pool(pool, pool_rounds(pool), replicates=200)
    assert {lead.metric: lead.leader for lead in subject.whole.leads}["auc"] == "estimator"
    assert [part.leads[0].leader for part in subject.positions] == ["estimator"] * 7


def test_equal_sources_are_equal(pool_of: PoolOf) -> None:
    """A head that says what the estimator's start says, over one round: no difference at all, so no leader."""
    columns = make_labels(steps=90)
    columns["head"] = (np.float32(0.5) * columns["logit_q_max"].astype(np.float32) - np.float32(0.2)).astype(np.float32)
    pool = pool_of(code=columns)
    (subject,) = score_pool(pool, pool_rounds(pool), replicates=50)
    assert [(lead.ahead, lead.leader) for lead in subject.whole.leads] == [("equal", None)] * 3


def test_one_class_is_said_and_the_rest_is_there(pool_of: PoolOf) -> None:
    columns = make_labels(steps=120)
    columns["label"] = np.ones(len(columns["label"]), dtype=np.bool_)
    pool = pool_of(code=columns)
    (subject,) = score_pool(pool, pool_rounds(pool), replicates=50)
    score = scored(subject.whole, "q_max")
    assert score.auc is None
    assert score.observed.value == 1
    assert score.log_loss.value > 0
    assert "every label is accepted" in subject.whole.missing[0]
    assert {lead.metric for lead in subject.whole.leads} == {"log_loss", "ece"}


def test_positions_without_labels_and_few_requests_are_said(pool_of: PoolOf) -> None:
    columns = make_labels(steps=60, slots=4, request_steps=1000)
    shallow = {**columns, "labelled": columns["labelled"] & (columns["position"] < 5)}
    pool = dataclasses.replace(pool_of(code=shallow), k=7)
    (subject,) = score_pool(pool, pool_rounds(pool), replicates=50)
    assert subject.whole.missing == ("all positions: 4 requests, fewer than the 20 that intervals need",)
    assert scored(subject.whole, "q_max").log_loss.low is None
    assert [part.missing for part in subject.positions[5:]] == [
        ("position 6: no labels",),
        ("position 7: no labels",),
    ]


def test_warm_up_feeds_the_fit_and_is_not_scored(pool_of: PoolOf) -> None:
    columns = make_labels(steps=400)
    whole = pool_of(code=columns)
    cold = dataclasses.replace(whole, drafts=whole.drafts.take(whole.drafts.step >= 200))
    warm = dataclasses.replace(
        whole,
        drafts=dataclasses.replace(whole.drafts, data_set=np.where(whole.drafts.step < 200, -1, 0).astype(np.int16)),
    )
    (first,), (second,) = (score_pool(pool, pool_rounds(pool), replicates=0) for pool in (cold, warm))
    assert first.whole.n == second.whole.n
    assert scored(first.whole, "q_max") == scored(second.whole, "q_max")
    assert scored(first.whole, "logit_q_max").log_loss != scored(second.whole, "logit_q_max").log_loss
