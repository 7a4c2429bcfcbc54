"""How soon the online fit has settled on a data set, from the cold start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avbench.analysis.study.coefficients import FreshFit
from avbench.analysis.study.metrics import losses

WINDOW = 5  # refit rounds of the rolling log-loss
TOLERANCE = 0.02
MIN_ROUNDS = 3 * WINDOW  # fewer, and the final value is the beginning
SHOWN = 400  # points of a curve

Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """Rolling log-loss (nats) over the last 5 refit rounds, against engine steps since the cold start."""

    data_set: str
    pool: str
    refit_interval: int  # of the first server, steps
    rounds: int
    final: float | None  # rolling log-loss at the end
    steps: int | None  # until it is first within 2 % of that; None: too few rounds
    steps_to_offline: int | None  # until it is first within 2 % of the offline fit's on the same drafts
    curve_steps: tuple[int, ...]
    curve_online: tuple[float, ...]
    curve_offline: tuple[float, ...]  # empty without an offline fit


def convergence_of(pool: str, interval: int, fit: FreshFit) -> Convergence:
    """From the fresh fit of a data set."""
    rounds, drafts = fit.online.rounds, fit.drafts
    online = rolling(losses(fit.online.predictions, drafts.label), rounds.borders)
    offline = None
    if fit.offline is not None:
        predicted = fit.offline.predict(drafts.logit_q_max, drafts.position)
        offline = rolling(losses(predicted, drafts.label), rounds.borders)
    enough = len(rounds) >= MIN_ROUNDS
    shown = np.unique(np.linspace(0, len(rounds) - 1, min(SHOWN, len(rounds))).astype(np.intp))
    return Convergence(
        data_set=fit.data_set.name,
        pool=pool,
        refit_interval=interval,
        rounds=len(rounds),
        final=float(online[-1]) if enough else None,
        steps=_first(rounds.steps, np.abs(online / online[-1] - 1) <= TOLERANCE) if enough else None,
        steps_to_offline=None
        if offline is None or not enough
        else _first(rounds.steps, online <= offline * (1 + TOLERANCE)),
        curve_steps=tuple(rounds.steps[shown].tolist()),
        curve_online=tuple(online[shown].tolist()),
        curve_offline=() if offline is None else tuple(offline[shown].tolist()),
    )


def rolling(loss: NDArray[np.float32], borders: NDArray[np.int64], window: int = WINDOW) -> Values:
    """Mean loss [M] of the last `window` rounds, fewer at the beginning; `loss` [n], `borders` [M+1]."""
    sums = np.concatenate([[0.0], np.cumsum(loss, dtype=np.float64)])[borders]
    end = np.arange(1, len(borders))
    start = np.maximum(end - window, 0)
    return np.asarray((sums[end] - sums[start]) / (borders[end] - borders[start]))


def _first(steps: NDArray[np.int64], reached: NDArray[np.bool_]) -> int | None:
    return int(steps[np.argmax(reached)]) if reached.any() else None
