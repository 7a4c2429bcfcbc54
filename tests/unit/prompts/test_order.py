"""What is sent when: reproducible, apart from the warm-up, with distinct seeds."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avbench.prompts import Draw, Prompt, PromptSet, measured_sequence, split_prompts, warmup_sequence


def _set(count: int) -> PromptSet:
    return PromptSet(name="set", prompts=tuple(Prompt(id=f"p{index}", text=f"text {index}") for index in range(count)))


def _ids(draws: tuple[Draw, ...]) -> list[str]:
    return [draw.prompt.id for draw in draws]


@given(count=st.integers(2, 200), seed=st.integers(0, 2**32 - 1))
def test_warmup_and_measured_prompts_share_nothing(count: int, seed: int) -> None:
    prompts = _set(count)
    split = split_prompts(prompts, seed=seed)
    assert set(split.warmup).isdisjoint(split.measured)
    assert {*split.warmup, *split.measured} == set(prompts.prompts)
    assert split.warmup
    assert split.measured
    assert len(split.warmup) == max(1, round(0.15 * count))


@given(count=st.integers(2, 40), samples=st.integers(1, 4), seed=st.integers(0, 9), pass_number=st.integers(1, 4))
def test_the_measured_sequence_walks_the_set_samples_times(
    count: int, samples: int, seed: int, pass_number: int
) -> None:
    prompts = _set(count)
    draws = measured_sequence(prompts, samples=samples, seed=seed, pass_number=pass_number)
    measured = split_prompts(prompts, seed=seed).measured
    walks = [draws[start : start + len(measured)] for start in range(0, len(draws), len(measured))]
    assert len(walks) == samples
    for number, walk in enumerate(walks):
        assert {draw.prompt for draw in walk} == set(measured)
        assert {draw.sample for draw in walk} == {number}
        assert _ids(walk) == _ids(walks[0])  # a prompt comes back as late as possible


@given(count=st.integers(2, 40), samples=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))
def test_request_seeds_are_distinct(count: int, samples: int, seed: int) -> None:
    prompts = _set(count)
    measured = measured_sequence(prompts, samples=samples, seed=seed)
    warmup = list(islice(warmup_sequence(prompts, seed=seed), 200))
    seeds = [draw.seed for draw in [*measured, *warmup]]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= value < 2**53 for value in seeds)


def test_warmup_goes_round_without_end() -> None:
    prompts = _set(20)
    warmup = split_prompts(prompts, seed=1).warmup
    draws = list(islice(warmup_sequence(prompts, seed=1), 10))
    assert {draw.prompt for draw in draws} == set(warmup)
    assert [draw.sample for draw in draws] == [index // len(warmup) for index in range(10)]


def test_order_is_the_same_each_time_and_another_in_each_pass_and_seed() -> None:
    prompts = _set(40)
    first = measured_sequence(prompts, samples=1, seed=0, pass_number=1)
    assert measured_sequence(prompts, samples=1, seed=0, pass_number=1) == first
    others = [
        measured_sequence(prompts, samples=1, seed=0, pass_number=2),
        measured_sequence(prompts, samples=1, seed=1, pass_number=1),
    ]
    for other in others:
        assert _ids(other) != _ids(first)
        assert {draw.seed for draw in other}.isdisjoint(draw.seed for draw in first)
    assert sorted(_ids(others[0])) == sorted(_ids(first))  # the split is the same in every pass


def test_order_and_seeds_do_not_change_between_releases() -> None:
    """Results are found again by their identity, so what a seed stands for must stay (or PROTOCOL_VERSION rise)."""
    draws = measured_sequence(_set(8), samples=1, seed=0, pass_number=1)
    assert [(draw.prompt.id, draw.seed) for draw in draws[:3]] == [
        ("p3", 3285182779931609),
        ("p4", 4348338435433767),
        ("p0", 907894463565429),
    ]
    assert next(warmup_sequence(_set(8), seed=0)).prompt.id == "p1"


@pytest.mark.parametrize("count", [2, 3])
def test_smallest_sets(count: int) -> None:
    split = split_prompts(_set(count), seed=0)
    assert (len(split.warmup), len(split.measured)) == (1, count - 1)
