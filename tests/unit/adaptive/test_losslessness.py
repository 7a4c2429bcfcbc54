"""Does trimming leave the target's distribution alone? Counted out exactly: every draft, every verdict, every step.

Small vocabularies, no sampling. The engine's own budget and ranking decide; only the model is made up.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from avbench.adaptive.budget import admit, size_budget
from avbench.adaptive.costs import CostTables, interpolated, staircase
from avbench.adaptive.depth import Choice, DepthTables, choose_depth
from avbench.adaptive.estimator import OnlineAcceptanceEstimator
from avbench.adaptive.features import Float32, logit_qmax
from avbench.adaptive.nested import NestedDepth
from avbench.adaptive.outlook import Outlook
from avbench.adaptive.verification import AdaptiveVerification

Tokens = tuple[int, ...]
Distribution = dict[Tokens, float]
Model = Callable[[Tokens], NDArray[np.float64]]  # prefix -> probabilities of the next token
Sizing = Callable[[AdaptiveVerification, NDArray[np.intp], NDArray[np.intp]], int]


def emitted(target: Model, draft: Model, prefix: Tokens, drafts: Tokens, admitted: int) -> Distribution:
    """What one verification emits: accepted drafts, then the corrected token or, if all admitted ones hold, a free
    one."""
    outcomes: Distribution = {}
    reached = 1.0
    for depth in range(admitted + 1):
        p = target(prefix + drafts[:depth])
        if depth == admitted:
            rejected, leftover = 1.0, p
        else:
            q = draft(prefix + drafts[:depth])
            accepted = min(1.0, p[drafts[depth]] / q[drafts[depth]])
            rejected, leftover = 1.0 - accepted, np.maximum(p - q, 0.0)
        if rejected > 0:
            for token, share in enumerate(leftover / leftover.sum()):
                outcomes[(*drafts[:depth], token)] = reached * rejected * share
        reached *= 1.0 - rejected
    return outcomes


def drawn(model: Model, prefix: Tokens, length: int) -> Distribution:
    """Every continuation of `length` tokens with its probability."""
    if not length:
        return {(): 1.0}
    return {
        (token, *rest): float(chance * share)
        for token, chance in enumerate(model(prefix))
        for rest, share in drawn(model, (*prefix, token), length - 1).items()
    }


def total_variation(one: dict[object, float], other: dict[object, float]) -> float:
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in one.keys() | other.keys()) / 2


@dataclass(frozen=True)
class Engine:
    """Engine steps over all requests at once, until each has emitted `length` tokens; the first one is the
    prefill's."""

    target: Model
    draft: Model
    costs: CostTables
    sizing: Sizing
    requests: int
    positions: int
    length: int
    features: dict[Tokens, float] = field(default_factory=dict)  # of the drafts seen so far

    def output(self) -> dict[object, float]:
        """The exact joint distribution of every request's first `length` tokens."""
        verification = AdaptiveVerification(costs=self.costs, max_requests=self.requests, positions=self.positions)
        for slot in range(self.requests):
            verification.add_request(slot)
        total: dict[object, float] = {}
        for first, chance in joint([drawn(self.target, (), 1)] * self.requests):
            self._draft(first, verification.confidences, verification.stale_confidences, chance, total)
        return total

    def _draft(
        self,
        prefixes: tuple[Tokens, ...],
        confidences: Float32,
        stale: Float32,
        chance: float,
        total: dict[object, float],
    ) -> None:
        if all(len(prefix) >= self.length for prefix in prefixes):
            key = tuple(prefix[: self.length] for prefix in prefixes)
            total[key] = total.get(key, 0.0) + chance
            return
        for drafts, share in joint([drawn(self.draft, prefix, self.positions) for prefix in prefixes]):
            verification = self._at(confidences, stale)
            features = [
                [self._feature(prefix + d[:k]) for k in range(self.positions)]
                for prefix, d in zip(prefixes, drafts, strict=True)
            ]
            source = OnlineAcceptanceEstimator(max_requests=self.requests, positions=self.positions)
            slots = np.arange(self.requests)
            verification.record(slots, source.predict(np.array(features), slots))
            self._verify(prefixes, drafts, verification, chance * share, total)

    def _verify(
        self,
        prefixes: tuple[Tokens, ...],
        drafts: tuple[Tokens, ...],
        verification: AdaptiveVerification,
        chance: float,
        total: dict[object, float],
    ) -> None:
        slots, scheduled = np.arange(self.requests), np.full(self.requests, self.positions)
        admitted = verification.admit(slots, scheduled, self.sizing(verification, slots, scheduled))
        verdicts = [
            emitted(self.target, self.draft, prefix, d, int(a))
            for prefix, d, a in zip(prefixes, drafts, admitted, strict=True)
        ]
        for outcome, share in joint(verdicts):
            longer = tuple(prefix + new for prefix, new in zip(prefixes, outcome, strict=True))
            self._draft(longer, verification.confidences, verification.stale_confidences, chance * share, total)

    def _at(self, confidences: Float32, stale: Float32) -> AdaptiveVerification:
        verification = AdaptiveVerification(costs=self.costs, max_requests=self.requests, positions=self.positions)
        verification.confidences[:], verification.stale_confidences[:] = confidences, stale
        return verification

    def _feature(self, prefix: Tokens) -> float:
        if prefix not in self.features:
            with np.errstate(divide="ignore"):
                self.features[prefix] = float(logit_qmax(np.log(self.draft(prefix))))
        return self.features[prefix]

    def wanted(self) -> dict[object, float]:
        """The target's own distribution of the same tokens."""
        return dict(joint([drawn(self.target, (), self.length)] * self.requests))


