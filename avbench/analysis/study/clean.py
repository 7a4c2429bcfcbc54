"""Rows that cannot be used: found, counted by reason, left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avbench.analysis.study.parquet import LabelFile

MAX_POSITION = 255  # no drafter goes that deep: a larger number is damage
_PROBABILITIES = ("q_max", "q_sampled", "margin")
# Null is allowed there: an engine that predicts nothing, a draft without a head's score.
_MAY_BE_NAN = ("prediction", "head")
_ROUNDING = 1e-5  # a float32 softmax may end a little outside; such values are clipped


def usable_rows(file: LabelFile) -> tuple[NDArray[np.bool_], Mapping[str, int]]:
    """Which labelled rows can be used, and how many cannot, by reason. A row counts under its first reason."""
    usable = file.labelled.copy()
    reasons: dict[str, int] = {}
    for reason, bad in _faults(file.columns):
        hit = usable & bad
        if count := int(hit.sum()):
            reasons[reason] = reasons.get(reason, 0) + count
            usable &= ~hit
    return usable, reasons


def _faults(columns: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    position = columns["position"]
    yield "`step` null or below 0", columns["step"] < 0
    yield f"`position` null or outside 0 to {MAX_POSITION}", (position < 0) | (position > MAX_POSITION)
    for name, column in columns.items():
        if column.dtype.kind != "f":
            continue
        bad = np.isinf(column) if name in _MAY_BE_NAN else ~np.isfinite(column)
        yield f"`{name}` is NaN or infinite", bad
    for name in _PROBABILITIES:
        if name in columns:
            yield f"`{name}` outside 0 to 1", (columns[name] < -_ROUNDING) | (columns[name] > 1 + _ROUNDING)
    if "entropy" in columns:
        yield "`entropy` below 0", columns["entropy"] < -_ROUNDING
