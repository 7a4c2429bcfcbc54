from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avbench.record.codec import decode, encode
from avbench.record.measurement import CellFailure, Percentiles, SpecCounters, Summary

FINITE = st.floats(allow_nan=False, allow_infinity=False)
PERCENTILES = st.builds(Percentiles, mean=FINITE, p5=FINITE, p50=FINITE, p95=FINITE, p99=FINITE, n=st.integers())


@given(st.from_type(SpecCounters))
def test_counters_round_trip(value: SpecCounters) -> None:
    assert decode(SpecCounters, json.loads(json.dumps(encode(value)))) == value


@given(PERCENTILES)
def test_floats_round_trip_exactly(value: Percentiles) -> None:
    assert decode(Percentiles, json.loads(json.dumps(encode(value)))) == value


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_not_a_number_is_never_recorded(value: float) -> None:
    with pytest.raises(ValueError, match="cannot be recorded"):
        encode({"a": [value]})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"kind": "x"}, r"CellFailure\.reason is missing"),
        ({"kind": "x", "reason": 3}, r"CellFailure\.reason has the unexpected value 3"),
        ([], r"CellFailure has the unexpected value"),
    ],
)
def test_wrong_data_is_named(data: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode(CellFailure, data)


def test_nested_values_are_named() -> None:
    data = dict.fromkeys(Summary.__dataclass_fields__, 0) | {"acceptance_per_position": [0.5, "x"]}
    with pytest.raises(ValueError, match=r"Summary\."):
        decode(Summary, data)


def test_unknown_keys_of_a_later_version_are_ignored() -> None:
    assert decode(CellFailure, {"kind": "x", "reason": "y", "new": 1}) == CellFailure(kind="x", reason="y")


@pytest.mark.parametrize("value", [True, 1.5, "1", None])
def test_whole_numbers_are_whole(value: object) -> None:
    counters = {"drafts": value, "draft_tokens": 1, "accepted": 1, "accepted_per_position": [], "verified": None}
    with pytest.raises(ValueError, match="drafts"):
        decode(SpecCounters, {**counters, "generation_tokens": 1, "preemptions": None})
