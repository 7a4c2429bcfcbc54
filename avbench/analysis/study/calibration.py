"""The reliability diagram: in each bin of confidence, how many drafts, what was predicted, what came out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from avbench.analysis.study.metrics import ECE_BINS, Ranked, ece_bins


@dataclass(frozen=True, kw_only=True)
class Bin:
    """One of 15 of equal width. The means are None in an empty bin."""

    low: float
    high: float
    n: int
    predicted: float | None
    observed: float | None


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Of one source over one subject."""

    source: str
    bins: tuple[Bin, ...]


def reliability(source: str, ranked: Ranked) -> Reliability:
    """Bins from low to high confidence."""
    place = ece_bins(ranked.predictions)
    counts = np.bincount(place, minlength=ECE_BINS)
    predicted = np.bincount(place, weights=ranked.predictions, minlength=ECE_BINS)
    accepted = np.bincount(place, weights=ranked.labels, minlength=ECE_BINS)
    bins = (
        Bin(
            low=index / ECE_BINS,
            high=(index + 1) / ECE_BINS,
            n=int(n),
            predicted=float(predicted[index] / n) if n else None,
            observed=float(accepted[index] / n) if n else None,
        )
        for index, n in enumerate(counts)
    )
    return Reliability(source=source, bins=tuple(bins))
