"""Estimates, gains and the noise behind them, against hand-made values and simulated sweeps with known truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from avbench.analysis.compare import compare_points, smallest_difference
from avbench.analysis.estimate import ONE_PASS, estimate_point
from avbench.analysis.noise import FEW_PASSES, Observation, Variance, concurrency_class, estimate_noise
from avbench.analysis.passes import PassTable, Point, all_failed, pass_table
from tests.factories import FIXED_3, NONE, failed_cell, make_measurement

TRUTH = 1000.0


def point(arm: str = "fixed-1", concurrency: int = 8, workload: str = "code") -> Point:
    return Point(arm=arm, workload=workload, concurrency=concurrency)


def table_of(values: dict[Point, list[float]]) -> PassTable:
    by_pass = {where: dict(enumerate(row, start=1)) for where, row in values.items()}
    return PassTable(quantity="steady_throughput", values=by_pass)


def simulate(
    rng: np.random.Generator,
    *,
    arms: int = 5,
    passes: int = 2,
    noise: float = 0.03,
    pass_noise: float = 0.0,
    server_noise: float = 0.0,
    loads: Sequence[int] = (1, 8, 64),
) -> PassTable:
    """The quickstart's shape: 2 workloads, one load of each class, all cells with one true value."""
    day = rng.normal(0, pass_noise, passes)
    values: dict[Point, list[float]] = {}
    for arm in range(arms):
        start = day + rng.normal(0, server_noise, passes)
        for workload in ("code", "prose"):
            for load in loads:
                logs = start + rng.normal(0, noise, passes)
                values[point(f"fixed-{arm + 1}", load, workload)] = [TRUTH * math.exp(value) for value in logs]
    return table_of(values)


def lowest_count(claimed: float, runs: int) -> int:
    """A binomial count below this is not the claimed coverage (one-sided, 1 in 10,000)."""
    return math.floor(runs * claimed - NormalDist().inv_cdf(0.9999) * math.sqrt(runs * claimed * (1 - claimed)))


@pytest.mark.parametrize(
    ("load", "name"), [(1, "1-4"), (4, "1-4"), (5, "5-16"), (16, "5-16"), (17, "17+"), (256, "17+")]
)
def test_concurrency_classes(load: int, name: str) -> None:
    assert concurrency_class(load) == name


def test_two_passes_of_one_cell_are_the_textbook_t_interval() -> None:
    estimate = estimate_point(table_of({point(): [990.0, 1010.0]}), point())
    logs = np.log([990.0, 1010.0])
    low, high = stats.t.interval(0.95, 1, loc=logs.mean(), scale=stats.sem(logs))
    assert estimate is not None
    assert estimate.value == pytest.approx(math.exp(logs.mean()))
    assert (estimate.low, estimate.high) == (pytest.approx(math.exp(low)), pytest.approx(math.exp(high)))
    assert estimate.n == 2
    assert estimate.spread == pytest.approx(20 / 1000)


def test_pooling_over_servers_narrows_the_interval() -> None:
    alone = table_of({point("fixed-1"): [990.0, 1010.0]})
    rows = {point(f"fixed-{k}"): [990.0, 1010.0] if k % 2 else [1010.0, 990.0] for k in range(1, 7)}
    narrow, wide = estimate_point(table_of(rows), point()), estimate_point(alone, point())
    assert narrow is not None
    assert wide is not None
    assert narrow.half_width is not None
    assert wide.half_width is not None
    assert narrow.half_width < wide.half_width / 4


def test_pooling_stays_within_the_concurrency_class() -> None:
    quiet = {point(f"fixed-{k}", 8): [1000.0, 1001.0 if k % 2 else 999.0] for k in range(1, 5)}
    loud = {point(f"fixed-{k}", 1): [1000.0, 1200.0 if k % 2 else 800.0] for k in range(1, 5)}
    both = table_of(quiet | loud)
    at_8, at_1 = estimate_point(both, point("fixed-1", 8)), estimate_point(both, point("fixed-1", 1))
    assert at_8 is not None
    assert at_1 is not None
    assert at_8.half_width is not None
    assert at_1.half_width is not None
    assert at_8.half_width < 0.01 < 0.1 < at_1.half_width


def test_one_pass_has_no_interval_even_beside_others_that_have() -> None:
    table = table_of({point("fixed-1"): [1000.0], point("fixed-2"): [1000.0, 1020.0]})
    estimate = estimate_point(table, point("fixed-1"))
    assert estimate is not None
    assert (estimate.low, estimate.high, estimate.half_width, estimate.spread) == (None, None, None, None)


