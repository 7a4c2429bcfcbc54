"""Refit rounds: which drafts lie between two refits of the estimator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """M rounds over n drafts. Rounds without a label do not exist: they would change nothing."""

    borders: NDArray[np.int64]  # [M + 1]: round m holds drafts borders[m] to borders[m + 1] - 1
    fresh: NDArray[np.bool_]  # [M]: a new engine process begins
    steps: NDArray[np.int64]  # [M]: engine steps since the fit began, at the end of the round

    def __len__(self) -> int:
        return len(self.fresh)

    def slices(self) -> Iterator[slice]:
        """Of the drafts, one a round."""
        for start, end in zip(self.borders[:-1].tolist(), self.borders[1:].tolist(), strict=True):
            yield slice(start, end)

    def settled(self) -> NDArray[np.bool_]:
        """Rounds [M] in the later half of their process's, where coefficients are read off."""
        index = np.arange(len(self))
        first = np.maximum.accumulate(np.where(self.fresh, index, 0))
        lengths = np.bincount(np.cumsum(self.fresh) - 1)
        return index - first >= np.repeat(lengths // 2, lengths)

    def rows_of(self, rounds: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Drafts [n] that lie in `rounds` [M]."""
        return np.repeat(rounds, np.diff(self.borders))


def find_rounds(
    step: NDArray[np.int64], stream: NDArray[np.int32], intervals: NDArray[np.int64], *, carried: bool = False
) -> Rounds:
    """Rounds of `step`, `stream` [n]; `intervals` [streams] engine steps between refits.

    The engine counts every step from its start, also those without a label, and refits after each `interval`-th:
    step s lies in round s // interval. `carried`: one estimator goes through all streams, one after the other.
    """
    number = step // intervals[stream]
    changed = np.flatnonzero((np.diff(number) != 0) | (np.diff(stream) != 0)) + 1
    borders = np.concatenate([[0], changed, [len(step)]]).astype(np.int64)
    first = borders[:-1]
    fresh = np.concatenate([[True], np.diff(stream[first]) != 0])
    spent = np.cumsum(intervals[stream[first]])
    if carried:
        fresh[1:] = False
    else:
        start = np.maximum.accumulate(np.where(fresh, np.arange(len(first)), 0))
        spent = spent - (spent - intervals[stream[first]])[start]
    return Rounds(borders=borders, fresh=fresh, steps=spent)
