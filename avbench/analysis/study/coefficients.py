"""What slope and intercepts come to on each data set, and how they go with its draft entropy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avbench.analysis.study.drafts import Drafts
from avbench.analysis.study.metrics import losses
from avbench.analysis.study.offline import OfflineFit, fit_offline
from avbench.analysis.study.pool import DataSet, Pool
from avbench.analysis.study.replay import Fit, fit_online
from avbench.analysis.study.rounds import find_rounds

MIN_GROUPS = 3  # for a correlation
MIN_SETTLED = 2  # for a spread


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """Mean over settled refits that had a label for it, and their standard deviation; None where there were too few."""

    mean: float | None
    sd: float | None
    offline: float | None  # scikit-learn's, on all labels at once


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """A fresh online fit of logit(q_max) over one data set. Log-losses in nats per draft."""

    data_set: str
    pool: str
    labels: int
    refits: int
    settled: int  # refits the means are taken over
    entropy: float | None  # mean over all drafts of the data set, nats
    slope: Coefficient
    intercepts: tuple[Coefficient, ...]
    never_seen: tuple[int, ...]  # positions, from 1, without a label: their intercept stays at the start
    ran_away: bool  # the online fit's went beyond all bounds
    online_loss: float
    settled_loss: float  # the same over the drafts of the settled refits
    offline_loss: float | None  # in-sample
    settled_offline_loss: float | None


@dataclass(frozen=True, kw_only=True)
class Relation:
    """Pearson's r of a coefficient with the mean draft entropy, over the data sets of one pool."""

    pool: str
    coefficient: str  # `slope` or `first intercept`
    r: float | None  # None: too few data sets, or no spread
    n: int


@dataclass(frozen=True, kw_only=True)
class FreshFit:
    """The fits of one data set alone, as if a server had served nothing else."""

    data_set: DataSet
    drafts: Drafts
    online: Fit
    offline: OfflineFit | None


def fresh_fits(pool: Pool) -> Iterator[FreshFit]:
    """One estimator per data set, from the cold start through its drafts, server after server."""
    for code, data_set in enumerate(pool.data_sets):
        drafts = pool.drafts.take(pool.drafts.data_set == code)
        rounds = find_rounds(drafts.step, drafts.stream, pool.intervals, carried=True)
        columns = drafts.logit_q_max, drafts.position, drafts.label
        yield FreshFit(
            data_set=data_set,
            drafts=drafts,
            online=fit_online(*columns, rounds, pool.k),
            offline=fit_offline(*columns, pool.k),
        )


def coefficients_of(pool: Pool, fit: FreshFit) -> Coefficients:
    """Means over the settled half of the refits."""
    online, offline, drafts = fit.online, fit.offline, fit.drafts
    settled = online.rounds.settled()
    late = online.rounds.rows_of(settled)
    used = online.counts[settled] > 0
    online_losses = losses(online.predictions, drafts.label)
    offline_losses = None
    if offline is not None:
        offline_losses = losses(offline.predict(drafts.logit_q_max, drafts.position), drafts.label)
    seen = online.counts.sum(axis=0) > 0
    return Coefficients(
        data_set=fit.data_set.name,
        pool=pool.name,
        labels=len(drafts),
        refits=len(settled),
        settled=int(settled.sum()),
        entropy=fit.data_set.entropy,
        slope=_coefficient(
            online.slopes[settled, 0], np.asarray(used.any(axis=1)), None if offline is None else offline.slope
        ),
        intercepts=tuple(
            _coefficient(online.intercepts[settled, k], used[:, k], None if offline is None else offline.intercepts[k])
            for k in range(pool.k)
        ),
        never_seen=tuple(int(k) + 1 for k in np.flatnonzero(~seen)),
        ran_away=online.ran_away,
        online_loss=_mean(online_losses),
        settled_loss=_mean(online_losses[late]),
        offline_loss=None if offline_losses is None else _mean(offline_losses),
        settled_offline_loss=None if offline_losses is None else _mean(offline_losses[late]),
    )


def _coefficient(values: NDArray[np.float32], used: NDArray[np.bool_], offline: float | None) -> Coefficient:
    kept = values[used].astype(np.float64)
    return Coefficient(
        mean=float(kept.mean()) if len(kept) else None,
        sd=float(kept.std(ddof=1)) if len(kept) >= MIN_SETTLED else None,
        offline=offline,
    )


def _mean(values: NDArray[np.float32]) -> float:
    return float(values.mean(dtype=np.float64))


def relations(found: Sequence[Coefficients]) -> Iterator[Relation]:
    """Two for each pool that has an entropy: the slope's and the first intercept's."""
    for pool in dict.fromkeys(each.pool for each in found):
        own = [each for each in found if each.pool == pool and each.entropy is not None]
        if not own:
            continue
        entropies = [each.entropy for each in own]
        yield _relation(pool, "slope", entropies, [each.slope.mean for each in own])
        yield _relation(pool, "first intercept", entropies, [each.intercepts[0].mean for each in own])


def _relation(
    pool: str, coefficient: str, entropies: Sequence[float | None], values: Sequence[float | None]
) -> Relation:
    pairs = [(x, y) for x, y in zip(entropies, values, strict=True) if x is not None and y is not None]
    return Relation(pool=pool, coefficient=coefficient, r=pearson(pairs), n=len(pairs))


def pearson(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Correlation of (x, y); None with fewer than three pairs, or if one of them does not vary."""
    if len(pairs) < MIN_GROUPS:
        return None
    x, y = (values - values.mean() for values in np.array(pairs, dtype=np.float64).T)
    spread = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / spread if spread > 0 else None
