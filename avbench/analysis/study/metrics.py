"""How good a confidence is: ranking (AUC), log-loss, calibration (ECE), and the means beside each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.features import Float32

ECE_BINS = 15
# Confidences of exactly 0 and 1 exist in float32; the estimator's own floor keeps their log-loss finite (16.6).
LOSS_FLOOR = np.float32(2.0**-24)
ONE_CLASS = "every label is {}: no ranking to measure"


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """Predictions of one source over some drafts, falling, with the label and the request group of each [n].

    Groups are numbers from 0; -1 for drafts whose request is not known.
    """

    predictions: Float32
    labels: NDArray[np.bool_]
    groups: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.labels)

    def within(self, rows: NDArray[np.bool_] | slice) -> Ranked:
        """Those of `rows` [n], in the same order."""
        return Ranked(predictions=self.predictions[rows], labels=self.labels[rows], groups=self.groups[rows])


@dataclass(frozen=True, kw_only=True)
class Point:
    """Values over n drafts. `auc` is None if only one class was seen."""

    n: int
    auc: float | None
    log_loss: float  # nats per draft
    ece: float
    predicted: float  # mean confidence
    observed: float  # accepted share


def measure(ranked: Ranked) -> Point | None:
    """All values; None without a draft."""
    if not len(ranked):
        return None
    return Point(
        n=len(ranked),
        auc=auc(ranked),
        log_loss=float(losses(ranked.predictions, ranked.labels).mean(dtype=np.float64)),
        ece=ece(ranked.predictions, ranked.labels),
        predicted=float(ranked.predictions.mean(dtype=np.float64)),
        observed=float(ranked.labels.mean()),
    )


def auc(ranked: Ranked) -> float | None:
    """Chance that an accepted draft ranks above a rejected one, ties half; exact, by scikit-learn. None: one class.

    `roc_auc_score` is this pair of calls plus checks that take twice as long.
    """
    from sklearn import metrics

    accepted = int(np.count_nonzero(ranked.labels))
    if accepted in (0, len(ranked)):
        return None
    false_rate, true_rate, _ = metrics.roc_curve(ranked.labels, ranked.predictions, drop_intermediate=False)
    return float(metrics.auc(false_rate, true_rate))


def losses(predictions: Float32, labels: NDArray[np.bool_]) -> Float32:
    """-ln of the probability given to what happened [n], nats, at most 16.6."""
    of_label = np.where(labels, predictions, np.float32(1.0) - predictions)
    return -np.log(np.maximum(of_label, LOSS_FLOOR))


def ece_bins(predictions: Float32) -> NDArray[np.intp]:
    """Which of the 15 bins of equal width each prediction [n] lies in; 1 lies in the last."""
    return np.minimum((predictions * np.float32(ECE_BINS)).astype(np.intp), ECE_BINS - 1)


def ece(predictions: Float32, labels: NDArray[np.bool_]) -> float:
    """Expected calibration error: mean over drafts of |mean prediction - accepted share| of their bin."""
    bins = ece_bins(predictions)
    predicted = np.bincount(bins, weights=predictions, minlength=ECE_BINS)
    accepted = np.bincount(bins, weights=labels, minlength=ECE_BINS)
    return float(np.abs(predicted - accepted).sum() / len(labels))
