"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avbench import units

ALL: list[Callable[[float | None], str]] = [
    units.format_bytes,
    units.format_count,
    units.format_decimal,
    units.format_duration,
    units.format_ms,
    units.format_percent,
    units.format_rate,
    units.format_signed_percent,
    units.format_significant,
    units.format_spread,
]


@pytest.mark.parametrize("render", ALL)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_absent_is_a_dash(render: Callable[[float | None], str], value: float | None) -> None:
    assert render(value) == "-"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.01234, "0.0123"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (123.4, "123"),
        (1234.4, "1,234"),
        (9.999, "10.0"),
        (99.96, "100"),
        (999.6, "1,000"),
        (0.9999, "1.00"),
        (-12.34, "-12.3"),
        (1e-9, "0.000000"),
    ],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert units.format_significant(value) == text


@given(st.floats(1e-4, 1e9))
def test_significant_digits_lose_at_most_half_a_percent(value: float) -> None:
    assert float(units.format_significant(value).replace(",", "")) == pytest.approx(value, rel=0.0051)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0005, "0.500 ms"),
        (0.35, "350 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (6, "6 s"),
        (6.54, "6.5 s"),
        (9.96, "10 s"),
        (42.4, "42 s"),
        (59.6, "1 min"),
        (400, "6 min 40 s"),
        (3599.6, "1 h"),
        (7500, "2 h 05 min"),
        (86370, "1 d"),
        (97200, "1 d 03 h"),
        (-90, "-1 min 30 s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert units.format_duration(seconds) == text


def test_single_formats() -> None:
    assert units.format_ms(0.0123) == "12.3 ms"
    assert units.format_ms(0.0123, unit=False) == "12.3"
    assert units.format_rate(2676.4) == "2,676 tok/s"
    assert units.format_rate(312.2, unit=False) == "312"
    assert units.format_percent(0.1234) == "12.3 %"
    assert units.format_percent(1, 0) == "100 %"
    assert units.format_spread(-0.021) == "±2.1 %"
    assert units.format_count(12345.4) == "12,345"
    assert units.format_decimal(-0.001) == "0.00"
    assert units.format_interval(300.9, 322.2, "tok/s") == "301 to 322 tok/s"
    assert units.format_interval(None, 3) == "-"
    assert units.format_plural(1, "cell") == "1 cell"
    assert units.format_plural(0, "cell") == "0 cells"
    assert units.format_plural(1200, "pass", "passes") == "1,200 passes"


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.031, "+3.1 %"), (-0.031, "-3.1 %"), (0.0, "0.0 %"), (-0.0002, "0.0 %"), (0.0002, "0.0 %"), (1.5, "+150.0 %")],
)
def test_signed_percentages(fraction: float, text: str) -> None:
    assert units.format_signed_percent(fraction) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (512, "512 B"), (20_500_000, "20.5 MB"), (999_600, "1.00 MB"), (3.2e12, "3.20 TB")],
)
def test_bytes(size: float, text: str) -> None:
    assert units.format_bytes(size) == text