def joint(distributions: list[Distribution]) -> Iterator[tuple[tuple[Tokens, ...], float]]:
    for combination in product(*(d.items() for d in distributions)):
        chance = float(np.prod([share for _, share in combination]))
        if chance > 0:
            yield tuple(tokens for tokens, _ in combination), chance


def from_previous_step(verification: AdaptiveVerification, slots: NDArray[np.intp], scheduled: NDArray[np.intp]) -> int:
    return verification.budget(slots, scheduled, other_tokens=len(slots), sampling_requests=len(slots))


def from_current_step(verification: AdaptiveVerification, slots: NDArray[np.intp], scheduled: NDArray[np.intp]) -> int:
    return size_budget(
        verification.confidences[slots],
        scheduled,
        other_tokens=len(slots),
        sampling_requests=len(slots),
        costs=verification.costs,
    )


START, A, B = 0, 1, 2


def hand_built(prefix: Tokens) -> NDArray[np.float64]:
    """Target and draft alike, so that every verified draft is accepted. After START a fair coin; after A the draft
    is sure of A, after B it has no idea."""
    if not prefix:
        return np.array([1.0, 0.0, 0.0])
    if prefix[-1] == A:
        return np.array([0.0005, 0.999, 0.0005])
    return np.array([0.0, 0.5, 0.5]) if prefix[-1] == START else np.array([0.2, 0.4, 0.4])


def hand_built_costs() -> CostTables:
    """One token costs 1; two and three are padded to one size and cost 1.78."""
    return staircase(draft_curve=[(1, 0.0)], verify_curve=[(1, 1.0), (3, 1.78)], max_requests=1, max_tokens=3)


def hand_built_engine(sizing: Sizing) -> Engine:
    return Engine(
        target=hand_built,
        draft=hand_built,
        costs=hand_built_costs(),
        sizing=sizing,
        requests=1,
        positions=2,
        length=2,
    )


def test_sizing_from_current_confidences_is_not_lossless() -> None:
    """Confidence of position 1 is sigmoid(-0.2) = 0.450. If A is drawn there, position 2 is confident (sigmoid of
    0.5 * 6.9 - 0.2 = 0.963): 1 + 0.450 + 0.434 = 1.884 tokens over 1.78 beat 1 over 1, both are verified and A is
    emitted. If B is drawn, 1 + 0.450 + 0.450 * 0.401 = 1.631 over 1.78 do not: nothing is verified and the target
    tosses its coin afresh. A comes out with 1/2 + 1/2 * 1/2 = 3/4 instead of 1/2."""
    engine = hand_built_engine(from_current_step)
    output = engine.output()
    assert output[((START, A),)] == pytest.approx(0.75)
    assert total_variation(output, engine.wanted()) == pytest.approx(0.25)


