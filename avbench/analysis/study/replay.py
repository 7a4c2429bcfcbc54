"""The online estimator over labelled drafts, a whole refit round at a time.

Within a round every prediction uses the coefficients that the round before left behind, so one pass over the round's
rows gives the predictions and the sums of the Newton step at once. The arithmetic per draft and the step itself are
`avbench.adaptive.estimator`'s; only the order of the sums differs, by float32 rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.estimator import COLD_INTERCEPT, COLD_SLOPE, DAMPING, RIDGE, newton_step, sigmoid
from avbench.adaptive.features import MAX_LOG_ODDS, Float32
from avbench.analysis.study.rounds import Rounds

Positions = NDArray[np.int16]

# Where a fit that ran away is held, so that its predictions stay numbers: inf - inf is none.
BOUND = np.float32(1e9)


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """Of the online fit; the defaults are vLLM's. `intercepts` is one start for all positions, or one for each."""

    damping: float = DAMPING
    ridge: float = RIDGE
    slope: float = COLD_SLOPE
    intercepts: float | tuple[float, ...] = COLD_INTERCEPT
    shared_slope: bool = True
    inherit: bool = False  # a position never seen takes the intercept of the deepest one that was


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What the fit did over n drafts in M rounds at K positions. Coefficients are those after the round."""

    predictions: Float32  # [n], each made before its own label was used
    rounds: Rounds
    slopes: Float32  # [M, K]; one value in all columns if the slope is shared
    intercepts: Float32  # [M, K]
    counts: NDArray[np.int64]  # [M, K] labels that the refit used

    @property
    def ran_away(self) -> bool:
        """A coefficient went beyond every feature's range: a Newton step overshot, and the next ones the more.

        It takes a jump of an intercept from where the predictions are nearly certain; nothing in the step guards
        against it.
        """
        return bool(max(np.abs(self.slopes).max(), np.abs(self.intercepts).max()) > MAX_LOG_ODDS)


class _State:
    """Coefficients of one engine process."""

    def __init__(self, settings: FitSettings, k: int) -> None:
        self.settings = settings
        self.slopes: Float32 = np.full(k, settings.slope, dtype=np.float32)
        self.intercepts: Float32 = np.empty(k, dtype=np.float32)
        self.intercepts[:] = settings.intercepts
        self._seen = np.zeros(k, dtype=np.bool_)

    def predict(self, feature: Float32, position: NDArray[np.intp]) -> Float32:
        slope = self.slopes[0] if self.settings.shared_slope else self.slopes[position]
        return sigmoid(slope * feature + self.intercepts[position])

    def refit(self, statistics: Float32) -> None:
        """One damped Newton step with `statistics` [6, K]."""
        damping, ridge = np.float32(self.settings.damping), np.float32(self.settings.ridge)
        # Separate slopes are K separate fits of one position each.
        blocks = [slice(None)] if self.settings.shared_slope else [slice(k, k + 1) for k in range(len(self.slopes))]
        for block in blocks:
            slope = self.slopes[block]
            step, intercept_steps = newton_step(statistics[:, block], float(slope[0]), damping, ridge)
            self.slopes[block] = np.clip(slope + step, -BOUND, BOUND)
            self.intercepts[block] = np.clip(self.intercepts[block] + intercept_steps, -BOUND, BOUND)
        if self.settings.inherit:
            self._inherit(statistics[5] > 0)

    def _inherit(self, seen_now: NDArray[np.bool_]) -> None:
        self._seen |= seen_now
        if self._seen.any():
            deepest = int(np.flatnonzero(self._seen)[-1])
            self.intercepts[deepest + 1 :] = self.intercepts[deepest]


def fit_online(
    feature: Float32,
    position: Positions,
    label: NDArray[np.bool_],
    rounds: Rounds,
    k: int,
    settings: FitSettings | None = None,
    visible: NDArray[np.bool_] | None = None,
) -> Fit:
    """Predict and learn over `feature`, `position`, `label` [n], in the order of the verdicts.

    `visible` [n]: only those labels are learnt from; predictions are made for all drafts.
    """
    settings = settings or FitSettings()
    count = len(rounds)
    predictions = np.empty(len(feature), dtype=np.float32)
    slopes, intercepts = (np.empty((count, k), dtype=np.float32) for _ in range(2))
    counts = np.zeros((count, k), dtype=np.int64)
    state = _State(settings, k)
    for number, rows in enumerate(rounds.slices()):
        if rounds.fresh[number]:
            state = _State(settings, k)
        places = position[rows].astype(np.intp)
        predicted = state.predict(feature[rows], places)
        predictions[rows] = predicted
        learnt = None if visible is None else visible[rows]
        statistics = _statistics(feature[rows], places, label[rows], predicted, k, learnt)
        state.refit(statistics.astype(np.float32))
        slopes[number], intercepts[number], counts[number] = state.slopes, state.intercepts, statistics[5]
    return Fit(predictions=predictions, rounds=rounds, slopes=slopes, intercepts=intercepts, counts=counts)


def _statistics(
    feature: Float32,
    position: NDArray[np.intp],
    label: NDArray[np.bool_],
    predicted: Float32,
    k: int,
    learnt: NDArray[np.bool_] | None,
) -> NDArray[np.float64]:
    """Sums [6, K] of wt f^2, wt f, wt, (y-p) f, y-p, 1 by position; wt = p(1-p)."""
    if learnt is not None:
        feature, position, label, predicted = feature[learnt], position[learnt], label[learnt], predicted[learnt]
    weight = predicted * (np.float32(1.0) - predicted)
    residual = label.astype(np.float32) - predicted
    terms: list[NDArray[Any] | None] = [weight * feature * feature, weight * feature, weight]
    terms += [residual * feature, residual, None]
    return np.array([np.bincount(position, weights=term, minlength=k) for term in terms], dtype=np.float64)
