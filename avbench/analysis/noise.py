"""How far apart two passes of one cell fall: the noise every interval is made from.

Model, on logarithms, inside one concurrency class: value = cell + pass + server + rest. A pass moves all its cells (the
machine is warmer), a server start moves the cells it serves (arm x pass), the rest is the cell's own. The three mean
squares of the nested analysis of variance are combined as Satterthwaite (1946) does, so that cells that share a server
or a pass are not counted as if they were independent: degrees of freedom fall from cells x (passes - 1) towards
passes - 1 when everything moves together.

For `a` arms with `l` cells each in the class and `n` passes (exact for a complete table, means of l and a else):

    E[MS_pass]   = rest + l server + a l pass          n - 1 degrees of freedom
    E[MS_server] = rest + l server                     (a - 1)(n - 1)
    E[MS_rest]   = rest                                a (l - 1)(n - 1)

    total    = pass + server + rest = MS_pass/(a l) + MS_server (1/l - 1/(a l)) + MS_rest (1 - 1/l)
    contrast =        server + rest =                 MS_server/l               + MS_rest (1 - 1/l)

`total` is the variance of one cell's value in one pass; `contrast` is its part that does not cancel when two arms are
compared within the same passes.

Coverage, simulated: gains keep their 95 % whatever moves; intervals of single figures keep it unless the whole machine
drifts between only two passes (about 90 %: one degree of freedom saw the drift). `check_passes.machine_drift` says so.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

# Below this many passes a cell's own variance is too uncertain and the class's is used.
FEW_PASSES = 6
# Noise depends on the load: coefficient of variation 7-20 % at concurrency <= 4, below 1 % from 8 (vLLM #53436).
CLASS_BORDERS = (4, 16)


def concurrency_class(concurrency: int) -> str:
    """`1-4`, `5-16` or `17+`: cells of one class are comparable in their noise."""
    low = 1
    for high in CLASS_BORDERS:
        if concurrency <= high:
            return f"{low}-{high}"
        low = high + 1
    return f"{low}+"


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One cell's value in one pass; `value` > 0."""

    arm: str
    cell: str
    concurrency: int
    pass_number: int
    value: float


@dataclass(frozen=True, kw_only=True)
class Variance:
    """Of one value on the logarithmic scale (0.0004 = 2 %), with its degrees of freedom."""

    value: float
    df: float

    def half_width(self, n: float, *, level: float = 0.95) -> float:
        """Half the width of the t-interval of a mean of `n` values."""
        from scipy.special import stdtrit

        return float(stdtrit(self.df, 0.5 + level / 2)) * math.sqrt(self.value / n)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Pooled noise of a class. None: no cell (or, for `contrast`, no second arm) was measured in two passes."""

    total: Variance | None
    contrast: Variance | None
    cells: int
    drift: float | None  # F ratio MS_pass / MS_server: large when all cells moved together between passes
    drift_df: tuple[int, int] | None


@dataclass(frozen=True, kw_only=True)
class _Stratum:
    square_sum: float
    df: int

    @property
    def mean_square(self) -> float:
        return self.square_sum / self.df if self.df else 0.0


def estimate_noise(observations: Iterable[Observation]) -> dict[str, Noise]:
    """Noise by concurrency class, from all cells that have at least two passes."""
    by_class: dict[str, list[Observation]] = {}
    for observation in observations:
        by_class.setdefault(concurrency_class(observation.concurrency), []).append(observation)
    return {name: _class_noise(members) for name, members in by_class.items()}


def _class_noise(observations: Sequence[Observation]) -> Noise:
    passes: dict[str, int] = {}
    for observation in observations:
        passes[observation.cell] = passes.get(observation.cell, 0) + 1
    rows = [observation for observation in observations if passes[observation.cell] > 1]
    if not rows:
        return Noise(total=None, contrast=None, cells=0, drift=None, drift_df=None)
    by_pass, by_server, rest = _strata(rows)
    arms = len({row.arm for row in rows})
    cells = len({row.cell for row in rows})
    per_arm = cells / arms
    total = _combine((by_pass, 1 / cells), (by_server, 1 / per_arm - 1 / cells), (rest, 1 - 1 / per_arm))
    contrast = _combine((by_server, 1 / per_arm), (rest, 1 - 1 / per_arm)) if arms > 1 else None
    drift, drift_df = _drift(by_pass, by_server if by_server.df else rest)
    return Noise(total=total, contrast=contrast, cells=cells, drift=drift, drift_df=drift_df)


def _drift(by_pass: _Stratum, error: _Stratum) -> tuple[float | None, tuple[int, int] | None]:
    if not by_pass.df or not error.df or error.mean_square == 0:
        return None, None
    return by_pass.mean_square / error.mean_square, (by_pass.df, error.df)


def _strata(rows: Sequence[Observation]) -> tuple[_Stratum, _Stratum, _Stratum]:
    """Sums of squares that the passes, then the servers explain beyond the cells' own means, and what is left."""
    logs = np.log([row.value for row in rows])
    cells = _dummies([row.cell for row in rows])
    passes = _dummies([row.pass_number for row in rows])
    servers = _dummies([(row.arm, row.pass_number) for row in rows])
    left, ranks = [], []
    for design in (cells, np.hstack([cells, passes]), np.hstack([cells, passes, servers])):
        solution, _, rank, _ = np.linalg.lstsq(design, logs, rcond=None)
        left.append(float(np.sum((logs - design @ solution) ** 2)))
        ranks.append(int(rank))
    return (
        _Stratum(square_sum=max(left[0] - left[1], 0.0), df=ranks[1] - ranks[0]),
        _Stratum(square_sum=max(left[1] - left[2], 0.0), df=ranks[2] - ranks[1]),
        _Stratum(square_sum=left[2], df=len(rows) - ranks[2]),
    )


def _dummies(labels: Sequence[Hashable]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    index: Mapping[Hashable, int] = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    matrix = np.zeros((len(labels), len(index)))
    matrix[np.arange(len(labels)), [index[label] for label in labels]] = 1.0
    return matrix


def _combine(*terms: tuple[_Stratum, float]) -> Variance | None:
    """Sum of weight x mean square with Satterthwaite's degrees of freedom.

    A table with holes may lack a stratum that has weight: then the strata are pooled as one.
    """
    weighted = [(stratum, weight) for stratum, weight in terms if weight > 1e-9]
    if any(stratum.df == 0 for stratum, _ in weighted):
        pooled = sum(stratum.df for stratum, _ in terms)
        return Variance(value=sum(stratum.square_sum for stratum, _ in terms) / pooled, df=pooled) if pooled else None
    value = sum(weight * stratum.mean_square for stratum, weight in weighted)
    uncertainty = sum((weight * stratum.mean_square) ** 2 / stratum.df for stratum, weight in weighted)
    df = value**2 / uncertainty if uncertainty else float(sum(stratum.df for stratum, _ in weighted))
    return Variance(value=value, df=df)