def test_the_same_case_is_lossless_when_sized_from_the_previous_step() -> None:
    engine = hand_built_engine(from_previous_step)
    assert total_variation(engine.output(), engine.wanted()) < 1e-12


def test_it_is_the_step_in_the_costs_that_does_the_harm() -> None:
    """Without padding the best budget is found going upwards, slot by slot, and never looks past the slot it
    decides."""
    engine = hand_built_engine(from_current_step)
    smooth = interpolated(draft_curve=[(1, 0.0)], verify_curve=[(1, 1.0), (3, 1.78)], max_requests=1, max_tokens=3)
    engine = replace(engine, costs=smooth)
    assert total_variation(engine.output(), engine.wanted()) < 1e-12


def random_model(rng: np.random.Generator, vocabulary: int, sharpness: float) -> Model:
    known: dict[Tokens, NDArray[np.float64]] = {}

    def model(prefix: Tokens) -> NDArray[np.float64]:
        context = prefix[-2:]
        if context not in known:
            odds = np.exp(sharpness * rng.standard_normal(vocabulary))
            known[context] = odds / odds.sum()
        return known[context]

    return model


def random_engine(seed: int, *, requests: int, positions: int, length: int, sizing: Sizing) -> Engine:
    rng = np.random.default_rng(seed)
    tokens = requests * (positions + 1)
    sizes = sorted({1, tokens, *rng.integers(1, tokens + 1, 2).tolist()})
    prices = np.cumsum(rng.uniform(0.2, 1.0, len(sizes)))
    return Engine(
        target=random_model(rng, 2, 1.0),
        draft=random_model(rng, 2, 2.0),
        costs=staircase(
            draft_curve=[(1, 0.1)],
            verify_curve=list(zip(sizes, prices.tolist(), strict=True)),
            max_requests=requests,
            max_tokens=tokens,
        ),
        sizing=sizing,
        requests=requests,
        positions=positions,
        length=length,
    )


class Recorder:
    """Sizes by `rule` and remembers what it chose."""

    def __init__(self, rule: Sizing) -> None:
        self.rule = rule
        self.budgets: set[int] = set()

    def __call__(self, verification: AdaptiveVerification, slots: NDArray[np.intp], scheduled: NDArray[np.intp]) -> int:
        budget = self.rule(verification, slots, scheduled)
        self.budgets.add(budget)
        return budget


# Models and step costs for which current confidences do bias the output: what they leave at zero means something.
BIASED_SEEDS = (3, 4, 7, 11)


@pytest.mark.parametrize("seed", BIASED_SEEDS)
def test_random_models_and_step_costs_with_one_request(seed: int) -> None:
    case = {"requests": 1, "positions": 3, "length": 4}
    previous, current = Recorder(from_previous_step), Recorder(from_current_step)
    honest = random_engine(seed, **case, sizing=previous)
    biased = random_engine(seed, **case, sizing=current)
    assert total_variation(honest.output(), honest.wanted()) < 1e-12
    assert total_variation(biased.output(), biased.wanted()) > 1e-2
    assert len(previous.budgets) > 1
    assert len(current.budgets) > 1


@pytest.mark.parametrize("seed", [7, 12])
def test_requests_that_compete_for_one_budget_stay_lossless(seed: int) -> None:
    """Ranking reads the confidences of the drafts at hand, of both requests; budgets of 2 and 4 of 4 slots occur."""
    recorder = Recorder(from_previous_step)
    engine = random_engine(seed, requests=2, positions=2, length=3, sizing=recorder)
    assert total_variation(engine.output(), engine.wanted()) < 1e-12
    assert recorder.budgets == {2, 4}


def test_two_requests_sized_from_current_confidences_are_biased_too() -> None:
    engine = random_engine(12, requests=2, positions=2, length=2, sizing=from_current_step)
    assert total_variation(engine.output(), engine.wanted()) > 5e-3


