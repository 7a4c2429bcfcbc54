"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avbench.spec.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("10s", 10.0),
        ("2.5s", 2.5),
        ("2m", 120.0),
        ("2min", 120.0),
        ("9h", 32400.0),
        ("1h30m", 5400.0),
        ("1m 30s", 90.0),
        ("3 s", 3.0),
        ("0s", 0.0),
    ],
)
def test_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "s", "-3s", "3 parsecs", "10S", "1e3s", ".5s", "1:30", "10s!", "nan s"])
def test_what_is_no_duration(text: str) -> None:
    assert parse_duration(text) is None


@given(st.integers(0, 10_000), st.sampled_from([("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)]))
def test_number_times_unit(number: int, unit: tuple[str, float]) -> None:
    assert parse_duration(f"{number}{unit[0]}") == pytest.approx(number * unit[1])
