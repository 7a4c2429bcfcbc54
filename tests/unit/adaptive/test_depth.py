from __future__ import annotations

import itertools

import numpy as np
import pytest

from avbench.adaptive.depth import Choice, DepthTables, choose_depth, expected_drafts
from avbench.errors import AvbenchError

# Two requests, three positions.
SURVIVAL = np.array([[[0.9, 0.5, 0.1], [0.6, 0.3, 0.2]]])


def tables(draft: list[float], verify: list[float], *, max_requests: int = 2) -> DepthTables:
    return DepthTables(draft=np.tile(np.array(draft)[:, None], (1, max_requests + 1)), verify=np.array(verify))


def test_the_best_slots_of_each_depth_add_up() -> None:
    expected = expected_drafts(SURVIVAL)
    assert expected.shape == (4, 7)
    assert expected[0, 0] == 0
    assert expected[1, :3] == pytest.approx([0, 0.9, 1.5])
    assert expected[2, :5] == pytest.approx([0, 0.9, 1.5, 2.0, 2.3])
    assert expected[3] == pytest.approx([0, 0.9, 1.5, 2.0, 2.3, 2.5, 2.6])
    assert np.isneginf(expected[0, 1:]).all()
    assert np.isneginf(expected[1, 3:]).all()
    assert np.isneginf(expected[2, 5:]).all()


def test_samples_are_averaged_rank_by_rank() -> None:
    """The best slot is one request's in one sample and the other's in the next: it is worth 0.9 both times, not the
    0.55 that either request has on average."""
    turned = np.concatenate((SURVIVAL, SURVIVAL[:, ::-1] * 0.5))
    assert expected_drafts(turned)[1, :3] == pytest.approx([0, 0.75 * 0.9, 0.75 * 1.5])


def test_one_request_needs_no_ranking() -> None:
    alone = SURVIVAL[:, :1]
    assert expected_drafts(alone)[3] == pytest.approx([0, 0.9, 1.4, 1.5])
    assert expected_drafts(np.concatenate((alone, 0 * alone)))[2, :3] == pytest.approx([0, 0.45, 0.7])


def test_depth_and_budget_by_hand() -> None:
    """Verification costs 1 + 0.1 a token. Free drafts: 2 + 2.3 over 1.6 = 2.69 with the best four slots, 2.65 with
    three, 2.65 with five. At 0.5 a position: (2 + 1.5) / (1.4 + 0.5) = 1.84 for depth 1, (2 + 2.3) / 2.6 = 1.65 for
    depth 2, 2 / 1.2 = 1.67 for none. At 1 a position none is best."""
    verify = [1 + 0.1 * n for n in range(9)]
    assert choose_depth(SURVIVAL, tables([0, 0, 0, 0], verify)) == Choice(depth=2, budget=4)
    assert choose_depth(SURVIVAL, tables([0, 0.5, 1, 1.5], verify)) == Choice(depth=1, budget=2)
    assert choose_depth(SURVIVAL, tables([0, 1, 2, 3], verify)) == Choice(depth=0, budget=0)


def test_a_block_drafter_goes_deep_or_not_at_all() -> None:
    verify = [1 + 0.1 * n for n in range(9)]
    assert choose_depth(SURVIVAL, tables([0, 0.5, 0.5, 0.5], verify)) == Choice(depth=2, budget=4)
    assert choose_depth(SURVIVAL, tables([0, 1.5, 1.5, 1.5], verify)) == Choice(depth=0, budget=0)


def test_fewer_drafts_may_be_verified_than_made() -> None:
    """The second slot of depth 1 would cost a step in the table."""
    assert choose_depth(SURVIVAL, tables([0, 0.1, 9, 9], [1, 1, 1, 1, 2, 2, 2, 2, 2])) == Choice(depth=1, budget=1)


def test_the_first_maximum_wins() -> None:
    certain_not = np.zeros((1, 2, 3))
    assert choose_depth(certain_not, tables([0, 0, 0, 0], [1.0] * 9)) == Choice(depth=0, budget=0)


@pytest.mark.parametrize("seed", range(30))
def test_no_other_choice_is_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    requests, positions = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    survival = np.cumprod(rng.uniform(size=(int(rng.integers(1, 3)), requests, positions)), axis=2)
    costs = tables(
        np.cumsum(rng.uniform(size=positions + 1)).tolist(),
        (1 + np.cumsum(rng.uniform(size=1 + requests * (positions + 1)))).tolist(),
        max_requests=requests,
    )

    def rate(depth: int, budget: int) -> float:
        best = np.sort(survival[:, :, :depth].reshape(len(survival), -1), axis=1)[:, ::-1]
        tokens = requests + best[:, :budget].sum(axis=1).mean()
        return float(tokens / (costs.draft[depth, requests] + costs.verify[requests + budget]))

    all_rates = {(d, b): rate(d, b) for d in range(positions + 1) for b in range(requests * d + 1)}
    choice = choose_depth(survival, costs)
    assert all_rates[choice.depth, choice.budget] == pytest.approx(max(all_rates.values()), rel=1e-12)


def test_logits_rows_bound_the_budget() -> None:
    free = tables([0, 0, 0, 0], [1.0] * 9)
    budgets = [choose_depth(SURVIVAL, free, max_total_logits=n).budget for n in (0, 2, 3, 5, 8, 100)]
    assert budgets == [0, 0, 1, 3, 6, 6]


def test_costs_add_up_per_depth_and_budget() -> None:
    steps = tables([0, 3, 4, 5], [10.0 + n for n in range(9)]).steps(2)
    assert steps.shape == (4, 7)
    for depth, budget in itertools.product(range(4), range(7)):
        assert steps[depth, budget] == [0, 3, 4, 5][depth] + 12 + budget


@pytest.mark.parametrize("requests", [2, 3])
def test_a_batch_beyond_the_tables_is_refused(requests: int) -> None:
    with pytest.raises(AvbenchError, match=f"a step of {requests} requests"):
        tables([0, 1, 2, 3], [1.0] * 8).steps(requests)