def test_trimming_by_the_drawn_token_biases_the_output() -> None:
    """Vocabulary {a, b}, target (0.5, 0.5), draft (0.2, 0.8), trimmed when the drawn token has q < 0.5. Drawing a (0.2)
    trims, so the target samples: 0.1 each. Drawing b (0.8) verifies and is kept with 0.625, else a is emitted: 0.5
    b, 0.3 a. Together 0.4 and 0.6 instead of 0.5 and 0.5; a rule on q_max = 0.8 verifies both and is exact."""
    target, q = np.array([0.5, 0.5]), np.array([0.2, 0.8])

    def first_token(admits: Callable[[int], bool]) -> NDArray[np.float64]:
        total = np.zeros(2)
        for token in range(2):
            for tokens, chance in emitted(lambda _: target, lambda _: q, (), (token,), int(admits(token))).items():
                total[tokens[0]] += q[token] * chance
        return total

    assert first_token(lambda token: q[token] >= 0.5) == pytest.approx([0.4, 0.6])
    assert first_token(lambda _: bool(q.max() >= 0.5)) == pytest.approx([0.5, 0.5])
    assert first_token(lambda _: bool(q.max() >= 0.9)) == pytest.approx([0.5, 0.5])


# Nested depth, an extension of avbench: the depth is chosen too.


@dataclass(frozen=True)
class NestedEngine:
    """Engine steps in which `NestedDepth` chooses depth and budget, everything it remembers included; with a sample and
    a patience so small that it changes its mind all the time. `hindsight`: choose from the confidences of the very
    drafts that are decided about."""

    target: Model
    draft: Model
    costs: DepthTables
    requests: int
    positions: int
    length: int
    hindsight: bool = False
    choices: set[tuple[int, int]] = field(default_factory=set)  # that were made after the first step

    def output(self) -> dict[object, float]:
        """The exact joint distribution of every request's first `length` tokens."""
        size = {"max_requests": self.requests, "positions": self.positions}
        rule = NestedDepth(costs=self.costs, **size, outlook=Outlook(**size, patience=2.0, smallest_sample=1))
        total: dict[object, float] = {}
        for first, chance in joint([drawn(self.target, (), 1)] * self.requests):
            self._draft(first, rule, chance, total, 0)
        return total

    def wanted(self) -> dict[object, float]:
        """The target's own distribution of the same tokens."""
        return dict(joint([drawn(self.target, (), self.length)] * self.requests))

    def _draft(
        self, prefixes: tuple[Tokens, ...], rule: NestedDepth, chance: float, total: dict[object, float], step: int
    ) -> None:
        if all(len(prefix) >= self.length for prefix in prefixes):
            key = tuple(prefix[: self.length] for prefix in prefixes)
            total[key] = total.get(key, 0.0) + chance
            return
        if rule.due(self.requests):
            rule.choose(self.requests)
        choice = rule.choice(self.requests)
        depth = self.positions if self.hindsight else choice.depth
        if step:
            self.choices.add((choice.depth, choice.budget))
        for drafts, share in joint([drawn(self.draft, prefix, depth) for prefix in prefixes]):
            here, slots = copy.deepcopy(rule), np.arange(self.requests)
            features = np.zeros((self.requests, self.positions))
            for i, (prefix, tokens) in enumerate(zip(prefixes, drafts, strict=True)):
                with np.errstate(divide="ignore"):
                    features[i, :depth] = [logit_qmax(np.log(self.draft(prefix + tokens[:k]))) for k in range(depth)]
            source = OnlineAcceptanceEstimator(max_requests=self.requests, positions=self.positions)
            confidences = here.record(slots, source.predict(features, slots), depth)
            if self.hindsight:
                choice = choose_depth(np.cumprod(confidences, axis=1)[None], self.costs)
            self._verify(prefixes, drafts, here, confidences, choice, chance * share, total, step)

    def _verify(
        self,
        prefixes: tuple[Tokens, ...],
        drafts: tuple[Tokens, ...],
        rule: NestedDepth,
        confidences: Float32,
        choice: Choice,
        chance: float,
        total: dict[object, float],
        step: int,
    ) -> None:
        scheduled = np.full(self.requests, min(choice.depth, self.positions))
        admitted = admit(confidences, scheduled, choice.budget)
        verdicts = [
            emitted(self.target, self.draft, prefix, tokens, int(a))
            for prefix, tokens, a in zip(prefixes, drafts, admitted, strict=True)
        ]
        for outcome, share in joint(verdicts):
            here = copy.deepcopy(rule)
            accepted = np.array([len(new) - 1 for new in outcome])
            here.verdict(np.arange(self.requests), accepted, admitted)
            longer = tuple(prefix + new for prefix, new in zip(prefixes, outcome, strict=True))
            self._draft(longer, here, chance * share, total, step + 1)


