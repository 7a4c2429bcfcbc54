"""Whatever is drafted, verified or trimmed, the output is distributed as the target alone would write it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import chi2
from tiny import Arm, build_core, exact_joint, generate, write_pair
from tiny_dspark import train_dspark

from avbench.adaptive.confidence import HeadConfidence
from avbench.adaptive.costs import CostTables
from avbench.adaptive.depth import DepthTables
from avbench.adaptive.estimator import OnlineAcceptanceEstimator
from avbench.reference.ragged import Ints
from avbench.reference.sampling import Floats
from avbench.reference.speculation import Speculation

PROMPT = (0, 5, 3, 2)
TOKENS, SAMPLES, SLOTS = 4, 6_000, 64
K = 3
REJECT = 1e-4  # per test; a dozen of them fail by chance once in about a thousand runs


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_pair(tmp_path_factory.mktemp("pair"))
    train_dspark(folder)
    return folder


def stepped_costs() -> CostTables:
    """A verification step costs more from every 16th token on: budgets move, and stop short of all drafts."""
    tokens = np.arange(SLOTS * (K + 8) + 1)
    return CostTables(draft=np.full(SLOTS + 1, 0.1), verify=1.0 + 0.45 * np.ceil(tokens / 16))


class MoodyCosts:
    """Drafts that are cheap at one time and dear at another, so that every depth is the best one now and then; which of
    them, and how many drafts are verified, confidences decide."""

    def __init__(self) -> None:
        self._moods = itertools.cycle((0.05, 1.0, 0.4, 0.7, 0.2))

    def steps(self, requests: int) -> NDArray[np.float64]:
        """See `DepthCosts.steps`."""
        mood = next(self._moods)
        draft = mood * np.array([0.0, 0.4, 0.7, 0.9])[:, None] * np.ones(SLOTS + 1)
        verify = 3.0 + mood * (stepped_costs().verify - 3.0)
        return DepthTables(draft=draft, verify=verify).steps(requests)


def estimator(slots: int, *, refit_interval: int = 5) -> OnlineAcceptanceEstimator:
    return OnlineAcceptanceEstimator(max_requests=slots, positions=K, refit_interval=refit_interval)


def head(slots: int) -> HeadConfidence:
    return HeadConfidence()


class DrawnTokenSpeculation(Speculation):
    """The mistake: confidence from the probability of the token that was drawn (av-reference, section 7)."""

    def propose(self, *, known: list[Ints], slots: Ints, states: torch.Tensor, temperature: Floats, u: Floats) -> None:
        super().propose(known=known, slots=slots, states=states, temperature=temperature, u=u)
        q = self._drafter.distributions
        if len(slots) and q is not None and self._adaptive is not None:
            rows = self._drafter.rows(slots)
            drawn = q.probability(rows.ravel(), self.tokens[slots].ravel()).reshape(rows.shape)
            self._adaptive._verification.confidences[slots] = drawn.astype(np.float32)


def nested(**changes: Any) -> Arm:
    """Depth and budget chosen together."""
    settings = {"source": estimator, "costs": stepped_costs(), "depth_costs": MoodyCosts()} | changes
    return Arm(k=K, **settings)


ARMS = {
    "none": Arm(),
    "fixed": Arm(k=K),
    "fixed, greedy drafts": Arm(k=K, sampling="greedy"),
    "adaptive": Arm(k=K, source=estimator, costs=stepped_costs()),
    "adaptive, greedy drafts": Arm(k=K, sampling="greedy", source=estimator, costs=stepped_costs()),
    "fixed, parallel": Arm(k=K, method="dspark"),
    "adaptive, parallel": Arm(k=K, method="dspark", source=estimator, costs=stepped_costs()),
    "adaptive, parallel, greedy drafts": Arm(
        k=K, method="dspark", sampling="greedy", source=estimator, costs=stepped_costs()
    ),
    "adaptive, parallel, head": Arm(k=K, method="dspark", source=head, costs=stepped_costs()),
    "nested": nested(),
    "nested, greedy drafts": nested(sampling="greedy"),
    "nested, parallel": nested(method="dspark"),
    "nested, parallel, greedy drafts, head": nested(method="dspark", sampling="greedy", source=head),
}


def p_value(observed: NDArray[np.int64], joint: NDArray[np.float64]) -> float:
    """Chi-square of counts against exact probabilities, cells with fewer than 5 expected pooled."""
    expected = joint * observed.sum()
    small = expected < 5
    o = np.append(observed[~small], observed[small].sum())
    e = np.append(expected[~small], expected[small].sum())
    o, e = o[e > 0], e[e > 0]
    statistic = ((o - e) ** 2 / e).sum()
    return float(chi2.sf(statistic, len(e) - 1))


def count(
    pair: Path, arm: Arm, seed: int, *, temperature: float = 1.0, top_p: float = 1.0
) -> tuple[NDArray[np.int64], float]:
    """Counts of every continuation, and the share of drafts that was verified. Lengths differ, so that slots mix."""
    core = build_core(pair, arm, slots=SLOTS)
    outputs: list = []
    limits = [TOKENS + i % 5 for i in range(SAMPLES)]
    texts = generate(
        core,
        [PROMPT] * SAMPLES,
        max_tokens=limits,
        temperature=temperature,
        top_p=top_p,
        first_seed=seed * SAMPLES,
        outputs=outputs,
    )
    index = np.array([text[:TOKENS] for text in texts]) @ 8 ** np.arange(TOKENS)[::-1]
    drafted = sum(o.spec.draft_tokens for o in outputs if o.spec)
    verified = sum(o.spec.verified for o in outputs if o.spec)
    return np.bincount(index, minlength=8**TOKENS), verified / max(1, drafted)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ARMS)
def test_output_is_distributed_as_the_target(pair: Path, name: str, seed: int) -> None:
    counts, verified = count(pair, ARMS[name], seed)
    assert p_value(counts, exact_joint(pair, PROMPT, TOKENS)) > REJECT
    if "adaptive" in name:
        assert 0.1 < verified < 0.95, "the case is only of use if drafts are trimmed"


def test_nested_depth_drafts_at_every_depth(pair: Path) -> None:
    """Else the nested arms above prove little."""
    outputs: list = []
    generate(build_core(pair, ARMS["nested"], slots=SLOTS), [PROMPT] * 2000, max_tokens=6, outputs=outputs)
    depths = [o.spec.draft_tokens / o.spec.drafts if o.spec.drafts else 0 for o in outputs if o.spec]
    assert set(depths) == {0, 1, 2, 3}
    assert sum(o.spec.verified < o.spec.draft_tokens for o in outputs if o.spec) > 0.1 * len(depths)


@pytest.mark.parametrize(("temperature", "top_p"), [(0.6, 1.0), (1.4, 0.8), (1.0, 0.5)])
@pytest.mark.parametrize("name", ["fixed", "adaptive"])
def test_temperature_and_nucleus(pair: Path, name: str, temperature: float, top_p: float) -> None:
    counts, _ = count(pair, ARMS[name], 4, temperature=temperature, top_p=top_p)
    joint = exact_joint(pair, PROMPT, TOKENS, temperature=temperature, top_p=top_p)
    assert counts[joint == 0].sum() == 0
    assert p_value(counts, joint) > REJECT


def test_a_feature_of_the_drawn_token_is_found_out(pair: Path) -> None:
    """Positive control: the very same test must reject the engine that looks at the drawn token."""
    arm = Arm(k=K, source=estimator, costs=stepped_costs(), speculation=DrawnTokenSpeculation)
    counts, verified = count(pair, arm, 1)
    assert 0.1 < verified < 0.95
    assert p_value(counts, exact_joint(pair, PROMPT, TOKENS)) < 1e-9


@pytest.mark.parametrize("name", ["none", "fixed", "adaptive", "nested"])
def test_greedy_output_is_the_argmax(pair: Path, name: str) -> None:
    core = build_core(pair, ARMS[name])
    plain = build_core(pair, Arm(), slots=1)
    prompts = [(0, i, j) for i in range(8) for j in range(8)]
    assert generate(core, prompts, max_tokens=12, temperature=0.0) == generate(
        plain, prompts, max_tokens=12, temperature=0.0
    )


def test_admitting_everything_is_bit_identical_to_fixed(pair: Path) -> None:
    free = CostTables(draft=np.zeros(SLOTS + 1), verify=np.ones(SLOTS * (K + 8) + 1))
    prompts = [(0, i % 8, 3) for i in range(200)]
    fixed = generate(build_core(pair, ARMS["fixed"]), prompts, max_tokens=20)
    adaptive = generate(build_core(pair, Arm(k=K, source=estimator, costs=free)), prompts, max_tokens=20)
    assert adaptive == fixed


def test_nested_depth_that_costs_nothing_is_bit_identical_to_fixed(pair: Path) -> None:
    free = DepthTables(draft=np.zeros((K + 1, SLOTS + 1)), verify=np.ones(SLOTS * (K + 8) + 1))
    prompts = [(0, i % 8, 3) for i in range(200)]
    fixed = generate(build_core(pair, ARMS["fixed"]), prompts, max_tokens=20)
    assert generate(build_core(pair, nested(depth_costs=free)), prompts, max_tokens=20) == fixed


def test_estimator_learns_while_serving(pair: Path) -> None:
    made: list[OnlineAcceptanceEstimator] = []

    def keep(slots: int) -> OnlineAcceptanceEstimator:
        made.append(estimator(slots, refit_interval=20))
        return made[-1]

    core = build_core(pair, Arm(k=K, source=keep, costs=stepped_costs()))
    generate(core, [PROMPT] * 600, max_tokens=20)
    assert made[0].refits > 5
    # Drafts of this pair are accepted three times in four; the cold intercept of -0.2 says less than one in two.
    assert made[0].intercepts[0] > 0.5
