"""Positions that are never admitted: without labels their intercept stays at the cold start, and so they stay out.

Labels that were not trimmed show what that costs: part of them is hidden from the fit, as trimming would hide them, and
the predictions are graded on the hidden ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.features import Float32
from avbench.analysis.study.metrics import losses
from avbench.analysis.study.pool import Pool
from avbench.analysis.study.replay import Fit, FitSettings, fit_online
from avbench.analysis.study.rounds import Rounds

CENSORED = (
    "not possible: these labels were trimmed by adaptive verification, so what was never admitted has no label to be "
    "graded on; write labels with `observe: true`."
)
NOTHING_HIDDEN = "not possible: no label lies at the deeper positions."

Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class HiddenPosition:
    """One position, from 1. Intercepts are means over the later half of the refits; the losses are nats per draft."""

    position: int
    seen: int  # labels the fit was given
    hidden: int
    intercept_open: float | None  # with all labels; None: the position has none
    intercept_locked: float
    intercept_inherited: float
    loss_open: float | None  # on the hidden labels; None: there are none
    loss_locked: float | None
    loss_inherited: float | None


@dataclass(frozen=True, kw_only=True)
class LockIn:
    """One way of hiding labels."""

    hiding: str
    positions: tuple[HiddenPosition, ...]
    hidden: int
    loss_open: float  # over all hidden labels: predictions of a fit that sees every label
    loss_locked: float  # of one that sees what is not hidden
    loss_inherited: float  # of one where unseen positions take the intercept of the deepest seen one
    observed: float  # accepted share of the hidden labels
    predicted_open: float
    predicted_locked: float
    predicted_inherited: float


@dataclass(frozen=True, kw_only=True)
class LockInStudy:
    """`reason` says why there is nothing."""

    ways: tuple[LockIn, ...]
    reason: str | None


def study_lock_in(pool: Pool, rounds: Rounds) -> LockInStudy:
    """Both ways, where the labels allow it."""
    if pool.info.trimmed:
        return LockInStudy(ways=(), reason=CENSORED)
    drafts = pool.drafts
    open_fit = _fit(pool, rounds, FitSettings(), None)
    ways = tuple(
        _lock_in(pool, rounds, open_fit, hiding, visible)
        for hiding, visible in _ways(pool)
        if np.any(~visible & pool.scored) and np.any(visible) and len(drafts)
    )
    return LockInStudy(ways=ways, reason=None if ways else NOTHING_HIDDEN)


def _ways(pool: Pool) -> Iterator[tuple[str, Mask]]:
    depth = -(-pool.k // 2)
    if depth < pool.k:
        yield f"positions {depth + 1} to {pool.k} never admitted", pool.drafts.position < depth
    if not pool.drafts.admitted.all():
        yield "what the engine's budget would have trimmed", pool.drafts.admitted


def _fit(pool: Pool, rounds: Rounds, settings: FitSettings, visible: Mask | None) -> Fit:
    drafts = pool.drafts
    return fit_online(drafts.logit_q_max, drafts.position, drafts.label, rounds, pool.k, settings, visible)


def _lock_in(pool: Pool, rounds: Rounds, open_fit: Fit, hiding: str, visible: Mask) -> LockIn:
    locked = _fit(pool, rounds, FitSettings(), visible)
    inherited = _fit(pool, rounds, FitSettings(inherit=True), visible)
    hidden = ~visible & pool.scored
    fits = open_fit, locked, inherited
    label = pool.drafts.label[hidden]
    loss = [float(losses(fit.predictions[hidden], label).mean(dtype=np.float64)) for fit in fits]
    predicted = [float(fit.predictions[hidden].mean(dtype=np.float64)) for fit in fits]
    return LockIn(
        hiding=hiding,
        positions=tuple(_position(pool, fits, visible, k) for k in range(pool.k)),
        hidden=len(label),
        loss_open=loss[0],
        loss_locked=loss[1],
        loss_inherited=loss[2],
        observed=float(label.mean()),
        predicted_open=predicted[0],
        predicted_locked=predicted[1],
        predicted_inherited=predicted[2],
    )


def _position(pool: Pool, fits: tuple[Fit, Fit, Fit], visible: Mask, k: int) -> HiddenPosition:
    at = pool.drafts.position == k
    hidden = at & ~visible & pool.scored
    label = pool.drafts.label[hidden]

    def loss(predictions: Float32) -> float | None:
        return float(losses(predictions[hidden], label).mean(dtype=np.float64)) if len(label) else None

    open_fit, locked, inherited = fits
    return HiddenPosition(
        position=k + 1,
        seen=int(np.count_nonzero(at & visible)),
        hidden=len(label),
        intercept_open=_settled(open_fit, k) if open_fit.counts[:, k].any() else None,
        intercept_locked=_settled(locked, k),
        intercept_inherited=_settled(inherited, k),
        loss_open=loss(open_fit.predictions),
        loss_locked=loss(locked.predictions),
        loss_inherited=loss(inherited.predictions),
    )


def _settled(fit: Fit, k: int) -> float:
    return float(fit.intercepts[fit.rounds.settled(), k].mean(dtype=np.float64))
