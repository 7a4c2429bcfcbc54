"""What a step costs: tables over request count (drafting) and token count (verification), built from measured
curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Curve = Sequence[tuple[int, float]]

# A verification step never costs nothing: the budget divides by it.
_CHEAPEST_VERIFY = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class CostTables:
    """Cost of a step, any one unit of time: `draft` [max_requests + 1] by requests, `verify` [max_tokens + 1] by
    tokens."""

    draft: Float64
    verify: Float64


def staircase(
    *, draft_curve: Curve, verify_curve: Curve, max_requests: int, max_tokens: int, graph_limit: int = 0
) -> CostTables:
    """Build the tables as vLLM does: for engines that pad to the next profiled size up to `graph_limit` tokens.

    A curve is measured (size, cost) points by rising size; noise that lowers the cost is flattened. Up to the limit
    a size costs what the next profiled size costs. Above it nothing pads: linear between the points that lie above
    the limit, never blended with those below, for leaving the graphs is a jump. Past the last point its last slope
    goes on. Without a limit (0) the whole table is a staircase. Raises ValueError for an empty curve.
    """

    def cost(sizes: Float64, points: Float64, costs: Float64) -> Float64:
        table = costs[np.minimum(np.searchsorted(points, sizes, side="left"), len(points) - 1)]
        beyond, measured = sizes > graph_limit, points > graph_limit
        if graph_limit and measured.any():
            table[beyond] = np.interp(sizes[beyond], points[measured], costs[measured])
        return table

    return _tables(cost, draft_curve, verify_curve, max_requests, max_tokens)


def interpolated(*, draft_curve: Curve, verify_curve: Curve, max_requests: int, max_tokens: int) -> CostTables:
    """Build the tables for an engine that does not pad: linear between the points, the first cost below the first
    point, the last slope past the last one. Curves as for `staircase`."""

    def cost(sizes: Float64, points: Float64, costs: Float64) -> Float64:
        return np.interp(sizes, points, costs)

    return _tables(cost, draft_curve, verify_curve, max_requests, max_tokens)


def _tables(
    cost: Callable[[Float64, Float64, Float64], Float64],
    draft_curve: Curve,
    verify_curve: Curve,
    max_requests: int,
    max_tokens: int,
) -> CostTables:
    return CostTables(
        draft=np.maximum(_table(cost, draft_curve, max_requests), 0.0),
        verify=np.maximum(_table(cost, verify_curve, max_tokens), _CHEAPEST_VERIFY),
    )


def _table(cost: Callable[[Float64, Float64, Float64], Float64], curve: Curve, largest: int) -> Float64:
    """Cost of each size 0..largest: the shape inside the measured range, the last slope beyond it."""
    if not len(curve):
        raise ValueError("a cost curve needs at least one (size, cost) point")
    points = np.array([float(int(size)) for size, _ in curve])
    costs = np.maximum.accumulate(np.array([float(value) for _, value in curve]))
    sizes = np.arange(largest + 1, dtype=np.float64)
    table = cost(sizes, points, costs)
    if len(points) > 1:
        beyond = sizes > points[-1]
        with np.errstate(divide="ignore", invalid="ignore"):  # the last two points of one size: infinite, as in vLLM
            slope = (costs[-1] - costs[-2]) / (points[-1] - points[-2])
            table[beyond] = costs[-1] + slope * (sizes[beyond] - points[-1])
    return table
