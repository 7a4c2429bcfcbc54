"""Is arm B faster than arm A at one load, and by how much?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from avbench.analysis.estimate import ONE_PASS
from avbench.analysis.noise import FEW_PASSES, Variance, concurrency_class
from avbench.analysis.passes import PassTable, Point

LEVEL = 0.95
Verdict = Literal["difference shown", "no difference shown", "one pass, no noise estimate"]


@dataclass(frozen=True, kw_only=True)
class Gain:
    """`ratio` = B / A of one quantity at one load, over the passes both ran; 1.05 is a gain of 5 %.

    The interval has 95 % in all if `comparisons` such gains are read together (Bonferroni): the best of several equal
    arms looks better than it is, so a chosen best is compared with all its rivals at once.
    """

    of: Point  # B
    over: Point  # A
    ratio: float
    low: float | None
    high: float | None
    passes: int
    comparisons: int = 1

    @property
    def verdict(self) -> Verdict:
        """ "No difference shown" is an answer."""
        if self.low is None or self.high is None:
            return ONE_PASS
        return "difference shown" if self.low > 1 or self.high < 1 else "no difference shown"

    @property
    def shown(self) -> bool:
        """The interval leaves out 1."""
        return self.verdict == "difference shown"


def compare_points(table: PassTable, of: Point, over: Point, *, comparisons: int = 1) -> Gain | None:
    """Gain of `of` over `over`; None if no pass measured both (their passes would be different days)."""
    ours, theirs = table.values.get(of, {}), table.values.get(over, {})
    common = sorted(set(ours) & set(theirs))
    pairs = [(ours[number], theirs[number]) for number in common if ours[number] > 0 and theirs[number] > 0]
    if not pairs:
        return None
    logs = np.log([b / a for b, a in pairs])
    centre = float(np.mean(logs))
    variance = _contrast_variance(table, of, over, logs)
    if variance is None:
        return Gain(of=of, over=over, ratio=math.exp(centre), low=None, high=None, passes=len(pairs))
    half = variance.half_width(len(pairs), level=1 - (1 - LEVEL) / comparisons)
    return Gain(
        of=of,
        over=over,
        ratio=math.exp(centre),
        low=math.exp(centre - half),
        high=math.exp(centre + half),
        passes=len(pairs),
        comparisons=comparisons,
    )


def _contrast_variance(
    table: PassTable, of: Point, over: Point, logs: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> Variance | None:
    """Of one pass's log ratio: its own from six passes on, else the sum of both classes' pooled contrasts."""
    if len(logs) < 2:
        return None
    if len(logs) >= FEW_PASSES:
        return Variance(value=float(np.var(logs, ddof=1)), df=len(logs) - 1)
    parts = [table.noise[concurrency_class(point.concurrency)].contrast for point in (of, over)]
    if parts[0] is None or parts[1] is None:
        return None
    value = parts[0].value + parts[1].value
    return Variance(value=value, df=min(parts[0].df, parts[1].df))


def smallest_difference(table: PassTable, concurrency: int, passes: int, *, comparisons: int = 1) -> float | None:
    """Relative difference between two arms that this sweep could just tell apart at a load (0.04 = 4 %).

    None where no noise is known, or where each comparison has its own variance (six passes and more).
    """
    noise = table.noise.get(concurrency_class(concurrency))
    if noise is None or noise.contrast is None or not 2 <= passes < FEW_PASSES:
        return None
    both = Variance(value=2 * noise.contrast.value, df=noise.contrast.df)
    return math.expm1(both.half_width(passes, level=1 - (1 - LEVEL) / comparisons))
