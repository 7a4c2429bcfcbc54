from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from avbench.adaptive.costs import CostTables, interpolated, staircase

POINTS = [(1, 5.0), (4, 6.0), (8, 8.0), (12, 20.0), (16, 24.0)]


def verify(shape: str, curve: list[tuple[int, float]], tokens: int, limit: int = 0) -> list[float]:
    if shape == "interpolated":
        tables = interpolated(draft_curve=[(1, 0.0)], verify_curve=curve, max_requests=1, max_tokens=tokens)
    else:
        tables = staircase(
            draft_curve=[(1, 0.0)], verify_curve=curve, max_requests=1, max_tokens=tokens, graph_limit=limit
        )
    return tables.verify.tolist()


def test_staircase_pads_to_the_next_profiled_size() -> None:
    assert verify("staircase", POINTS, 9) == [5, 5, 6, 6, 6, 8, 8, 8, 8, 20]


def test_above_the_graph_limit_it_interpolates_without_blending_across() -> None:
    """9 to 12 tokens cost what 12 cost: the last padded point (8: 8.0) has no say beyond the limit."""
    assert verify("staircase", POINTS, 16, limit=8)[8:] == [8, 20, 20, 20, 20, 21, 22, 23, 24]


def test_without_a_limit_all_is_a_staircase_up_to_the_last_point() -> None:
    assert verify("staircase", POINTS, 16)[12:] == [20, 24, 24, 24, 24]


@pytest.mark.parametrize("shape", ["staircase", "interpolated"])
def test_past_the_last_point_its_last_slope_goes_on(shape: str) -> None:
    assert verify(shape, POINTS, 20)[16:] == [24, 25, 26, 27, 28]


@pytest.mark.parametrize("shape", ["staircase", "interpolated"])
def test_one_point_is_a_constant(shape: str) -> None:
    assert verify(shape, [(4, 7.0)], 9) == [7.0] * 10


@pytest.mark.parametrize("shape", ["staircase", "interpolated"])
def test_costs_that_fall_are_flattened(shape: str) -> None:
    assert verify(shape, [(1, 5.0), (2, 4.0), (3, 6.0)], 4) == [5, 5, 5, 6, 7]


def test_interpolated_is_linear_between_points_and_flat_below_them() -> None:
    assert verify("interpolated", [(2, 4.0), (4, 8.0), (8, 10.0)], 8) == [4, 4, 4, 6, 8, 8.5, 9, 9.5, 10]


def test_costs_have_a_floor() -> None:
    """A verification step is never free, a draft may be."""
    tables = staircase(draft_curve=[(1, -1.0)], verify_curve=[(1, -1.0)], max_requests=2, max_tokens=2)
    assert tables.draft.tolist() == [0.0] * 3
    assert tables.verify.tolist() == [1e-6] * 3


def test_drafting_is_priced_by_requests_and_verification_by_tokens() -> None:
    tables = staircase(draft_curve=[(2, 1.0)], verify_curve=[(2, 3.0)], max_requests=4, max_tokens=20)
    assert (len(tables.draft), len(tables.verify)) == (5, 21)


@pytest.mark.parametrize("build", [staircase, interpolated])
def test_a_curve_needs_a_point(build: type[CostTables]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        build(draft_curve=[], verify_curve=[(1, 1.0)], max_requests=1, max_tokens=1)


curves = st.dictionaries(st.integers(1, 60), st.floats(0.01, 100), min_size=1, max_size=8).map(
    lambda points: sorted(points.items())
)


@settings(deadline=None)
@given(curves, st.integers(0, 80), st.integers(0, 70))
def test_tables_never_fall_and_meet_the_flattened_points(
    curve: list[tuple[int, float]], tokens: int, limit: int
) -> None:
    flattened = np.maximum.accumulate([cost for _, cost in curve])
    for table in (verify("staircase", curve, tokens, limit), verify("interpolated", curve, tokens)):
        assert len(table) == tokens + 1
        assert np.all(np.diff(table) >= -1e-9)
        for (size, _), cost in zip(curve, flattened, strict=True):
            assert size > tokens or table[size] == pytest.approx(cost)