def test_an_unmeasured_point_has_no_estimate() -> None:
    assert estimate_point(table_of({}), point()) is None


def test_zeros_have_a_mean_but_no_interval() -> None:
    estimate = estimate_point(table_of({point(): [0.0, 0.4]}), point())
    assert estimate is not None
    assert (estimate.value, estimate.low) == (pytest.approx(0.2), None)


def test_six_passes_use_the_cells_own_variance() -> None:
    own = [1000.0, 1010.0, 990.0, 1005.0, 995.0, 1000.0]
    assert len(own) == FEW_PASSES
    loud = [1000.0, 2000.0, 500.0, 1500.0, 700.0, 1000.0]
    estimate = estimate_point(table_of({point("fixed-1"): own, point("fixed-2"): loud}), point("fixed-1"))
    logs = np.log(own)
    assert estimate is not None
    assert estimate.half_width == pytest.approx(math.expm1(stats.t.ppf(0.975, 5) * stats.sem(logs)))


def test_the_nested_analysis_of_variance_by_hand() -> None:
    """Two arms, one cell each, two passes: the pass moves both by +0.2, the arms differ by 0.1 more in pass 2."""
    logs = {"a": (0.0, 0.1), "b": (0.0, 0.3)}
    noise = estimate_noise(
        Observation(arm=arm, cell=arm, concurrency=8, pass_number=number, value=math.exp(value))
        for arm, row in logs.items()
        for number, value in enumerate(row, start=1)
    )["5-16"]
    # MS_pass = 4 (0.1)^2 = 0.04 on 1 degree, MS_server = 4 (0.05)^2 = 0.01 on 1.
    assert noise.contrast is not None
    assert noise.total is not None
    assert (noise.contrast.value, noise.contrast.df) == (pytest.approx(0.01), pytest.approx(1))
    assert noise.total.value == pytest.approx(0.04 / 2 + 0.01 / 2)
    assert noise.total.df == pytest.approx(0.025**2 / (0.02**2 + 0.005**2))
    assert noise.drift == pytest.approx(4)


@pytest.mark.parametrize(
    ("pass_noise", "server_noise"), [(0.0, 0.0), (0.0, 0.03), (0.0, 0.1)], ids=["cells", "servers", "servers-only"]
)
def test_two_passes_cover_what_they_claim(pass_noise: float, server_noise: float) -> None:
    rng, runs, where = np.random.default_rng(11), 1000, point("fixed-2", 64, "prose")
    hits = 0
    for _ in range(runs):
        estimate = estimate_point(simulate(rng, pass_noise=pass_noise, server_noise=server_noise, loads=(64,)), where)
        assert estimate is not None
        assert estimate.low is not None
        assert estimate.high is not None
        hits += estimate.low <= TRUTH <= estimate.high
    assert lowest_count(0.95, runs) <= hits < runs * 0.99


@pytest.mark.parametrize(
    ("pass_noise", "server_noise"),
    [(0.0, 0.0), (0.1, 0.0), (0.05, 0.05), (0.0, 0.1)],
    ids=["cells", "drift", "drift-and-servers", "servers"],
)
def test_gains_cover_what_they_claim_whatever_drifts(pass_noise: float, server_noise: float) -> None:
    rng, runs = np.random.default_rng(12), 1000
    hits = 0
    for _ in range(runs):
        table = simulate(rng, pass_noise=pass_noise, server_noise=server_noise, loads=(1,))
        gain = compare_points(table, point("fixed-2", 1), point("fixed-5", 1))
        assert gain is not None
        hits += not gain.shown
    assert lowest_count(0.95, runs) <= hits < runs * 0.985


def test_the_best_of_equal_arms_is_rarely_called_better_than_all() -> None:
    """Bonferroni over the rivals: the chosen best of five equal arms is shown beyond one of them in about 5 %."""
    rng, runs, false = np.random.default_rng(13), 600, 0
    for _ in range(runs):
        table = simulate(rng, loads=(8,))
        points = [point(f"fixed-{k}", 8) for k in range(1, 6)]
        best = max(points, key=lambda p: math.prod(table.values[p].values()))
        second = sorted(points, key=lambda p: math.prod(table.values[p].values()))[-2]
        gain = compare_points(table, best, second, comparisons=4)
        assert gain is not None
        false += gain.shown
    assert false < 0.05 * runs


