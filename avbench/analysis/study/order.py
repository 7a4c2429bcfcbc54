"""The estimator's state outlives a run: what serving one thing first does to the confidences on the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from avbench.analysis.study.drafts import NO_LOAD, Drafts, concatenate
from avbench.analysis.study.metrics import losses
from avbench.analysis.study.pool import Pool
from avbench.analysis.study.replay import fit_online
from avbench.analysis.study.rounds import find_rounds

EARLY_ROUNDS = 10
ONE_THING = "not possible: it needs two data sets, or one with cells of several concurrencies."


@dataclass(frozen=True, kw_only=True)
class Carried:
    """`second` served by a fresh estimator and by one that had served `first` before. Log-loss, nats per draft."""

    first: str
    second: str
    fresh: float
    carried: float
    fresh_early: float  # over the first 10 refit rounds
    carried_early: float
    ran_away: bool  # the carried fit's coefficients went beyond all bounds


@dataclass(frozen=True, kw_only=True)
class OrderStudy:
    """Both orders of each couple. `reason` says why there is nothing."""

    cases: tuple[Carried, ...]
    reason: str | None


def study_order(pool: Pool) -> OrderStudy:
    """The data sets of least and most entropy, and the lowest and highest load, in both orders."""
    cases = [
        _carry(pool, *first, *second) for one, other in _couples(pool) for first, second in ((one, other), (other, one))
    ]
    return OrderStudy(cases=tuple(cases), reason=None if cases else ONE_THING)


Named = tuple[str, Drafts]


def _couples(pool: Pool) -> Iterator[tuple[Named, Named]]:
    drafts = pool.drafts
    if len(pool.data_sets) > 1:
        # Without entropies the order of reading decides.
        ranked = sorted(range(len(pool.data_sets)), key=lambda code: pool.data_sets[code].entropy or 0.0)
        one, other = (
            (pool.data_sets[code].name, drafts.take(drafts.data_set == code)) for code in (ranked[0], ranked[-1])
        )
        yield one, other
    loads = np.unique(drafts.load[pool.scored & (drafts.load != NO_LOAD)])
    if len(loads) > 1:
        one, other = ((f"C={load}", drafts.take(pool.scored & (drafts.load == load))) for load in (loads[0], loads[-1]))
        yield one, other


def _carry(pool: Pool, first: str, before: Drafts, second: str, after: Drafts) -> Carried:
    fresh = _losses(pool, after, 0)
    carried = _losses(pool, concatenate([before, after]), len(before))
    return Carried(
        first=first,
        second=second,
        fresh=fresh[0],
        carried=carried[0],
        fresh_early=fresh[1],
        carried_early=carried[1],
        ran_away=carried[2],
    )


def _losses(pool: Pool, drafts: Drafts, skip: int) -> tuple[float, float, bool]:
    """Mean log-loss from draft `skip` on, over the first rounds from there, and whether the fit ran away."""
    stream = drafts.stream.copy()
    stream[skip:] += len(pool.streams)  # the border closes a round, also where both come from one server
    rounds = find_rounds(drafts.step, stream, np.tile(pool.intervals, 2), carried=True)
    fit = fit_online(drafts.logit_q_max, drafts.position, drafts.label, rounds, pool.k)
    loss = losses(fit.predictions, drafts.label)
    begin = int(np.searchsorted(rounds.borders, skip))
    end = int(rounds.borders[min(begin + EARLY_ROUNDS, len(rounds))])
    whole, early = (float(loss[skip:stop].mean(dtype=np.float64)) for stop in (None, end))
    return whole, early, fit.ran_away
