"""The front: its definition as properties over random points, and what a sweep's front says."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avbench.analysis.frontier import FrontPoint, build_frontier, dominates, undominated
from avbench.analysis.passes import Point
from tests.factories import ADAPTIVE, FIXED_3, FIXED_7, NONE, PAIR, make_manifest, make_measurements, make_results

ARMS = (NONE, FIXED_3, FIXED_7, ADAPTIVE)


def front_point(
    interactivity: float,
    throughput: float,
    *,
    arm: int = 0,
    load: int = 8,
    noise_interactivity: float = 0.0,
    noise_throughput: float = 0.0,
) -> FrontPoint:
    return FrontPoint(
        point=Point(arm=ARMS[arm].id, workload="code", concurrency=load),
        arm=ARMS[arm],
        interactivity=interactivity,
        throughput=throughput,
        noise_interactivity=noise_interactivity,
        noise_throughput=noise_throughput,
    )


# A coarse grid makes ties and near-ties common.
values = st.integers(min_value=1, max_value=12).map(float)
noises = st.sampled_from([0.0, 0.05, 0.2, 0.5])
points = st.lists(
    st.builds(
        front_point,
        values,
        values,
        arm=st.integers(min_value=0, max_value=3),
        load=st.sampled_from([1, 8, 64]),
        noise_interactivity=noises,
        noise_throughput=noises,
    ),
    min_size=1,
    max_size=25,
)


@given(points)
def test_no_kept_point_is_dominated(candidates: list[FrontPoint]) -> None:
    kept = undominated(candidates)
    assert not [(a, b) for a in kept for b in kept if dominates(a, b)]


@given(points)
def test_every_dropped_point_is_dominated_or_ties_with_a_simpler_one(candidates: list[FrontPoint]) -> None:
    kept = undominated(candidates)
    for entry in candidates:
        if entry in kept:
            continue
        place = (entry.interactivity, entry.throughput)
        ties = [o for o in candidates if (o.interactivity, o.throughput) == place and o.preference <= entry.preference]
        assert any(dominates(other, entry) for other in candidates) or [o for o in ties if o != entry]


@given(points)
def test_the_front_is_never_empty(candidates: list[FrontPoint]) -> None:
    assert undominated(candidates)


@given(points, st.randoms(use_true_random=False))
def test_order_does_not_matter(candidates: list[FrontPoint], order: random.Random) -> None:
    unique = list({(c.interactivity, c.throughput, c.preference): c for c in candidates}.values())
    shuffled = list(unique)
    order.shuffle(shuffled)
    assert undominated(shuffled) == undominated(unique)


@given(points)
def test_repeats_are_one_point(candidates: list[FrontPoint]) -> None:
    assert undominated(candidates * 3) == undominated(candidates)


@given(points)
def test_without_noise_it_is_the_pareto_front(candidates: list[FrontPoint]) -> None:
    exact = [dataclasses.replace(c, noise_interactivity=0.0, noise_throughput=0.0) for c in candidates]
    places = {(c.interactivity, c.throughput) for c in exact}
    pareto = {p for p in places if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in places)}
    assert {(c.interactivity, c.throughput) for c in undominated(exact)} == pareto


def test_better_on_one_axis_beyond_noise_and_equal_within_noise_on_the_other_is_enough() -> None:
    winner = front_point(100.0, 1000.0, arm=3, noise_interactivity=0.02, noise_throughput=0.02)
    loser = front_point(101.0, 900.0, arm=0, noise_interactivity=0.02, noise_throughput=0.02)
    assert dominates(winner, loser)
    assert undominated([winner, loser]) == (winner,)
    # The same points without noise: each is better somewhere.
    exact = [dataclasses.replace(p, noise_interactivity=0.0, noise_throughput=0.0) for p in (winner, loser)]
    assert len(undominated(exact)) == 2


def test_points_within_noise_of_each_other_both_stay() -> None:
    one = front_point(100.0, 1000.0, noise_interactivity=0.02, noise_throughput=0.02)
    two = front_point(99.0, 990.0, arm=1, noise_interactivity=0.02, noise_throughput=0.02)
    assert set(undominated([one, two])) == {one, two}


def test_an_exact_tie_keeps_the_simpler_arm() -> None:
    simple, complex_ = front_point(10.0, 10.0, arm=1), front_point(10.0, 10.0, arm=3)
    assert undominated([complex_, simple]) == (simple,)


def test_the_front_of_a_sweep_counts_concurrencies_for_each_arm() -> None:
    frontier = build_frontier(make_results(noise=0.005), "code")
    # plain_truth: K=7 wins at C=1, adaptive verification from C=8 on.
    assert [str(kept.point) for kept in frontier.front] == [
        f"{ADAPTIVE.id} · code · C=64",
        f"{ADAPTIVE.id} · code · C=8",
        f"{FIXED_7.id} · code · C=1",
    ]
    assert frontier.on_front == {
        "none": (0, 3),
        "fixed-1": (0, 3),
        "fixed-3": (0, 3),
        "fixed-7": (1, 3),
        ADAPTIVE.id: (2, 3),
    }
    for dropped, winner in frontier.dominated_by.items():
        assert not frontier.holds(dropped)
        assert dropped != winner


def test_throughput_is_divided_by_the_gpus_of_the_engine() -> None:
    from pathlib import Path

    from avbench.analysis.results import results_of

    manifest = make_manifest(pair=PAIR)
    manifest["spec"]["engine"]["gpus"] = 4
    cells = make_measurements(noise=0)
    one = build_frontier(make_results(noise=0), "code").points[0]
    four = build_frontier(results_of(Path("x"), manifest, cells), "code").points[0]
    assert four.throughput == pytest.approx(one.throughput / 4)
    assert four.interactivity == pytest.approx(one.interactivity)


def test_a_workload_without_cells_has_an_empty_front() -> None:
    frontier = build_frontier(make_results(), "nothing")
    assert (frontier.points, frontier.front, frontier.on_front) == ((), (), {})


def test_one_pass_gives_a_front_without_noise() -> None:
    frontier = build_frontier(make_results(passes=1), "code")
    assert frontier.front
    assert {entry.noise_throughput for entry in frontier.points} == {0.0}