def test_a_large_gain_is_shown_and_has_its_ratio() -> None:
    rows = {point(f"fixed-{k}"): [1000.0 + k, 1003.0 - k] for k in range(1, 5)} | {
        point("adaptive-7"): [1200.0, 1195.0]
    }
    gain = compare_points(table_of(rows), point("adaptive-7"), point("fixed-1"))
    assert gain is not None
    assert gain.verdict == "difference shown"
    assert gain.ratio == pytest.approx(math.sqrt(1200 / 1001 * 1195 / 1002))
    assert gain.low is not None
    assert gain.low < gain.ratio


def test_a_gain_within_noise_is_not_shown() -> None:
    rows = {point("fixed-1"): [1000.0, 1050.0], point("fixed-2"): [1040.0, 1000.0]}
    gain = compare_points(table_of(rows), point("fixed-1"), point("fixed-2"))
    assert gain is not None
    assert gain.verdict == "no difference shown"


def test_one_pass_gives_a_ratio_and_says_why_nothing_more() -> None:
    gain = compare_points(table_of({point("a"): [1100.0], point("b"): [1000.0]}), point("a"), point("b"))
    assert gain is not None
    assert (gain.ratio, gain.low, gain.verdict) == (pytest.approx(1.1), None, ONE_PASS)


def test_arms_are_compared_only_within_common_passes() -> None:
    table = PassTable(quantity="steady_throughput", values={point("a"): {1: 1000.0}, point("b"): {2: 1500.0}})
    assert compare_points(table, point("a"), point("b")) is None
    both = PassTable(quantity="steady_throughput", values={point("a"): {1: 1000.0, 2: 3000.0}, point("b"): {2: 1500.0}})
    gain = compare_points(both, point("a"), point("b"))
    assert gain is not None
    assert (gain.ratio, gain.passes) == (pytest.approx(2.0), 1)


def test_more_comparisons_widen_the_interval() -> None:
    table = simulate(np.random.default_rng(1))
    one = compare_points(table, point("fixed-1"), point("fixed-2"))
    four = compare_points(table, point("fixed-1"), point("fixed-2"), comparisons=4)
    assert one is not None
    assert four is not None
    assert one.low is not None
    assert four.low is not None
    assert four.low < one.low


def test_the_smallest_difference_is_the_half_width_of_a_gain() -> None:
    table = simulate(np.random.default_rng(2))
    gain = compare_points(table, point("fixed-1"), point("fixed-2"))
    assert gain is not None
    assert gain.high is not None
    assert smallest_difference(table, 8, 2) == pytest.approx(gain.high / gain.ratio - 1)
    assert smallest_difference(table, 8, 1) is None


def test_holes_in_the_table_do_not_stop_the_noise_estimate() -> None:
    rng = np.random.default_rng(3)
    table = simulate(rng, passes=3)
    values = {where: dict(row) for where, row in table.values.items()}
    del values[point("fixed-1", 8)][2]
    del values[point("fixed-2", 8)][1]
    del values[point("fixed-3", 8)]
    holed = PassTable(quantity="steady_throughput", values=values)
    estimate = estimate_point(holed, point("fixed-1", 8))
    assert estimate is not None
    assert estimate.half_width is not None
    assert 0 < estimate.half_width < 0.2


def test_identical_passes_give_a_point_interval() -> None:
    estimate = estimate_point(table_of({point("a"): [1000.0, 1000.0], point("b"): [900.0, 900.0]}), point("a"))
    assert estimate is not None
    assert (estimate.low, estimate.high) == (pytest.approx(1000.0), pytest.approx(1000.0))


def test_half_width_is_student_t() -> None:
    assert Variance(value=0.0004, df=7).half_width(4) == pytest.approx(stats.t.ppf(0.975, 7) * 0.02 / 2)


def test_failed_cells_and_cells_without_a_token_are_no_values() -> None:
    cells = [
        make_measurement(NONE, pass_number=1, throughput=1000.0),
        failed_cell(make_measurement(NONE, pass_number=2)),
        make_measurement(FIXED_3, throughput=0.001, failed=10, requests=10, output_tokens=0),
    ]
    table = pass_table(cells, "steady_throughput")
    assert {where.arm: dict(row) for where, row in table.values.items()} == {"none": {1: 1000.0}}
    assert cells[2].summary is not None
    assert all_failed(cells[2].summary)


def test_latencies_enter_as_medians_over_requests() -> None:
    cell = make_measurement(NONE, throughput=800.0, concurrency=8)
    assert cell.summary is not None
    assert cell.summary.tpot is not None
    assert pass_table([cell], "tpot").values[point("none")] == {1: cell.summary.tpot.p50}
