"""A number with its spread.

The pass (one server start that runs all its loads) is the unit. Throughput enters as the pass's own figure, a latency
as the pass's median over requests. The estimate is the geometric mean over passes, with a t-interval on logarithms.
With fewer than six passes the variance is the one pooled over the concurrency class (`noise.py`), with six or more it
is the cell's own. One pass has no interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from avbench.analysis.noise import FEW_PASSES, Noise, Variance, concurrency_class
from avbench.analysis.passes import PassTable, Point

ONE_PASS: Final = "one pass, no noise estimate"


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """`value` with its 95 % interval, in the quantity's SI unit; `n` passes. No interval: `low` and `high` are None."""

    value: float
    low: float | None
    high: float | None
    n: int
    spread: float | None = None  # (largest - smallest pass) / mean

    @property
    def half_width(self) -> float | None:
        """Relative: 0.02 reads as +-2 %."""
        if self.low is None or self.high is None or self.low <= 0:
            return None
        return math.sqrt(self.high / self.low) - 1


def estimate_point(table: PassTable, point: Point) -> Estimate | None:
    """The quantity at `point`, or None if no pass measured it there."""
    values = list(table.values.get(point, {}).values())
    if not values:
        return None
    spread = (max(values) - min(values)) / float(np.mean(values)) if len(values) > 1 and np.mean(values) else None
    if min(values) <= 0:  # no logarithm, no interval: such as 0 verified drafts per step
        return Estimate(value=float(np.mean(values)), low=None, high=None, n=len(values), spread=spread)
    centre = float(np.mean(np.log(values)))
    variance = cell_variance(values, table.noise[concurrency_class(point.concurrency)])
    if variance is None:
        return Estimate(value=math.exp(centre), low=None, high=None, n=len(values), spread=spread)
    half = variance.half_width(len(values))
    return Estimate(
        value=math.exp(centre), low=math.exp(centre - half), high=math.exp(centre + half), n=len(values), spread=spread
    )


def cell_variance(values: Sequence[float], noise: Noise) -> Variance | None:
    """Of one pass's logarithm: the cell's own from six passes on, else the class's. One pass: None."""
    if len(values) < 2:
        return None
    if len(values) >= FEW_PASSES:
        return Variance(value=float(np.var(np.log(values), ddof=1)), df=len(values) - 1)
    return noise.total
