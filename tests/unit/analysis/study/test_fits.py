"""Offline and fresh fits, coefficients, their relation to entropy, convergence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from avbench.analysis.study.coefficients import Coefficients, coefficients_of, fresh_fits, pearson, relations
from avbench.analysis.study.convergence import convergence_of, rolling
from avbench.analysis.study.offline import fit_offline
from tests.label_factories import Truth, make_labels
from tests.unit.analysis.study.conftest import PoolOf, drafts_of

MARGIN = 0.005  # nats per draft between the online fit and the offline one


def found(pool_of: PoolOf, **sets: Truth) -> list[Coefficients]:
    columns = {name: make_labels(truth, steps=2500, seed=index) for index, (name, truth) in enumerate(sets.items())}
    pool = pool_of(**columns)
    return [coefficients_of(pool, fit) for fit in fresh_fits(pool)]


def test_the_offline_fit_recovers_the_truth_and_is_scikit_learns() -> None:
    drafts = drafts_of(make_labels(steps=1500))
    fit = fit_offline(drafts.logit_q_max, drafts.position, drafts.label, 7)
    assert fit is not None
    assert fit.slope == pytest.approx(Truth().slope, abs=0.02)
    assert fit.intercepts == pytest.approx(Truth().intercepts, abs=0.15)
    design = np.column_stack([drafts.logit_q_max, np.eye(7)[drafts.position]])
    other = LogisticRegression(C=1000, fit_intercept=False, tol=1e-8, max_iter=1000).fit(design, drafts.label)
    assert [fit.slope, *fit.intercepts] == pytest.approx(other.coef_[0], abs=1e-3)
    assert fit.predict(drafts.logit_q_max, drafts.position) == pytest.approx(
        other.predict_proba(design)[:, 1], abs=1e-3
    )


def test_positions_without_labels_have_no_intercept_and_one_class_no_fit() -> None:
    drafts = drafts_of(make_labels(steps=100))
    shallow = drafts.take(drafts.position != 3)
    fit = fit_offline(shallow.logit_q_max, shallow.position, shallow.label, 7)
    assert fit is not None
    assert [value is None for value in fit.intercepts] == [False, False, False, True, False, False, False]
    assert fit_offline(drafts.logit_q_max, drafts.position, np.ones(len(drafts), dtype=np.bool_), 7) is None


def test_coefficients_are_means_over_settled_refits(pool_of: PoolOf) -> None:
    (code,) = found(pool_of, code=Truth())
    assert (code.refits, code.settled) == (25, 13)
    assert code.slope.mean == pytest.approx(0.55, abs=0.03)
    assert code.slope.sd == pytest.approx(0.02, abs=0.015)
    assert [b.mean for b in code.intercepts] == pytest.approx(Truth().intercepts, abs=0.15)
    assert code.slope.offline == pytest.approx(0.55, abs=0.02)
    assert code.never_seen == ()


def test_the_online_fit_is_within_its_margin_of_the_offline_one(pool_of: PoolOf) -> None:
    for each in found(pool_of, code=Truth(mean=2.0), chat=Truth(), prose=Truth(mean=0.3)):
        assert each.offline_loss is not None
        assert 0 < each.online_loss - each.offline_loss < MARGIN


def test_positions_never_seen_are_named(pool_of: PoolOf) -> None:
    columns = make_labels(steps=300)
    columns["labelled"] &= columns["position"] != 5
    pool = pool_of(code=columns)
    (fit,) = fresh_fits(pool)
    each = coefficients_of(pool, fit)
    assert each.never_seen == (6,)
    assert (each.intercepts[5].mean, each.intercepts[5].offline) == (None, None)
    assert each.intercepts[6].mean is not None


def test_pearson_by_hand() -> None:
    assert pearson([(1, 1), (2, 3), (3, 2)]) == pytest.approx(0.5)
    assert pearson([(1, 2), (2, 4), (3, 6)]) == pytest.approx(1.0)
    assert pearson([(1, 2), (2, 4)]) is None
    assert pearson([(1, 2), (2, 2), (3, 2)]) is None


def test_the_first_intercept_follows_entropy_and_the_slope_does_not(pool_of: PoolOf) -> None:
    """Truths with one slope and first intercepts that fall as the text gets less predictable."""
    sets = {
        f"set{index}": Truth(mean=mean, intercepts=(b1, 0.0, -0.2, -0.3, -0.4, -0.5, -0.6))
        for index, (mean, b1) in enumerate(((2.5, 0.7), (1.5, 0.4), (0.8, 0.2), (0.2, -0.2)))
    }
    slope, first = relations(found(pool_of, **sets))
    assert (slope.coefficient, first.coefficient) == ("slope", "first intercept")
    assert (slope.n, first.n) == (4, 4)
    assert first.r is not None
    assert first.r < -0.9


def test_rolling_loss_is_the_mean_over_the_drafts_of_the_window() -> None:
    loss = np.array([1, 3, 5, 7, 9, 11], dtype=np.float32)
    assert rolling(loss, np.array([0, 1, 3, 6]), window=2).tolist() == [1, 3, 7]


def test_a_far_truth_takes_longer_than_a_near_one(pool_of: PoolOf) -> None:
    """The near truth is the cold start itself. Both are compared with the offline fit on the same drafts."""
    near = Truth(slope=0.5, intercepts=(-0.2,) * 7)
    far = Truth(slope=1.6, intercepts=(1.5, 1.2, 1.0, 0.8, 0.8, 0.8, 0.8))
    pool = pool_of(near=make_labels(near, steps=2000, seed=1), far=make_labels(far, steps=2000, seed=2), interval=25)
    close, distant = (convergence_of("toy", 25, fit) for fit in fresh_fits(pool))
    assert close.steps_to_offline is not None
    assert distant.steps_to_offline is not None
    assert close.steps_to_offline == 25
    assert distant.steps_to_offline >= 100
    assert close.rounds == 80
    assert close.final == pytest.approx(close.curve_online[-1])
    assert close.steps is not None
    assert close.steps % 25 == 0


def test_too_few_rounds_say_nothing_about_convergence(pool_of: PoolOf) -> None:
    pool = pool_of(code=make_labels(steps=500))
    (fit,) = fresh_fits(pool)
    found = convergence_of("toy", 100, fit)
    assert (found.rounds, found.steps, found.steps_to_offline, found.final) == (5, None, None, None)
    assert len(found.curve_online) == 5
    assert all(math.isfinite(value) for value in found.curve_online)
