"""The online fit with one thing changed, on the same labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.estimator import DAMPING, RIDGE
from avbench.analysis.study.features import HEAD_LOGIT
from avbench.analysis.study.metrics import Ranked, losses, measure
from avbench.analysis.study.offline import OfflineFit
from avbench.analysis.study.pool import Pool
from avbench.analysis.study.replay import Fit, FitSettings, fit_online
from avbench.analysis.study.rounds import Rounds, find_rounds

DAMPINGS = (0.0, 10.0, 50.0, 200.0, 1000.0)
INTERVALS = (10, 25, 50, 100, 200, 400)
RIDGES = (0.0, 1e-3, 0.1, 1.0, 10.0)
EARLY_STEPS = 1000


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One change. `settings` of the fit, `interval` in engine steps (None: as in the labels), `head`: its feature."""

    topic: str
    name: str
    settings: FitSettings
    interval: int | None = None
    head: bool = False
    usual: bool = False  # it changes nothing: the published setting


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """What came of it, over the scored drafts of the pool. Differences are to the usual setting."""

    topic: str
    name: str
    usual: bool
    auc: float | None
    log_loss: float
    ece: float
    early_loss: float  # over each server's first 1000 engine steps from its first label, the warm-up included
    auc_difference: float | None
    log_loss_difference: float
    ece_difference: float
    ran_away: bool  # the fit's coefficients went beyond all bounds


def variants(pool: Pool, offline: OfflineFit | None) -> Iterator[Variant]:
    """All of them; those that are the usual setting are marked, and appear in each topic for comparison."""
    usual = FitSettings()
    yield Variant(topic="slope", name="shared", settings=usual, usual=True)
    yield Variant(topic="slope", name="one per position", settings=dataclasses.replace(usual, shared_slope=False))
    for damping in DAMPINGS:
        settings = dataclasses.replace(usual, damping=damping)
        yield Variant(topic="damping", name=f"{damping:g}", settings=settings, usual=damping == DAMPING)
    own = set(pool.intervals.tolist())
    for interval in sorted({*INTERVALS, *own}):
        yield Variant(
            topic="refit interval", name=f"{interval} steps", settings=usual, interval=interval, usual=own == {interval}
        )
    for ridge in RIDGES:
        settings = dataclasses.replace(usual, ridge=ridge)
        yield Variant(topic="ridge", name=f"{ridge:g}", settings=settings, usual=ridge == RIDGE)
    yield from _starts(usual, offline)
    if pool.drafts.head is not None:
        yield Variant(topic="feature", name="logit(q_max)", settings=usual, usual=True)
        yield Variant(topic="feature", name="the head's logit", settings=usual, head=True)


def _starts(usual: FitSettings, offline: OfflineFit | None) -> Iterator[Variant]:
    def start(name: str, slope: float, intercepts: float | tuple[float, ...], *, published: bool = False) -> Variant:
        settings = dataclasses.replace(usual, slope=slope, intercepts=intercepts)
        return Variant(topic="cold start", name=name, settings=settings, usual=published)

    yield start("0.5 and -0.2", usual.slope, usual.intercepts, published=True)
    yield start("1 and 0 (q_max itself)", 1.0, 0.0)
    yield start("0 and 0 (one half)", 0.0, 0.0)
    if offline is not None:
        intercepts = tuple(-0.2 if value is None else value for value in offline.intercepts)
        yield start("the offline fit", offline.slope, intercepts)


def ablate(pool: Pool, rounds: Rounds, offline: OfflineFit | None) -> tuple[Ablation, ...]:
    """Runs every variant; the usual one once."""
    usual = _run(pool, rounds, Variant(topic="", name="", settings=FitSettings(), usual=True))
    found = []
    for variant in variants(pool, offline):
        outcome = usual if variant.usual else _run(pool, rounds, variant)
        found.append(_against(variant, outcome, usual))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    auc: float | None
    log_loss: float
    ece: float
    early_loss: float
    ran_away: bool


def _run(pool: Pool, rounds: Rounds, variant: Variant) -> _Outcome:
    drafts = pool.drafts
    feature = HEAD_LOGIT.of(drafts) if variant.head else drafts.logit_q_max
    assert feature is not None
    own_rounds = rounds
    if variant.interval is not None:
        same = np.full_like(pool.intervals, variant.interval)
        own_rounds = find_rounds(drafts.step, drafts.stream, same)
    fit = fit_online(feature, drafts.position, drafts.label, own_rounds, pool.k, variant.settings)
    return _outcome(pool, fit)


def _outcome(pool: Pool, fit: Fit) -> _Outcome:
    scored = pool.scored
    kept = fit.predictions[scored]
    order = np.argsort(kept)[::-1]
    ranked = Ranked(
        predictions=kept[order],
        labels=pool.drafts.label[scored][order],
        groups=np.empty(len(kept), dtype=np.int16),
    )
    point = measure(ranked)
    assert point is not None
    early = _early(pool)
    loss = losses(fit.predictions[early], pool.drafts.label[early])
    return _Outcome(
        auc=point.auc,
        log_loss=point.log_loss,
        ece=point.ece,
        early_loss=float(loss.mean(dtype=np.float64)),
        ran_away=fit.ran_away,
    )


def _early(pool: Pool) -> NDArray[np.bool_]:
    """Drafts [n] of each server's first steps, counted from its first label."""
    drafts = pool.drafts
    starts = np.searchsorted(drafts.stream, np.arange(len(pool.streams)))
    return drafts.step - drafts.step[starts][drafts.stream] < EARLY_STEPS


def _against(variant: Variant, outcome: _Outcome, usual: _Outcome) -> Ablation:
    return Ablation(
        topic=variant.topic,
        name=variant.name,
        usual=variant.usual,
        auc=outcome.auc,
        log_loss=outcome.log_loss,
        ece=outcome.ece,
        early_loss=outcome.early_loss,
        auc_difference=None if outcome.auc is None or usual.auc is None else outcome.auc - usual.auc,
        log_loss_difference=outcome.log_loss - usual.log_loss,
        ece_difference=outcome.ece - usual.ece,
        ran_away=outcome.ran_away,
    )
