"""Virtual time on real (tiny) models: the same seed gives the same result, and trimming nothing changes nothing."""

from __future__ import annotations

from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from tiny import Arm, build_core, write_pair
from tiny_dspark import train_dspark

from avbench.adaptive.cost_file import CostFile
from avbench.adaptive.estimator import OnlineAcceptanceEstimator
from avbench.reference.clock import VirtualClock
from avbench.reference.emulate_clients import ClosedLoop
from avbench.reference.emulate_counters import Counters
from avbench.reference.emulate_job import CellJob, Draw, Walk
from avbench.reference.messages import Submit
from avbench.reference.step_costs import StepCosts

K, SLOTS = 3, 8
FLAT = CostFile(
    path=Path("flat"),
    name="flat",
    source="-",
    verify=((1, 5.0), (999, 5.0)),
    draft={"pass": ((1, 1.0), (99, 1.0)), "block": ((1, 1.0), (99, 1.0))},
)
STEEP = CostFile(
    path=Path("steep"),
    name="steep",
    source="-",
    verify=((1, 5.0), (999, 5000.0)),
    draft={"pass": ((1, 1.0), (99, 9.0))},
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_pair(tmp_path_factory.mktemp("pair"))
    train_dspark(folder)
    return folder


def job(*, first_seed: int = 5, concurrency: int = 4) -> CellJob:
    walk = Walk(prompts=tuple("abcde"), rounds=None, first_seed=first_seed, seed_step=7, seed_modulus=10**6)
    return CellJob(
        id="cell",
        prompts="p",
        chat=False,
        concurrency=concurrency,
        request={},
        seconds=0.05,
        min_requests=12,
        warmup_seconds=0.0,
        warmup=walk,
        measured=walk,
    )


def make(draw: Draw, number: int) -> Submit:
    return Submit(
        request_id=number,
        prompt=(0, "abcde".index(draw.prompt_id) + 2, 4),
        max_tokens=20,
        temperature=1.0,
        top_p=1.0,
        seed=draw.seed,
        ignore_eos=False,
    )


class Engine:
    """A core in virtual time, and its cells."""

    def __init__(
        self, pair: Path, table: CostFile, *, k: int = K, adaptive: bool = False, method: str = "draft_model"
    ) -> None:
        costs = StepCosts(table, method if k else None, k=k, requests=SLOTS, tokens=SLOTS * 90)
        self.clock = VirtualClock(costs)
        arm = Arm(k=k, method=method)
        if adaptive:
            arm = Arm(
                k=k,
                method=method,
                source=lambda n: OnlineAcceptanceEstimator(max_requests=n, positions=k, refit_interval=5),
                costs=costs.tables(k),
            )
        self.core = build_core(pair, arm, slots=SLOTS, clock=self.clock)
        self.counters, self.numbers = Counters(), count()

    def run(self, cell: CellJob) -> dict[str, Any]:
        loop = ClosedLoop(cell, self.core, self.clock, self.counters, make, self.numbers, lambda _: None)
        loop.run()
        return loop.result()


def test_the_same_seed_gives_the_same_result_and_another_seed_another(pair: Path) -> None:
    first, again, other = (Engine(pair, STEEP, adaptive=True).run(job(first_seed=seed)) for seed in (5, 5, 6))
    assert first == again
    assert first["requests"] != other["requests"]


@pytest.mark.parametrize("method", ["draft_model", "dspark"])
def test_a_budget_that_admits_everything_is_fixed_k_to_the_last_bit(pair: Path, method: str) -> None:
    """Tokens, times and counters: with flat costs nothing is gained by trimming."""
    fixed, adaptive = (Engine(pair, FLAT, method=method, adaptive=adaptive) for adaptive in (False, True))
    for cell in (job(concurrency=1), job(concurrency=8)):
        assert fixed.run(cell) == adaptive.run(cell)


def test_a_budget_that_trims_is_not(pair: Path) -> None:
    """The comparison above can fail."""
    fixed, adaptive = (Engine(pair, STEEP, adaptive=adaptive).run(job()) for adaptive in (False, True))
    assert fixed["requests"] != adaptive["requests"]
    assert adaptive["counters"]["verified"] < adaptive["counters"]["draft_tokens"]
    assert fixed["counters"]["verified"] == fixed["counters"]["draft_tokens"]


def test_a_cell_without_estimator_does_not_depend_on_the_cells_before_it(pair: Path) -> None:
    alone = Engine(pair, STEEP).run(job(concurrency=2))
    engine = Engine(pair, STEEP)
    engine.run(job(concurrency=8))
    later = engine.run(job(concurrency=2))
    assert {**later, "origin": 0.0, "steps": None} == {**alone, "steps": None}


def test_time_is_what_the_table_says(pair: Path) -> None:
    """One client, K=3, flat costs: every step takes 5 ms for the target and 3 x 1 ms for the drafts, or one block."""
    for method, step in (("draft_model", 8.0), ("dspark", 6.0)):
        check_gaps(Engine(pair, FLAT, method=method).run(job(concurrency=1)), step)


def check_gaps(result: dict[str, Any], step: float) -> None:
    for row in result["requests"]:
        times = [row["sent"], *row["chunk_times"]]
        gaps = [round(1000 * (b - a), 6) for a, b in pairwise(times)]
        # The first token comes after the prompt's step; a client that follows another waits for no draft.
        assert gaps == [5.0] + [step] * (len(gaps) - 1)
    assert any(tokens > 1 for row in result["requests"] for tokens in row["chunk_tokens"])


def test_plain_decoding_pays_for_prompts_as_for_tokens(pair: Path) -> None:
    """One client: 5 ms for the first token of a step and 5.005 more for each other, so that a prompt of 3 costs 15."""
    result = Engine(pair, STEEP, k=0).run(job(concurrency=1))
    row = result["requests"][-1]
    slope = (5000 - 5) / 998
    assert 1000 * (row["chunk_times"][0] - row["sent"]) == pytest.approx(5 + 2 * slope)
    assert 1000 * (row["chunk_times"][1] - row["chunk_times"][0]) == pytest.approx(5.0)
    assert result["counters"]["verified"] is None
    assert result["counters"]["drafts"] == 0