def hand_built_depth(*, hindsight: bool) -> NestedEngine:
    """One block of drafts costs 0.78 however deep it is and verification 1 whatever it verifies: where the estimator is
    cold, the very comparison of `test_sizing_from_current_confidences_is_not_lossless`."""
    costs = DepthTables(draft=np.array([[0.0, 0.0], [0.0, 0.78], [0.0, 0.78]]), verify=np.ones(4))
    return NestedEngine(
        target=hand_built,
        draft=hand_built,
        costs=costs,
        requests=1,
        positions=2,
        length=2,
        hindsight=hindsight,
    )


def test_depth_chosen_from_current_confidences_is_not_lossless() -> None:
    """A drawn: 1 + 0.450 + 0.434 tokens over 1.78 beat 1 over 1, so depth 2; B drawn: 1.631 over 1.78 do not, so depth
    0, and the target tosses its coin afresh."""
    engine = hand_built_depth(hindsight=True)
    output = engine.output()
    assert output[((START, A),)] == pytest.approx(0.75)
    assert total_variation(output, engine.wanted()) == pytest.approx(0.25)


def test_the_same_case_is_lossless_when_the_depth_is_chosen_before() -> None:
    engine = hand_built_depth(hindsight=False)
    assert total_variation(engine.output(), engine.wanted()) < 1e-12


def random_depth_engine(seed: int, *, requests: int, positions: int, length: int, hindsight: bool) -> NestedEngine:
    rng = np.random.default_rng(seed)
    tokens = requests * (positions + 1)
    steps = np.cumsum(rng.uniform(0.0, 1.2, tokens + 1) * (rng.uniform(size=tokens + 1) < 0.5))
    drafting = np.cumsum(rng.uniform(0.0, 1.2, positions) * (rng.uniform(size=positions) < 0.7))
    return NestedEngine(
        target=random_model(rng, 2, 1.0),
        draft=random_model(rng, 2, 2.0),
        costs=DepthTables(draft=np.tile(np.append(0.0, drafting)[:, None], (1, requests + 1)), verify=1.0 + steps),
        requests=requests,
        positions=positions,
        length=length,
        hindsight=hindsight,
    )


@pytest.mark.parametrize("seed", [6, 7])
def test_depths_of_random_models_with_one_request(seed: int) -> None:
    """Two depths are chosen, depending on the drafts before; with hindsight the same costs bias the output."""
    case = {"requests": 1, "positions": 2}
    honest = random_depth_engine(seed, **case, length=5, hindsight=False)
    biased = random_depth_engine(seed, **case, length=4, hindsight=True)
    assert total_variation(honest.output(), honest.wanted()) < 1e-12
    assert {depth for depth, _ in honest.choices} == {0, 2}
    assert total_variation(biased.output(), biased.wanted()) > 5e-3


def test_all_depths_in_turn_stay_lossless() -> None:
    engine = random_depth_engine(70, requests=1, positions=2, length=6, hindsight=False)
    assert total_variation(engine.output(), engine.wanted()) < 1e-12
    assert {depth for depth, _ in engine.choices} == {0, 1, 2}


@pytest.mark.parametrize(("seed", "choices"), [(12, {(2, 3)}), (23, {(0, 0), (1, 1)})])
def test_requests_that_share_a_depth_and_compete_for_its_budget_stay_lossless(
    seed: int, choices: set[tuple[int, int]]
) -> None:
    engine = random_depth_engine(seed, requests=2, positions=2, length=3, hindsight=False)
    assert total_variation(engine.output(), engine.wanted()) < 1e-12
    assert engine.choices == choices
