"""Ablations, lock-in and order on labels whose truth is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from avbench.analysis.study.ablations import Ablation, ablate
from avbench.analysis.study.features import ESTIMATOR
from avbench.analysis.study.lockin import study_lock_in
from avbench.analysis.study.metrics import losses
from avbench.analysis.study.offline import fit_offline
from avbench.analysis.study.order import study_order
from avbench.analysis.study.pool import Pool
from avbench.analysis.study.replay_check import check_replay
from avbench.analysis.study.scoring import predictions_of
from avbench.analysis.study.study import pool_rounds
from tests.label_factories import Truth, make_labels
from tests.unit.analysis.study.conftest import PoolOf


def by_name(pool: Pool) -> dict[tuple[str, str], Ablation]:
    drafts = pool.drafts
    offline = fit_offline(drafts.logit_q_max, drafts.position, drafts.label, pool.k)
    return {(each.topic, each.name): each for each in ablate(pool, pool_rounds(pool), offline)}


def test_one_thing_is_changed_at_a_time(pool_of: PoolOf) -> None:
    pool = pool_of(code=make_labels(Truth(slope=1.1, intercepts=(1.0, 0.6, 0.3, 0.1, 0, -0.1, -0.2)), steps=1000))
    found = by_name(pool)
    usual = [each for each in found.values() if each.usual]
    assert [(each.topic, each.name) for each in usual] == [
        ("slope", "shared"),
        ("damping", "50"),
        ("refit interval", "100 steps"),
        ("ridge", "0.001"),
        ("cold start", "0.5 and -0.2"),
        ("feature", "logit(q_max)"),
    ]
    assert {each.log_loss for each in usual} == {usual[0].log_loss}
    assert {each.log_loss_difference for each in usual} == {0.0}
    own = predictions_of(ESTIMATOR, pool, pool_rounds(pool))
    assert own is not None
    assert usual[0].log_loss == pytest.approx(losses(own, pool.drafts.label).mean(dtype=np.float64))
    # The truth is far from the cold start: starting at it, or refitting sooner, must help, heavy damping hurt.
    assert found["cold start", "the offline fit"].early_loss < usual[0].early_loss - 0.01
    assert found["refit interval", "25 steps"].early_loss < usual[0].early_loss
    assert found["refit interval", "400 steps"].log_loss_difference > 0.005
    assert found["damping", "1000"].log_loss_difference > 0.001
    assert found["ridge", "0"].log_loss_difference == pytest.approx(0, abs=1e-5)


def test_a_fit_that_runs_away_is_held_where_its_predictions_stay_numbers(pool_of: PoolOf) -> None:
    """One step of one request a refit and no damping: the coefficients overflow within some hundred steps."""
    drafts = make_labels(Truth(intercepts=(0.6, 0.2, -0.1)), steps=2000, slots=1)
    found = by_name(pool_of(code=drafts, interval=1))
    assert found["damping", "0"].ran_away
    assert all(np.isfinite(each.log_loss) for each in found.values())


def test_the_labels_own_interval_is_the_usual_one(pool_of: PoolOf) -> None:
    found = by_name(pool_of(code=make_labels(steps=300), interval=30))
    assert found["refit interval", "30 steps"].usual
    assert not found["refit interval", "100 steps"].usual


def test_without_a_head_or_an_offline_fit_their_rows_are_absent(pool_of: PoolOf) -> None:
    pool = pool_of(code=make_labels(steps=200))
    pool = dataclasses.replace(pool, drafts=dataclasses.replace(pool.drafts, head=None))
    names = [(each.topic, each.name) for each in ablate(pool, pool_rounds(pool), None)]
    assert all(topic != "feature" for topic, _ in names)
    assert ("cold start", "the offline fit") not in names


def test_lock_in_keeps_the_start_and_inheriting_helps_where_acceptance_is_low(pool_of: PoolOf) -> None:
    """True intercepts of positions 5 to 7 are near -1.2: far from -0.2, near the -1.0 of position 4."""
    truth = Truth(intercepts=(0.4, -0.2, -0.6, -1.0, -1.1, -1.2, -1.3), mean=2.0)
    pool = pool_of(code=make_labels(truth, steps=1500))
    study = study_lock_in(pool, pool_rounds(pool))
    (way,) = study.ways
    assert study.reason is None
    assert way.hiding == "positions 5 to 7 never admitted"
    assert [place.seen == 0 for place in way.positions] == [False] * 4 + [True] * 3
    for place in way.positions[4:]:
        assert place.intercept_locked == pytest.approx(-0.2)
        assert place.intercept_inherited == pytest.approx(way.positions[3].intercept_locked)
        assert place.intercept_open is not None
        assert place.intercept_open < -0.8
    assert way.loss_open < way.loss_inherited < way.loss_locked
    assert way.predicted_locked > way.observed + 0.05
    assert way.hidden == sum(place.hidden for place in way.positions)
    labels = pool.drafts.label[pool.drafts.position >= 4]
    assert way.observed == pytest.approx(labels.mean())


def test_a_real_budget_hides_what_it_would_not_have_admitted(pool_of: PoolOf) -> None:
    columns = make_labels(steps=400, budget=0.2)
    pool = pool_of(code=columns, source="estimator", observe=True)
    first, second = study_lock_in(pool, pool_rounds(pool)).ways
    assert second.hiding == "what the engine's budget would have trimmed"
    assert second.hidden == int((columns["labelled"] & ~columns["admitted"]).sum())
    assert first.hidden == int((columns["labelled"] & (columns["position"] >= 4)).sum())


def test_trimmed_labels_cannot_show_lock_in(pool_of: PoolOf) -> None:
    pool = pool_of(code=make_labels(steps=200, budget=0.2, trim=True), source="estimator")
    study = study_lock_in(pool, pool_rounds(pool))
    assert study.ways == ()
    assert study.reason is not None
    assert "trimmed" in study.reason
    assert "observe: true" in study.reason


def test_one_position_has_nothing_to_hide(pool_of: PoolOf) -> None:
    pool = pool_of(code=make_labels(Truth(intercepts=(0.3,)), steps=100))
    study = study_lock_in(pool, pool_rounds(pool))
    assert (study.ways, study.reason is None) == ((), False)


def test_serving_the_opposite_first_hurts_at_first(pool_of: PoolOf) -> None:
    easy = Truth(mean=2.5, intercepts=(1.0,) * 7)
    hard = Truth(mean=0.5, intercepts=(-0.5,) * 7)
    pool = pool_of(hard=make_labels(hard, steps=1500, seed=1), easy=make_labels(easy, steps=1500, seed=2))
    study = study_order(pool)
    assert [(case.first, case.second) for case in study.cases] == [("easy", "hard"), ("hard", "easy")]
    to_hard = study.cases[0]
    assert to_hard.carried_early > to_hard.fresh_early + 0.01
    assert to_hard.carried_early - to_hard.fresh_early > to_hard.carried - to_hard.fresh
    assert not to_hard.ran_away


def test_a_fit_that_runs_away_is_said_to(pool_of: PoolOf) -> None:
    """A first intercept that must fall from 2.5 to -1 at once: the steps overshoot, each further than the one before.
    `test_replay` shows the estimator itself doing so."""
    easy = Truth(mean=3.0, intercepts=(2.5, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0))
    hard = Truth(mean=0.0, intercepts=(-1.0,) * 7)
    pool = pool_of(hard=make_labels(hard, steps=1500, seed=1), easy=make_labels(easy, steps=1500, seed=2))
    to_hard, to_easy = study_order(pool).cases
    assert (to_hard.ran_away, to_easy.ran_away) == (True, False)
    assert to_hard.carried > 2 * to_hard.fresh


def test_carried_over_nothing_new_is_a_warm_start(pool_of: PoolOf) -> None:
    """The same law twice: having served before can only help."""
    far = Truth(slope=1.5, intercepts=(1.5,) * 7)
    pool = pool_of(
        low=make_labels(far, steps=800, seed=1), high=make_labels(far, steps=800, seed=2), loads={"low": 1, "high": 64}
    )
    study = study_order(pool)
    assert [(case.first, case.second) for case in study.cases[2:]] == [("C=1", "C=64"), ("C=64", "C=1")]
    for case in study.cases:
        assert case.carried_early < case.fresh_early


def test_one_thing_has_no_order(pool_of: PoolOf) -> None:
    study = study_order(pool_of(code=make_labels(steps=100)))
    assert study.cases == ()
    assert study.reason is not None
    assert "two data sets" in study.reason


def test_the_replay_is_checked_against_the_engine(pool_of: PoolOf) -> None:
    pool = pool_of(code=make_labels(steps=300), source="estimator")
    own = predictions_of(ESTIMATOR, pool, pool_rounds(pool))
    assert own is not None
    assert check_replay(pool, own) is None  # no column
    written = own.copy()
    written[::2] += np.float32(0.01)
    written[-1] = np.nan
    pool = dataclasses.replace(pool, drafts=dataclasses.replace(pool.drafts, prediction=written))
    check = check_replay(pool, own)
    assert check is not None
    assert check.n == len(own) - 1
    assert check.close == pytest.approx(0.5, abs=0.01)
    assert check.mean == pytest.approx(0.005, abs=1e-4)
    with_head = dataclasses.replace(pool, info=dataclasses.replace(pool.info, source="head"))
    assert check_replay(with_head, own) is None
