"""95 % intervals by request: drafts of one request resemble each other, so requests are what is drawn anew.

One exact AUC of 4.5 million rows takes seconds, a thousand of them most of an hour. So requests are put into at most
200 random groups, each group keeps a histogram of its predictions over 1000 bins of equal occupancy (and its sums for
the other values), and a replicate is a weighted sum of groups. The fit itself is not repeated: an interval says how far
the values would move with other requests, given these coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from avbench.analysis.study.drafts import NO_REQUEST
from avbench.analysis.study.metrics import ECE_BINS, Ranked, ece_bins, losses

GROUPS = 200
BINS = 1000
REPLICATES = 1000
MIN_REQUESTS = 20  # below, a percentile interval over so few units means little
_SEED = 20_260_814
Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Replicates:
    """Values of each metric over the replicates [R]; `auc` is NaN where only one class was drawn."""

    auc: Values
    log_loss: Values
    ece: Values
    predicted: Values
    observed: Values


def request_groups(request: NDArray[np.int32], data_set: NDArray[np.int16]) -> NDArray[np.int16]:
    """Group [n] of each draft by its request [n], -1 without one. Up to 200 requests each is a group.

    Requests are shuffled and dealt out data set by data set, so that each of these is spread evenly too.
    """
    known = np.flatnonzero(request != NO_REQUEST)
    groups = np.full(len(request), -1, dtype=np.int16)
    if len(known):
        present, first = np.unique(request[known], return_index=True)
        shuffled = np.random.default_rng(_SEED).permutation(len(present))
        dealt = shuffled[np.argsort(data_set[known][first[shuffled]], kind="stable")]
        table = np.zeros(int(present[-1]) + 1, dtype=np.int16)
        table[present[dealt]] = np.arange(len(present)) % GROUPS
        groups[known] = table[request[known]]
    return groups


def resample(ranked: Ranked, replicates: int = REPLICATES) -> Replicates | None:
    """Replicates over the request groups of `ranked`; the same draws whatever the source, so that differences pair.

    None with fewer than MIN_REQUESTS groups.
    """
    known = ranked.groups >= 0
    if not known.all():
        ranked = ranked.within(known)
    present = np.unique(ranked.groups)
    if len(present) < MIN_REQUESTS:
        return None
    groups = np.searchsorted(present, ranked.groups)
    weights = _weights(len(present), replicates)
    sums = weights @ _sums(ranked, groups, len(present))
    n, loss, predicted, accepted = sums.T
    return Replicates(
        auc=weighted_auc(weights, *histograms(ranked, groups, len(present))),
        log_loss=loss / n,
        ece=np.abs(weights @ _gaps(ranked, groups, len(present))).sum(axis=1) / n,
        predicted=predicted / n,
        observed=accepted / n,
    )


@cache
def _weights(groups: int, replicates: int) -> Values:
    """How often each group is drawn [R, G]."""
    draws = np.random.default_rng(_SEED).multinomial(groups, np.full(groups, 1 / groups), size=replicates)
    return draws.astype(np.float64)


def _sums(ranked: Ranked, groups: NDArray[np.intp], count: int) -> Values:
    """[G, 4]: drafts, log-loss, predictions, accepted."""
    terms = [None, losses(ranked.predictions, ranked.labels), ranked.predictions, ranked.labels]
    return np.array([np.bincount(groups, weights=term, minlength=count) for term in terms], dtype=np.float64).T


def _gaps(ranked: Ranked, groups: NDArray[np.intp], count: int) -> Values:
    """[G, 15]: sum of prediction - label in each calibration bin."""
    cells = groups * ECE_BINS + ece_bins(ranked.predictions)
    gap = ranked.predictions - ranked.labels.astype(np.float32)
    return np.bincount(cells, weights=gap, minlength=count * ECE_BINS).reshape(count, ECE_BINS).astype(np.float64)


def histograms(ranked: Ranked, groups: NDArray[np.intp], count: int, bins: int = BINS) -> tuple[Values, Values]:
    """Accepted and rejected drafts [G, B] of each group over bins of equal occupancy, predictions rising."""
    rising = ranked.predictions[::-1]
    edges = np.unique(rising[np.linspace(0, len(rising) - 1, bins).astype(np.intp)])
    place = np.searchsorted(edges, rising, side="right")[::-1] - 1
    cells = (groups * len(edges) + place) * 2 + ranked.labels
    table = np.bincount(cells, minlength=count * len(edges) * 2).reshape(count, len(edges), 2).astype(np.float64)
    return table[:, :, 1], table[:, :, 0]


def weighted_auc(weights: Values, accepted: Values, rejected: Values) -> Values:
    """AUC [R] of groups with histograms [G, B] drawn `weights` [R, G] times; NaN where a class is absent.

    Drafts of one bin count as ties. The pairs of each two groups are counted once, so that a replicate is a
    quadratic form of its weights and needs no histogram of its own.
    """
    below = np.cumsum(rejected, axis=-1) - rejected / 2
    pairs = accepted @ below.T  # [G, G]: accepted of one group above rejected of another
    won = ((weights @ pairs) * weights).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(won / ((weights @ accepted.sum(axis=1)) * (weights @ rejected.sum(axis=1))))


def interval(value: float, drawn: Values | None) -> tuple[float, float] | None:
    """95 % around `value`: the replicates' quantiles, moved so that their mean lies on it.

    The move takes out the bias of binning and, for the ECE, that drawing anew always adds to it. None if more than one
    in twenty replicates has no value.
    """
    if drawn is None:
        return None
    known = drawn[np.isfinite(drawn)]
    if len(known) < 0.95 * len(drawn):
        return None
    low, high = np.quantile(known, (0.025, 0.975))
    centre = known.mean()
    return float(value + low - centre), float(value + high - centre)
