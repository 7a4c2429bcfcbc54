from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

from avbench.adaptive.confidence import Refit
from avbench.adaptive.estimator import OnlineAcceptanceEstimator, newton_step, sigmoid

RIDGE = 1e-3


def exact_sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-x))


def verdicts(accepted: NDArray[np.bool_], admitted: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """num_sampled and num_rejected of independent coin tosses [R, K], of which `admitted` [R] were verified."""
    kept = np.minimum(np.cumprod(accepted, axis=1).sum(axis=1), admitted)
    return kept + 1, admitted - kept


def serve(
    estimator: OnlineAcceptanceEstimator, slope: float, intercepts: list[float], *, steps: int, requests: int, seed: int
) -> list[Refit]:
    """Draft and grade `steps` times by a known law; every draft is verified."""
    rng = np.random.default_rng(seed)
    slots, positions = np.arange(requests), len(intercepts)
    reports = []
    for _ in range(steps):
        features = rng.normal(1.0, 2.0, (requests, positions))
        estimator.predict(features, slots)
        accepted = rng.random(features.shape) < exact_sigmoid(slope * features + np.array(intercepts))
        report = estimator.step(slots, *verdicts(accepted, np.full(requests, positions)))
        reports += [report] if report else []
    return reports


def test_cold_start() -> None:
    estimator = OnlineAcceptanceEstimator(max_requests=2, positions=3)
    predicted = estimator.predict(np.array([[0.0, 1.0, -1.0]]), np.array([1]))
    assert predicted == pytest.approx(exact_sigmoid(np.array([[-0.2, 0.3, -0.7]])), abs=1e-7)
    assert predicted.dtype == np.float32
    assert estimator.predictions[1].tolist() == predicted[0].tolist()
    assert estimator.features[1].tolist() == [0.0, 1.0, -1.0]
    assert not estimator.predictions[0].any()


def test_recovers_known_coefficients() -> None:
    """16 requests x 100 steps x 30 rounds: the standard error of one round's slope is about 0.03, of the deepest
    intercept (some 300 labels a round) about 0.15; averages over the last 20 rounds are 4.5 times better."""
    truth = 1.1, [0.9, 0.2, -0.4]
    estimator = OnlineAcceptanceEstimator(max_requests=16, positions=3)
    reports = serve(estimator, *truth, steps=3000, requests=16, seed=1)
    assert [report.number for report in reports] == list(range(1, 31))
    settled = reports[10:]
    assert np.mean([report.slope for report in settled]) == pytest.approx(truth[0], abs=0.04)
    assert np.mean([report.intercepts for report in settled], axis=0) == pytest.approx(truth[1], abs=0.12)


def test_log_loss_falls_while_it_learns() -> None:
    reports = serve(
        OnlineAcceptanceEstimator(max_requests=16, positions=2), 1.5, [1.5, 0.5], steps=600, requests=16, seed=2
    )
    losses = [report.log_loss for report in reports]
    assert losses[0] is not None
    assert losses[-1] is not None
    assert losses[-1] < losses[0] - 0.02


def test_labels_are_the_accepted_drafts_and_the_first_rejected_one() -> None:
    """Rows: all 3 admitted, first accepted; 2 admitted, both accepted (position 3 was trimmed); 1 admitted, rejected;
    nothing admitted; nothing sampled (prefill)."""
    estimator = OnlineAcceptanceEstimator(max_requests=5, positions=3, refit_interval=1)
    slots = np.arange(5)
    estimator.predict(np.zeros((5, 3)), slots)
    report = estimator.step(slots, np.array([2, 3, 1, 1, 0]), np.array([2, 0, 1, 0, 0]))
    assert report is not None
    assert report.counts == (3, 2, 0)
    p = float(exact_sigmoid(np.array(-0.2)))
    assert report.log_loss == pytest.approx(-(3 * np.log(p) + 2 * np.log(1 - p)) / 5, abs=1e-6)
    assert [g1 for _, g1 in report.gradient] == pytest.approx([2 - 3 * p, 1 - 2 * p, 0], abs=1e-6)


def test_a_verdict_grades_the_prediction_that_was_made_even_after_a_refit() -> None:
    estimator = OnlineAcceptanceEstimator(max_requests=1, positions=1, refit_interval=2)
    slot, hit = np.array([0]), (np.array([2]), np.array([0]))
    before = float(estimator.predict(np.array([[2.0]]), slot)[0, 0])
    estimator.step(slot, *hit)
    assert estimator.step(slot, *hit) is not None
    assert float(estimator.predictions[0, 0]) == before
    estimator.step(slot, *hit)
    report = estimator.step(slot, *hit)
    assert report is not None
    assert report.gradient[0][1] == pytest.approx(2 * (1 - before), abs=1e-6)


def test_every_step_counts_also_without_requests() -> None:
    estimator = OnlineAcceptanceEstimator(max_requests=4, positions=2, refit_interval=3)
    nobody = np.zeros(0, dtype=int)
    reports = [estimator.step(nobody, nobody, nobody) for _ in range(6)]
    assert [report is not None for report in reports] == [False, False, True] * 2
    assert reports[5] is not None
    assert reports[5].number == 2
    assert reports[5].log_loss is None
    assert reports[5].slope == 0.5


def test_a_verdict_without_a_draft_grades_a_zero_prediction() -> None:
    """What vLLM's zeroed buffers hold: f = 0 and p = 0, so only the residual counts."""
    estimator = OnlineAcceptanceEstimator(max_requests=1, positions=2, refit_interval=1)
    report = estimator.step(np.array([0]), np.array([2]), np.array([1]))
    assert report is not None
    assert report.counts == (1, 1)
    assert report.information == ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    assert report.gradient == ((0.0, 1.0), (0.0, 0.0))
    assert report.log_loss == pytest.approx(np.log(2**24) / 2)


def closed_form(statistics: NDArray[np.float64], damping: float) -> tuple[float, NDArray[np.float64]]:
    """The same step with numpy's general solver in float64, then damped: shared slope by N, intercepts by n_k. The
    intercepts are solved for with the damped slope step in place."""
    a, b, c, g0, g1, n = statistics
    size = len(b) + 1
    system = np.zeros((size, size))
    system[0, 0], system[0, 1:], system[1:, 0] = a.sum() + RIDGE, b, b
    system[np.arange(1, size), np.arange(1, size)] = c + RIDGE
    slope_step = np.linalg.solve(system, np.array([g0.sum(), *g1]))[0] * n.sum() / (n.sum() + damping)
    return slope_step, (g1 - b * slope_step) / (c + RIDGE) * n / (n + damping)


@pytest.mark.parametrize("damping", [0.0, 50.0, 1000.0])
def test_newton_step_solves_the_arrowhead_system_and_damps_it(damping: float) -> None:
    rng = np.random.default_rng(3)
    feature, weight = rng.normal(1, 2, (4, 200)), rng.uniform(0.05, 0.25, (4, 200))
    residual = rng.normal(0.1, 0.4, (4, 200))
    terms = [weight * feature**2, weight * feature, weight, residual * feature, residual, np.ones_like(weight)]
    statistics = np.array([term.sum(axis=1) for term in terms])
    slope_step, intercept_steps = newton_step(
        statistics.astype(np.float32), 0.5, np.float32(damping), np.float32(RIDGE)
    )
    wanted_slope, wanted_intercepts = closed_form(statistics, damping)
    assert slope_step == pytest.approx(wanted_slope, abs=1e-5)
    assert intercept_steps == pytest.approx(wanted_intercepts, abs=1e-5)


def one_position(*, count: float, g0: float, g1: float) -> NDArray[np.float32]:
    return np.array([[40.0], [10.0], [20.0], [g0], [g1], [count]], dtype=np.float32)


def test_damping_halves_a_step_of_fifty_labels() -> None:
    """Fully damped slope step at n = 50 is half of the undamped one; a position without labels does not move at all."""
    full, _ = newton_step(one_position(count=50, g0=3, g1=1), 0.5, np.float32(0), np.float32(RIDGE))
    half, _ = newton_step(one_position(count=50, g0=3, g1=1), 0.5, np.float32(50), np.float32(RIDGE))
    assert half == pytest.approx(full / 2, rel=1e-6)
    none, nowhere = newton_step(one_position(count=0, g0=3, g1=1), 0.5, np.float32(50), np.float32(RIDGE))
    assert none == 0
    assert nowhere.tolist() == [0.0]


def test_sign_guard_keeps_the_slope_and_still_moves_the_intercepts() -> None:
    statistics = one_position(count=200, g0=-60, g1=5)
    free, _ = newton_step(statistics, 5.0, np.float32(50), np.float32(RIDGE))
    guarded, intercepts = newton_step(statistics, 0.5, np.float32(50), np.float32(RIDGE))
    assert free < -0.5
    assert guarded == 0
    assert intercepts[0] == pytest.approx(5 / (20 + RIDGE) * 200 / 250, rel=1e-5)


def test_a_slope_may_fall_to_exactly_zero() -> None:
    statistics = one_position(count=200, g0=-10, g1=0)
    step, _ = newton_step(statistics, 0.0, np.float32(50), np.float32(RIDGE))
    assert step == 0
    exact, _ = newton_step(statistics, 10.0, np.float32(50), np.float32(RIDGE))
    again, _ = newton_step(statistics, float(-exact), np.float32(50), np.float32(RIDGE))
    assert again == exact


def test_nan_moves_nothing() -> None:
    statistics = np.full((6, 2), np.nan, dtype=np.float32)
    step, intercepts = newton_step(statistics, 0.5, np.float32(50), np.float32(RIDGE))
    assert step == 0
    assert intercepts.tolist() == [0.0, 0.0]
    unridged, still = newton_step(np.zeros((6, 2), dtype=np.float32), 0.5, np.float32(0), np.float32(0))
    assert unridged == 0
    assert still.tolist() == [0.0, 0.0]


def test_a_position_that_is_never_admitted_keeps_its_cold_intercept() -> None:
    estimator = OnlineAcceptanceEstimator(max_requests=4, positions=3, refit_interval=20)
    slots = np.arange(4)
    for _ in range(100):
        estimator.predict(np.full((4, 3), 1.0), slots)
        estimator.step(slots, np.full(4, 3), np.zeros(4, dtype=int))
    assert estimator.intercepts[2] == np.float32(-0.2)
    assert estimator.intercepts[0] > 0.5


def test_statistics_are_cleared_after_each_round() -> None:
    estimator = OnlineAcceptanceEstimator(max_requests=2, positions=1, refit_interval=4)
    slots = np.arange(2)
    estimator.predict(np.ones((2, 1)), slots)
    counts = [estimator.step(slots, np.array([2, 1]), np.array([0, 1])) for _ in range(12)]
    assert [report.counts for report in counts if report] == [(8,), (8,), (8,)]


def test_memory_of_a_round_does_not_grow_with_its_length() -> None:
    """A million labels would take megabytes; the statistics are 6 x K numbers."""
    estimator = OnlineAcceptanceEstimator(max_requests=64, positions=7, refit_interval=10**9)
    slots = np.arange(64)
    estimator.predict(np.ones((64, 7)), slots)
    verdict = np.full(64, 8), np.zeros(64, dtype=int)

    def held_after(steps: int) -> int:
        for _ in range(steps):
            estimator.step(slots, *verdict)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        warm = held_after(5)
        assert held_after(2000) - warm < 2000
    finally:
        tracemalloc.stop()


def test_float32_confidences_of_one_stay_finite_in_the_log_loss() -> None:
    estimator = OnlineAcceptanceEstimator(max_requests=1, positions=1, refit_interval=1)
    assert estimator.predict(np.array([[40.0]]), np.array([0]))[0, 0] == 1.0
    report = estimator.step(np.array([0]), np.array([1]), np.array([1]))
    assert report is not None
    assert report.log_loss == pytest.approx(24 * np.log(2))


def test_batches_of_any_size_sum_alike() -> None:
    """One step of 300 requests and 300 steps of one see the same labels."""
    rng = np.random.default_rng(5)
    features = rng.normal(1, 2, (300, 4))
    sampled, rejected = verdicts(rng.random((300, 4)) < 0.6, rng.integers(0, 5, 300))
    whole = OnlineAcceptanceEstimator(max_requests=300, positions=4, refit_interval=1)
    whole.predict(features, np.arange(300))
    together = whole.step(np.arange(300), sampled, rejected)
    single = OnlineAcceptanceEstimator(max_requests=300, positions=4, refit_interval=300)
    single.predict(features, np.arange(300))
    apart = [single.step(np.array([r]), sampled[r : r + 1], rejected[r : r + 1]) for r in range(300)][-1]
    assert together is not None
    assert apart is not None
    assert together.counts == apart.counts
    assert np.array(together.information) == pytest.approx(np.array(apart.information), rel=1e-5)
    assert together.slope == pytest.approx(apart.slope, abs=1e-5)
    assert together.log_loss == pytest.approx(apart.log_loss, rel=1e-6)


def test_sigmoid_saturates_without_a_warning() -> None:
    with np.errstate(all="raise"):
        assert sigmoid(np.array([-1000.0, 0.0, 1000.0], dtype=np.float32)).tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("wrong", [{"positions": 0}, {"refit_interval": 0}, {"max_requests": -1}])
def test_impossible_shapes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="cannot estimate"):
        OnlineAcceptanceEstimator(**{"max_requests": 2, "positions": 2, **wrong})
