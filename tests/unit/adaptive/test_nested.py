from __future__ import annotations

import numpy as np
import pytest

from avbench.adaptive.depth import Choice, DepthTables
from avbench.adaptive.nested import INTERVAL, NestedDepth

K = 4
REQUESTS = 16


class Loop:
    """Engine steps in which position k is accepted with probability `chance[k]`, and a source that says `confidence`
    of every draft."""

    def __init__(self, chance: list[float], *, draft: float, token: float, confidence: float | None = None) -> None:
        self.chance, self.confidence = np.array(chance), confidence
        self.costs = DepthTables(
            draft=draft * np.arange(K + 1)[:, None] * np.ones(REQUESTS + 1),
            verify=1 + token * np.arange(REQUESTS * (K + 1) + 1),
        )
        self.rule = NestedDepth(costs=self.costs, max_requests=REQUESTS, positions=K)
        self.depths: list[int] = []
        self._rng = np.random.default_rng(0)
        self._drafted = 0

    def run(self, steps: int) -> list[int]:
        """The depths that were chosen."""
        slots = np.arange(REQUESTS)
        for _ in range(steps):
            verified = np.full(REQUESTS, self._drafted)
            passed = self._rng.uniform(size=(REQUESTS, K)) < self.chance
            accepted = np.minimum(np.logical_and.accumulate(passed, axis=1).sum(axis=1), verified)
            self.rule.verdict(slots, accepted, verified)
            if self.rule.due(REQUESTS):
                self.rule.choose(REQUESTS)
            depth = self._drafted = self.rule.choice(REQUESTS).depth
            said = self.chance if self.confidence is None else np.full(K, self.confidence)
            self.rule.record(slots, np.tile(said, (REQUESTS, 1)), depth)
            self.depths.append(depth)
        return self.depths[-steps:]

    def best(self) -> int:
        """The depth that an omniscient rule would choose."""
        accepted = np.append(0.0, np.cumsum(np.cumprod(self.chance)))
        tokens = REQUESTS * (1 + np.arange(K + 1))
        return int(np.argmax((1 + accepted) / (self.costs.draft[:, REQUESTS] + self.costs.verify[tokens])))


def share(depths: list[int], depth: int) -> float:
    return depths.count(depth) / len(depths)


CASES = [  # chance of each position, price of a pass, of a token, the best depth
    ([0.9, 0.9, 0.9, 0.8], 0.05, 0.002, 4),
    ([0.8, 0.7, 0.3, 0.3], 0.1, 0.01, 2),
    ([0.6, 0.5, 0.4, 0.3], 0.1, 0.02, 1),
    ([0.3, 0.3, 0.3, 0.3], 0.5, 0.05, 0),
]


@pytest.mark.parametrize(("chance", "draft", "token", "best"), CASES)
def test_it_finds_the_best_depth_and_stays_there(chance: list[float], draft: float, token: float, best: int) -> None:
    loop = Loop(chance, draft=draft, token=token)
    assert loop.best() == best
    loop.run(30)
    assert share(loop.run(1000), best) > 0.95


@pytest.mark.parametrize(("chance", "draft", "token", "best"), CASES)
@pytest.mark.parametrize("confidence", [0.45, 0.2, 0.9])
def test_a_source_that_is_wrong_is_seen_through(
    chance: list[float], draft: float, token: float, best: int, confidence: float
) -> None:
    """As the estimator is before its first refit, and a head that was trained on other texts."""
    loop = Loop(chance, draft=draft, token=token, confidence=confidence)
    loop.run(300)
    assert share(loop.run(1000), best) > 0.85


def test_depth_zero_is_not_the_end() -> None:
    """Acceptance comes back while nothing is drafted: a try notices within a few hundred steps, and tries are rare."""
    loop = Loop([0.1, 0.1, 0.1, 0.1], draft=0.2, token=0.02)
    loop.run(30)
    assert share(loop.run(1000), 0) > 0.97
    assert loop.depths[-1000:].count(0) < 1000
    loop.chance[:] = 0.95
    best = loop.best()
    assert best > 0
    loop.run(600)
    assert share(loop.run(300), best) > 0.9


def test_a_loss_of_acceptance_is_noticed_at_once() -> None:
    loop = Loop([0.9, 0.9, 0.9, 0.9], draft=0.1, token=0.01)
    assert set(loop.run(60)[30:]) == {4}
    loop.chance[:] = 0.05
    assert loop.best() == 0
    loop.run(3 * INTERVAL)
    assert share(loop.run(200), 0) > 0.97


def test_another_load_is_chosen_for_at_once() -> None:
    costs = DepthTables(draft=np.zeros((2, 65)), verify=1 + np.append(np.zeros(17), np.arange(200.0)))
    rule = NestedDepth(costs=costs, max_requests=64, positions=1)
    assert rule.due(4)
    rule.choose(4)
    assert rule.choice(4) == Choice(depth=1, budget=4)
    assert not rule.due(4)
    assert not rule.due(5)
    assert rule.due(6)
    assert rule.due(2)
    rule.choose(64)
    assert rule.choice(64).depth == 0


def test_the_budget_goes_with_the_requests() -> None:
    costs = DepthTables(draft=np.zeros((2, 65)), verify=np.ones(200))
    rule = NestedDepth(costs=costs, max_requests=64, positions=1, max_total_logits=42)
    rule.choose(20)
    assert rule.choice(20) == Choice(depth=1, budget=20)
    assert rule.choice(18).budget == 18
    assert rule.choice(21).budget == 21
    assert rule.choice(22).budget == 20  # 42 rows of logits


def test_a_new_depth_is_looked_at_again_soon_an_old_one_later() -> None:
    loop = Loop([0.6, 0.5, 0.4, 0.3], draft=0.1, token=0.02)
    loop.run(50)
    rule = loop.rule
    assert rule._interval == INTERVAL
    rule.choose(REQUESTS)
    waits = 0
    while not rule.due(REQUESTS):
        loop.run(1)
        waits += 1
    assert waits == INTERVAL
