"""The candidates: what a confidence could be computed from, and whether trimming by it leaves the output unbiased.

A feature is lossless if it is a function of the draft distribution alone. One of the drawn token selects on the
proposal: with p = (0.5, 0.5), q = (0.2, 0.8) and trimming when q(x) < 0.5 the output is (0.4, 0.6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.estimator import sigmoid
from avbench.adaptive.features import MAX_LOG_ODDS, Float32
from avbench.analysis.study.drafts import Drafts, logit


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One row of the feature table. A raw one is a probability itself; a fitted one goes through the online fit."""

    id: str
    name: str
    lossless: bool
    fitted: bool
    needs: str  # column
    definition: str
    compute: Callable[[Drafts], Float32]

    def of(self, drafts: Drafts) -> Float32 | None:
        """[n], or None if the labels lack its column."""
        return None if getattr(drafts, self.needs) is None else self.compute(drafts)


def _column(column: NDArray[Any] | None) -> Float32:
    assert column is not None
    return np.asarray(column, dtype=np.float32)


def log(probability: NDArray[Any]) -> Float32:
    """ln p in float32, not below -40."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(np.asarray(probability, dtype=np.float32)), -MAX_LOG_ODDS)


def minus_log_minus_log(probability: NDArray[Any]) -> Float32:
    """-ln(-ln p) in float32, clamped to +-40: p = 1 gives 40."""
    with np.errstate(divide="ignore"):
        value = -np.log(-np.log(np.asarray(probability, dtype=np.float32)))
    return np.clip(value, -MAX_LOG_ODDS, MAX_LOG_ODDS).astype(np.float32, copy=False)


RAW_Q_MAX = Feature(
    id="q_max",
    name="q_max, raw",
    lossless=True,
    fitted=False,
    needs="q_max",
    definition="the largest probability of the draft distribution, taken as the confidence itself",
    compute=lambda drafts: _column(drafts.q_max),
)
HEAD = Feature(
    id="head",
    name="head",
    lossless=True,
    fitted=False,
    needs="head",
    definition="the checkpoint's confidence head as trained: sigmoid of its logit, computed before the token is drawn",
    compute=lambda drafts: sigmoid(_column(drafts.head)),
)
ESTIMATOR = Feature(
    id="logit_q_max",
    name="logit(q_max)",
    lossless=True,
    fitted=True,
    needs="logit_q_max",
    definition="ln(q_max / (1 - q_max)) as the engine computed it, clamped to +-40: the online estimator's feature",
    compute=lambda drafts: drafts.logit_q_max,
)
HEAD_LOGIT = Feature(
    id="head_fitted",
    name="head, fitted",
    lossless=True,
    fitted=True,
    needs="head",
    definition="the head's logit through the online fit: its ranking with a calibration of today",
    compute=lambda drafts: _column(drafts.head),
)
FEATURES = (
    RAW_Q_MAX,
    HEAD,
    ESTIMATOR,
    Feature(
        id="entropy",
        name="-entropy",
        lossless=True,
        fitted=True,
        needs="entropy",
        definition="minus the draft distribution's entropy in nats: the sign is turned because the slope stays >= 0",
        compute=lambda drafts: -_column(drafts.entropy),
    ),
    Feature(
        id="margin",
        name="margin",
        lossless=True,
        fitted=True,
        needs="margin",
        definition="probability of the most likely token minus that of the second, 0 to 1",
        compute=lambda drafts: _column(drafts.margin),
    ),
    Feature(
        id="log_q_max",
        name="log q_max",
        lossless=True,
        fitted=True,
        needs="q_max",
        definition="ln q_max, not below -40",
        compute=lambda drafts: log(_column(drafts.q_max)),
    ),
    Feature(
        id="logit_q_sampled",
        name="logit(q_sampled)",
        lossless=False,
        fitted=True,
        needs="q_sampled",
        definition="ln(q / (1 - q)) of the drawn token's probability q, clamped to +-40",
        compute=lambda drafts: logit(_column(drafts.q_sampled)),
    ),
    Feature(
        id="log_log_q_sampled",
        name="-log(-log q_sampled)",
        lossless=False,
        fitted=True,
        needs="q_sampled",
        definition="-ln(-ln q) of the drawn token's probability q, clamped to +-40",
        compute=lambda drafts: minus_log_minus_log(_column(drafts.q_sampled)),
    ),
)
LEADING = (RAW_Q_MAX, HEAD, ESTIMATOR)
