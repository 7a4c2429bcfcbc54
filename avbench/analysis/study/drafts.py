"""Labelled drafts as columns: what every part of the study computes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.features import MAX_LOG_ODDS, Float32

Rows = NDArray[np.bool_] | NDArray[np.intp] | slice
OPTIONAL = ("q_max", "entropy", "margin", "q_sampled", "head", "prediction")
NO_REQUEST = -1
WARM_UP = -1  # data set of drafts outside any cell's window
NO_LOAD = 0


@dataclass(frozen=True, kw_only=True)
class Drafts:
    """Drafts that have a label, one entry a draft, in the order of their verdicts within a stream.

    A stream is the life of one engine process. Optional columns are None where a file lacked them.
    """

    stream: NDArray[np.int32]
    data_set: NDArray[np.int16]  # place in the pool's data sets, WARM_UP outside any window
    load: NDArray[np.int32]  # concurrency of the cell, NO_LOAD if not known
    step: NDArray[np.int64]  # engine step of the verdict
    request: NDArray[np.int32]  # 0, 1, ... over all streams, NO_REQUEST if not named
    position: NDArray[np.int16]  # from 0
    label: NDArray[np.bool_]
    admitted: NDArray[np.bool_]
    logit_q_max: Float32
    q_max: Float32 | None = None
    entropy: Float32 | None = None
    margin: Float32 | None = None
    q_sampled: Float32 | None = None
    head: Float32 | None = None
    prediction: Float32 | None = None  # NaN where the engine predicted nothing

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: Rows) -> Drafts:
        """Those rows."""
        kept: dict[str, Any] = {}
        for field in fields(self):
            column = getattr(self, field.name)
            kept[field.name] = None if column is None else column[rows]
        return Drafts(**kept)


def concatenate(parts: Sequence[Drafts]) -> Drafts:
    """One after the other. An optional column that one part lacks is lacking in all."""
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, Any] = {}
    for field in fields(Drafts):
        columns = [getattr(part, field.name) for part in parts]
        joined[field.name] = None if any(column is None for column in columns) else np.concatenate(columns)
    return Drafts(**joined)


def logit(probability: NDArray[Any]) -> Float32:
    """ln(p / (1 - p)) in float32, clamped to +-40 like the estimator's own feature; p = 0 and 1 give the clamps."""
    p = np.asarray(probability, dtype=np.float32)
    with np.errstate(divide="ignore"):
        odds: Float32 = np.log(p) - np.log1p(-p)
    return np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS)
