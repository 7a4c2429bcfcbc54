from __future__ import annotations

import numpy as np
import pytest

from avbench.adaptive.depth import DepthTables
from avbench.adaptive.learned_costs import LearnedCosts

REQUESTS, K = 8, 3
SIZES = (1, 2, 4, 8, 16, 32)


def learned(*, verify: float = 1.0) -> LearnedCosts:
    """Verification costs 2 + 0.1 a token, drafting 0.5 a position."""
    draft = 0.5 * np.arange(K + 1)[:, None] * np.ones(REQUESTS + 1)
    return LearnedCosts(DepthTables(draft=draft, verify=verify * (2 + 0.1 * np.arange(200))), sizes=SIZES)


def true_step(depth: int, drafts: int) -> float:
    return 2 + 0.1 * (REQUESTS + drafts) + 0.5 * depth


def run(
    costs: LearnedCosts, depth: int, *, slow: float = 1.0, steps: int = 8, noise: float = 0.0, seed: int = 0
) -> None:
    """A while at `depth`, everything verified, all of it `slow` times as long as in truth."""
    rng = np.random.default_rng(seed)
    drafts = REQUESTS * depth
    times = slow * np.exp(noise * rng.standard_normal(steps))
    costs.learn_verify(
        depth=depth,
        requests=[REQUESTS] * steps,
        drafts=[drafts] * steps,
        prompt_tokens=[0] * steps,
        costs=(times * (2 + 0.1 * (REQUESTS + drafts))).tolist(),
    )
    if depth:
        costs.learn_draft(
            depth=depth, requests=[REQUESTS] * steps, prompt_tokens=[0] * steps, costs=(times * 0.5 * depth).tolist()
        )


def ratio(costs: LearnedCosts, depth: int, other: int = 1) -> float:
    """What drafting `depth` deep and verifying all of it costs against `other`, learned over true."""
    steps = costs.steps(REQUESTS)
    learned_ratio = steps[depth, REQUESTS * depth] / steps[other, REQUESTS * other]
    return float(learned_ratio * true_step(other, REQUESTS * other) / true_step(depth, REQUESTS * depth))


def test_unlearned_costs_are_the_tables_up_to_one_factor() -> None:
    costs = learned()
    steps, plain = costs.steps(REQUESTS), costs._tables.steps(REQUESTS)
    assert steps.shape == (K + 1, REQUESTS * K + 1)
    assert np.ptp(steps / plain) < 1e-12


def test_a_slow_machine_does_not_make_the_unseen_look_cheap() -> None:
    """Everything takes 1.4 times as long, only depth 1 is in use: the others are thought to be as slow. What is left is
    hope, a standard deviation of an entry's own error."""
    costs = learned()
    for i in range(40):
        run(costs, 1, slow=1.4, noise=0.05, seed=i)
    assert costs.steps(REQUESTS)[1, REQUESTS] == pytest.approx(1.4 * true_step(1, REQUESTS), rel=0.05)
    for depth in (0, 2, 3):
        assert 0.85 < ratio(costs, depth) <= 1.01


def test_an_entry_the_profile_got_wrong_is_put_right_by_a_few_looks() -> None:
    """Depth 2 was profiled 15 % too dear. Hope alone takes a part of that off, so that it is tried; three looks of
    eight steps do the rest."""
    costs = learned()
    costs._tables.verify[REQUESTS + 2 * REQUESTS] *= 1.15
    costs._tables.draft[2] *= 1.15
    for i in range(10):
        run(costs, 1, noise=0.05, seed=i)
    before = ratio(costs, 2)
    for i in range(3):
        run(costs, 2, noise=0.05, seed=i)
    assert before < 1.12
    assert ratio(costs, 2) == pytest.approx(1.0, abs=0.07)


def test_hope_ends_with_knowledge_and_returns_with_time() -> None:
    costs = learned()
    for i in range(20):
        run(costs, 1, seed=i)
        run(costs, 3, seed=i)
    known = ratio(costs, 3)
    for i in range(400):
        run(costs, 1, seed=i)
    forgotten = ratio(costs, 3)
    assert known == pytest.approx(1.0, abs=0.04)
    assert forgotten < known - 0.04
    assert forgotten > 0.8  # hope is bounded by the prior, however long it lasts


def test_one_absurd_step_changes_little_and_a_pause_nothing() -> None:
    costs = learned()
    for i in range(20):
        run(costs, 1, seed=i)
    before = costs.steps(REQUESTS)
    run(costs, 1, slow=300.0)
    assert costs.steps(REQUESTS) == pytest.approx(before, rel=0.01)
    run(costs, 1, slow=4.0, steps=1)
    assert costs.steps(REQUESTS)[1, REQUESTS] == pytest.approx(before[1, REQUESTS], rel=0.15)


def test_outliers_within_a_batch_do_not_count() -> None:
    costs = learned()
    times = [2.8] * 7 + [14.0]
    costs.learn_verify(depth=0, requests=[REQUESTS] * 8, drafts=[0] * 8, prompt_tokens=[0] * 8, costs=times)
    assert costs.corrections == pytest.approx(0, abs=1e-12)


def test_corrections_are_bounded_by_three() -> None:
    costs = learned()
    for i in range(200):
        run(costs, 1, slow=4.9, seed=i)
    assert costs.steps(REQUESTS)[1, REQUESTS] <= 3 * true_step(1, REQUESTS) * 1.001


def test_prompts_and_raggedness_are_effects_of_their_own() -> None:
    """Steps with prompts take twice as long as their tokens say: that is put down to the prompts."""
    costs = learned()
    for i in range(60):
        run(costs, 1, seed=i)
        costs.learn_verify(
            depth=1, requests=[REQUESTS], drafts=[REQUESTS], prompt_tokens=[48], costs=[2 * (2 + 0.1 * 64)]
        )
    assert costs.steps(REQUESTS)[1, REQUESTS] == pytest.approx(true_step(1, REQUESTS), rel=0.05)


def test_covariance_stays_a_covariance() -> None:
    costs = learned()
    for i in range(800):
        run(costs, i % 4, noise=0.1, seed=i)
    assert np.linalg.eigvalsh(costs._covariance).min() > -1e-9
    assert np.isfinite(costs.steps(REQUESTS)).all()
