"""The yardstick of the online fit: scikit-learn's logistic regression on the same labels, all at once."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.estimator import RIDGE, sigmoid
from avbench.adaptive.features import Float32


@dataclass(frozen=True, kw_only=True)
class OfflineFit:
    """One slope, one intercept per position (None where no label was)."""

    slope: float
    intercepts: tuple[float | None, ...]

    def predict(self, feature: Float32, position: NDArray[np.int16]) -> Float32:
        """Confidence [n] of `feature`, `position` [n]; a position without an intercept takes 0."""
        intercepts = np.array([value or 0.0 for value in self.intercepts], dtype=np.float32)
        return sigmoid(np.float32(self.slope) * feature + intercepts[position])


def fit_offline(feature: Float32, position: NDArray[np.int16], label: NDArray[np.bool_], k: int) -> OfflineFit | None:
    """Maximum likelihood with the estimator's ridge on all coefficients, over `feature`, `position`, `label` [n].

    None if only one class was seen.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    accepted = int(np.count_nonzero(label))
    if accepted in (0, len(label)):
        return None
    present = np.flatnonzero(np.bincount(position, minlength=k))
    column = np.zeros(k, dtype=np.intp)
    column[present] = np.arange(1, len(present) + 1)
    design = np.zeros((len(feature), len(present) + 1))
    design[:, 0] = feature
    design[np.arange(len(feature)), column[position]] = 1.0
    model = LogisticRegression(solver="newton-cholesky", fit_intercept=False, C=1 / RIDGE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # separable labels: the ridge's solution is far, not wrong
        model.fit(design, label)
    coefficients = model.coef_[0]
    intercepts: list[float | None] = [None] * k
    for place, value in zip(present.tolist(), coefficients[1:].tolist(), strict=True):
        intercepts[place] = value
    return OfflineFit(slope=float(coefficients[0]), intercepts=tuple(intercepts))
