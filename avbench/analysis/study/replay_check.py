"""Whether the replay gives what the engine itself predicted, where the engine used the estimator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from avbench.adaptive.features import Float32
from avbench.analysis.study.pool import Pool

CLOSE = 1e-3


@dataclass(frozen=True, kw_only=True)
class ReplayCheck:
    """Absolute difference between the engine's confidences and the replay's, over the labels that have one."""

    n: int
    close: float  # share within 0.001
    mean: float


def check_replay(pool: Pool, predictions: Float32) -> ReplayCheck | None:
    """`predictions` [n] of the online fit of logit(q_max). None if the engine used no estimator, or did not say."""
    used = pool.drafts.prediction
    if used is None or pool.info.source != "estimator":
        return None
    gap = np.abs(used - predictions)
    gap = gap[np.isfinite(gap)]
    return ReplayCheck(n=len(gap), close=float((gap <= CLOSE).mean()), mean=float(gap.mean(dtype=np.float64)))
