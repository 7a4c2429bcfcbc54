"""The vectorised online fit against avbench's own estimator, fed step by step."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from avbench.adaptive.confidence import Refit
from avbench.adaptive.estimator import OnlineAcceptanceEstimator
from avbench.analysis.study.replay import Fit, FitSettings, fit_online
from avbench.analysis.study.rounds import find_rounds
from tests.label_factories import Columns, Truth, make_labels

K = 7


def labelled(**options: int) -> Columns:
    return make_labels(nulls=False, **options)  # type: ignore[arg-type]


def replay(columns: Columns, interval: int, settings: FitSettings | None = None, **options: NDArray[np.bool_]) -> Fit:
    stream = np.zeros(len(columns["step"]), dtype=np.int32)
    rounds = find_rounds(columns["step"], stream, np.array([interval]))
    return fit_online(
        columns["logit_q_max"], columns["position"].astype(np.int16), columns["label"], rounds, K, settings, **options
    )


def step_by_step(columns: Columns, interval: int, steps: int, slots: int) -> tuple[NDArray[np.float32], list[Refit]]:
    """Feeds the real estimator every engine step, also those without a label."""
    estimator = OnlineAcceptanceEstimator(max_requests=slots, positions=K, refit_interval=interval)
    predictions, refits = [], []
    for step in range(steps):
        own = np.flatnonzero(columns["step"] == step)
        requests = columns["request"][own]
        features, sampled, rejected, places = [], [], [], []
        for request in dict.fromkeys(requests.tolist()):
            rows = own[requests == request]
            row = np.zeros(K, dtype=np.float32)
            row[: len(rows)] = columns["logit_q_max"][rows]
            accepted = int(columns["label"][rows].sum())
            features.append(row)
            sampled.append(accepted + 1)
            rejected.append(len(rows) - accepted)
            places.append(len(rows))
        slot = np.arange(len(features))
        if features:
            made = estimator.predict(np.array(features), slot)
            predictions += [made[index, :place] for index, place in enumerate(places)]
        refit = estimator.step(slot, np.array(sampled, dtype=np.int64), np.array(rejected, dtype=np.int64))
        refits += [refit] if refit else []
    return np.concatenate(predictions), refits


@pytest.mark.parametrize("interval", [25, 100])
def test_it_is_the_estimator_fed_step_by_step(interval: int) -> None:
    """They differ in the order of float32 sums only; 16 refits let a real difference grow."""
    columns = labelled(steps=400, slots=12)
    fit = replay(columns, interval)
    predictions, refits = step_by_step(columns, interval, 400, 12)
    assert len(refits) == len(fit.rounds) == 400 // interval
    assert fit.predictions == pytest.approx(predictions, abs=2e-6)
    assert fit.slopes[:, 0] == pytest.approx([refit.slope for refit in refits], abs=2e-6)
    assert fit.intercepts == pytest.approx(np.array([refit.intercepts for refit in refits]), abs=5e-6)
    assert fit.counts.tolist() == [list(refit.counts) for refit in refits]
    assert fit.rounds.steps.tolist() == [interval * (index + 1) for index in range(len(refits))]


def test_it_runs_away_where_the_estimator_does() -> None:
    """A first intercept that jumps from 2.5 to -1 makes the published Newton step overshoot, then again and further.

    Rounding is blown up on the way, so only what happens is compared, not by how much.
    """
    easy = make_labels(Truth(mean=3.0, intercepts=(2.5, *(2.0,) * 6)), steps=1500, seed=2, nulls=False)
    hard = make_labels(Truth(mean=0.0, intercepts=(-1.0,) * 7), steps=1000, seed=1, first_step=1500, nulls=False)
    hard["request"] += easy["request"].max() + 1
    columns = {name: np.concatenate([values, hard[name]]) for name, values in easy.items()}
    fit = replay(columns, 100)
    _, refits = step_by_step(columns, 100, 2500, 16)
    assert fit.ran_away
    assert abs(refits[-1].intercepts[0]) > 1000
    assert not replay(easy, 100).ran_away


def test_steps_without_a_label_count_towards_the_round() -> None:
    """Labels of steps 40 to 159 only (a prefill before and after): refits still come after steps 99 and 199."""
    columns = labelled(steps=200, slots=8)
    kept = (columns["step"] >= 40) & (columns["step"] < 160)
    columns = {name: values[kept] for name, values in columns.items()}
    fit = replay(columns, 100)
    predictions, refits = step_by_step(columns, 100, 200, 8)
    assert [sum(refit.counts) for refit in refits] == fit.counts.sum(axis=1).tolist()
    assert fit.predictions == pytest.approx(predictions, abs=2e-6)


def test_a_prediction_never_uses_its_own_round() -> None:
    """Turning every label of the last round around changes no prediction."""
    columns = labelled(steps=300, slots=8)
    turned = {**columns, "label": np.where(columns["step"] >= 200, ~columns["label"], columns["label"])}
    assert replay(columns, 100).predictions.tolist() == replay(turned, 100).predictions.tolist()
    earlier = {**columns, "label": np.where(columns["step"] < 100, ~columns["label"], columns["label"])}
    assert replay(columns, 100).predictions.tolist() != replay(earlier, 100).predictions.tolist()


def test_it_recovers_the_truth() -> None:
    """About 140,000 labels; standard errors are near 0.006 for the slope and up to 0.04 for the deepest intercept,
    and a mean over 15 settled refits has about 1.4 times those."""
    truth = Truth()
    columns = labelled(steps=3000, slots=16)
    fit = replay(columns, 100)
    settled = fit.rounds.settled()
    assert fit.slopes[settled, 0].mean() == pytest.approx(truth.slope, abs=0.03)
    assert fit.intercepts[settled].mean(axis=0) == pytest.approx(truth.intercepts, abs=0.13)


def test_slopes_of_their_own_are_separate_fits() -> None:
    columns = labelled(steps=300, slots=8)
    fit = replay(columns, 100, FitSettings(shared_slope=False))
    own = columns["position"] == 2
    alone = {name: values[own] for name, values in columns.items()} | {"position": np.zeros(int(own.sum()))}
    single = replay(alone, 100)
    assert fit.slopes[:, 2] == pytest.approx(single.slopes[:, 0], abs=2e-6)
    assert fit.predictions[own] == pytest.approx(single.predictions, abs=2e-6)
    assert len(set(fit.slopes[-1].tolist())) == K


def test_hidden_labels_are_predicted_and_not_learnt_from() -> None:
    columns = labelled(steps=300, slots=8)
    visible = columns["position"] < 4
    fit = replay(columns, 100, visible=visible)
    shallow = replay({name: values[visible] for name, values in columns.items()}, 100)
    assert fit.counts[:, 4:].sum() == 0
    assert fit.intercepts[:, 4:] == pytest.approx(-0.2)
    assert fit.predictions[visible] == pytest.approx(shallow.predictions, abs=2e-6)


def test_positions_never_seen_inherit_the_deepest_seen_intercept() -> None:
    columns = labelled(steps=300, slots=8)
    visible = columns["position"] < 4
    plain = replay(columns, 100, visible=visible)
    fit = replay(columns, 100, FitSettings(inherit=True), visible=visible)
    assert fit.intercepts[:, :4].tolist() == plain.intercepts[:, :4].tolist()
    for deeper in (4, 5, 6):
        assert fit.intercepts[:, deeper].tolist() == fit.intercepts[:, 3].tolist()


def test_without_a_ridge_a_position_without_labels_stops_the_slope() -> None:
    """0/0 in the arrowhead system, as in the estimator: the ridge is what keeps it solvable."""
    columns = labelled(steps=200, slots=8)
    shallow = {name: values[columns["position"] < 6] for name, values in columns.items()}
    assert set(replay(shallow, 100, FitSettings(ridge=0.0)).slopes[:, 0].tolist()) == {0.5}
    assert replay(shallow, 100).slopes[-1, 0] != 0.5
