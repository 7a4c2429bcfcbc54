"""The pick at each load and the arm with the least regret."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from avbench.analysis.advice import Advice, advise
from avbench.analysis.passes import Point
from avbench.analysis.results import Results, results_of
from avbench.spec.arm import Arm
from tests.factories import (
    ADAPTIVE,
    FIXED_1,
    FIXED_3,
    FIXED_7,
    NONE,
    failed_cell,
    make_manifest,
    make_measurements,
    make_results,
    plain_truth,
)


def advice_for(truth: Callable[[Arm, str, int], float], **sweep: Any) -> Advice:
    return advise(make_results(truth=truth, **sweep), unranked={})


def test_the_best_arm_of_each_load_is_picked_with_its_gain() -> None:
    advice = advice_for(plain_truth, noise=0.002)
    assert [(p.workload, p.concurrency, p.arm.id) for p in advice.picks] == [
        ("code", 1, FIXED_7.id),
        ("code", 8, ADAPTIVE.id),
        ("code", 64, ADAPTIVE.id),
        ("prose", 1, FIXED_7.id),
        ("prose", 8, ADAPTIVE.id),
        ("prose", 64, ADAPTIVE.id),
    ]
    first = advice.picks[0]
    assert first.shown
    assert first.runner_up == FIXED_3
    assert first.gain is not None
    assert first.gain.ratio == pytest.approx((1 + 0.12 * 7) / (1 + 0.12 * 3), rel=0.02)
    assert first.reason == "ahead of K=3 beyond noise"


def test_within_noise_the_simpler_arm_is_preferred_and_the_reason_says_so() -> None:
    def nearly_equal(arm: Arm, _: str, __: int) -> float:
        return {"none": 700.0, "fixed": 1000.0 if arm.k == 3 else 800.0, "adaptive": 1005.0}[arm.kind]

    picks = advice_for(nearly_equal, noise=0.01, seed=3).picks
    assert {pick.arm for pick in picks} == {FIXED_3}
    pick = next(pick for pick in picks if pick.fastest == ADAPTIVE)
    assert pick.equals == (FIXED_3,)
    assert not pick.shown
    assert pick.reason == "simplest arm; not told from AV 7, the highest figure"


def test_when_nothing_differs_plain_decoding_is_recommended() -> None:
    advice = advice_for(lambda *_: 1000.0, noise=0.03, seed=5)
    assert {pick.arm for pick in advice.picks} == {NONE}
    assert not any(pick.shown for pick in advice.picks)
    wording = {pick.reason for pick in advice.picks if pick.fastest == ADAPTIVE}
    assert wording <= {"no arm can be told from AV 7, the highest figure: the simplest is named"}


def test_the_highest_arm_that_is_also_the_simplest_keeps_its_place() -> None:
    def none_wins(arm: Arm, _: str, __: int) -> float:
        return {"none": 1010.0, "fixed": 1000.0, "adaptive": 1000.0}[arm.kind]

    picks = advice_for(none_wins, noise=0.001, seed=1).picks
    assert {pick.arm for pick in picks} == {NONE}
    tied = [pick for pick in picks if pick.equals and pick.fastest == NONE]
    assert all("highest figure and simplest of its equals" in pick.reason for pick in tied)


def test_one_pass_picks_the_highest_figure_and_claims_nothing() -> None:
    pick = advice_for(plain_truth, passes=1, noise=0.0).picks[0]
    assert pick.arm == FIXED_7
    assert not pick.shown
    assert pick.reason == "highest figure; one pass, no noise estimate"


def test_least_regret_is_the_smallest_worst_shortfall() -> None:
    advice = advice_for(plain_truth, noise=0.0)
    least = advice.least_regret
    assert least is not None
    assert least.arm == ADAPTIVE
    # At C=1 K=7 runs at 1.84 of the base, adaptive verification at 1.25; it is the best everywhere else.
    assert least.worst == pytest.approx(1 - 1.25 / 1.84)
    assert least.where is not None
    assert least.where.concurrency == 1
    assert least.behind == FIXED_7
    assert [regret.worst for regret in advice.regrets] == sorted(regret.worst for regret in advice.regrets)


def test_an_arm_that_wins_everywhere_has_no_regret() -> None:
    def adaptive_wins(arm: Arm, _: str, __: int) -> float:
        return 2000.0 if arm == ADAPTIVE else 1000.0

    least = advice_for(adaptive_wins, noise=0.001).least_regret
    assert least is not None
    assert (least.arm, least.worst, least.where) == (ADAPTIVE, 0.0, None)


def test_equal_regrets_prefer_the_simpler_arm() -> None:
    least = advice_for(lambda *_: 1000.0, noise=0.0).least_regret
    assert least is not None
    assert least.arm == NONE


def test_an_arm_with_a_missing_load_has_no_regret_but_may_be_picked_elsewhere() -> None:
    cells = [
        failed_cell(cell) if cell.arm == ADAPTIVE.id and cell.concurrency == 1 and cell.workload == "code" else cell
        for cell in make_measurements(noise=0.001)
    ]
    advice = advise(results_of(Path("x"), make_manifest(), cells), unranked={})
    assert advice.incomplete == {ADAPTIVE: 1}
    assert ADAPTIVE not in {regret.arm for regret in advice.regrets}
    assert ADAPTIVE in {pick.arm for pick in advice.picks}


def test_unranked_points_are_neither_picked_nor_rivals() -> None:
    results = make_results(noise=0.001)
    refused = {Point(arm=ADAPTIVE.id, workload="code", concurrency=load): "outputs differ" for load in (1, 8, 64)}
    advice = advise(results, unranked=refused)
    assert all(pick.arm != ADAPTIVE for pick in advice.picks if pick.workload == "code")
    assert advice.unranked == refused


def test_nothing_measured_gives_no_advice() -> None:
    advice = advise(results_of(Path("x"), {}, []), unranked={})
    assert (advice.picks, advice.regrets, advice.least_regret) == ((), (), None)


def test_a_single_arm_is_the_only_choice() -> None:
    results = make_results(arms=(FIXED_1,), workloads=("code",), concurrencies=(8,))
    (pick,) = advise(results, unranked={}).picks
    assert (pick.arm, pick.runner_up, pick.gain) == (FIXED_1, None, None)
    assert pick.reason == "the only arm measured at this load"


def test_the_ready_configuration_is_that_of_the_picked_arm() -> None:
    advice = advice_for(plain_truth, noise=0.001)
    configs = {pick.arm: pick.config for pick in advice.picks}
    assert configs[ADAPTIVE] == {
        "method": "draft_model",
        "model": "toy-draft",
        "num_speculative_tokens": 7,
        "draft_sample_method": "probabilistic",
        "enable_adaptive_verification": True,
    }
    fixed = configs[FIXED_7]
    assert fixed is not None
    assert fixed["enable_adaptive_verification"] is False


def test_without_a_pair_the_arm_is_named_but_no_configuration_is_made_up() -> None:
    results: Results = dataclasses.replace(make_results(noise=0.001), pair=None)
    assert {pick.config for pick in advise(results, unranked={}).picks} == {None}


def test_adaptive_arms_that_differ_only_in_their_refits_keep_their_names_apart() -> None:
    slow = dataclasses.replace(ADAPTIVE, refit_interval=100)

    def slow_wins(arm: Arm, _: str, __: int) -> float:
        return 1500.0 if arm == slow else 1000.0

    advice = advise(make_results(arms=(ADAPTIVE, slow), truth=slow_wins, noise=0.01), unranked={})
    assert {advice.label(pick.arm) for pick in advice.picks} == {"AV 7 refit 100"}
    assert {pick.reason for pick in advice.picks} == {"ahead of AV 7 refit 25 beyond noise"}


def test_regret_is_read_against_all_rivals_at_all_loads() -> None:
    """The load with the worst shortfall was looked for; judged alone it would seem told where the pick says no."""
    advice = advice_for(plain_truth, noise=0.01)
    arms, loads = len({regret.arm for regret in advice.regrets}), len(advice.picks)
    assert {regret.gain.comparisons for regret in advice.regrets if regret.gain} == {(arms - 1) * loads}
