"""What nested depth knows before drafts are made: how confident drafts at each position have been of late.

Positions that are not drafted have no confidences, so without more a depth once given up would never be tried again.
Three things keep it honest:

- The sample is a pool of the latest confidences per position, whoever's they were. Requests change and depths change,
  and there is always as much of it as there are requests.
- What has not been drafted for n steps is hoped to be better than it last was: the chance of a rejection shrinks by
  exp(-n / patience). After a while that makes a try worth its cost, and one try replaces the hope by confidences.
- An offset per position follows the verdicts. The online estimator refits every 100 steps and never moves a position
  without labels, and a confidence head never learns: budgets would stay wrong until, or for ever.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.features import Float32

# One draft in a step is worth a try some 100 steps after it was given up: an error of 1 % of the throughput at most.
PATIENCE = 200.0
# Rows of the sample if the batch is smaller: the mean of 32 is good to a tenth.
SMALLEST_SAMPLE = 32
# Offsets: Newton steps; what is remembered has the information of at most 250 labels, after the source has changed of
# 50, and a guess stands against the first labels like 25 of them.
_MEMORY, _REMAINING, _PRIOR, _LARGEST_OFFSET = 50.0, 10.0, 5.0, 3.0


class Outlook:
    """Confidences of drafts that are to come, from those that were. O(requests x K) memory."""

    def __init__(
        self, *, max_requests: int, positions: int, patience: float = PATIENCE, smallest_sample: int = SMALLEST_SAMPLE
    ) -> None:
        # Certain until seen, like a new request in vLLM: the first steps draft everything.
        self._pool: Float32 = np.ones((max_requests + smallest_sample, positions), np.float32)
        self._smallest_sample = smallest_sample
        self._next = np.zeros(positions, np.intp)
        self._unseen = np.zeros(positions)  # steps since a position was drafted
        self._patience = patience
        self._columns = np.arange(positions)

    def record(self, confidences: NDArray[Any], *, steps: int = 1) -> None:
        """Take in the confidences [N, depth] of the drafts of some steps, the latest last; positions from `depth` on
        were not drafted in them."""
        latest = confidences[-len(self._pool) :]
        rows, depth = latest.shape
        self._pool[self._rows(0, rows)[:, :depth], self._columns[:depth]] = latest
        self._next[:depth] += rows
        self._unseen += steps
        self._unseen[:depth] = 0.0

    def survival(self, requests: int) -> Float32:
        """Return samples [G, R, K] of the survival of R requests' drafts; the last one is the latest."""
        samples = -(-self._smallest_sample // requests)
        rejection = 1 - self._pool[self._rows(-samples * requests, 0), self._columns]
        rejection *= np.exp(-self._unseen / self._patience).astype(np.float32)
        survival: Float32 = np.cumprod(1 - rejection, axis=1)
        return survival.reshape(samples, requests, -1)

    def _rows(self, first: int, end: int) -> NDArray[np.intp]:
        """Where in the pool the rows `first` to `end` are, counted from the next free one; [end - first, K]."""
        return (self._next + np.arange(first, end)[:, None]) % len(self._pool)


class Offsets:
    """A shift of the log-odds per position, learned from verdicts; zero if the confidences are right."""

    def __init__(self, positions: int) -> None:
        self.shift = np.zeros(positions)
        self._information = np.zeros(positions)
        self._columns = np.arange(positions)

    def corrected(self, confidences: NDArray[Any]) -> Float32:
        """Return `confidences` [R, depth] with their log-odds shifted."""
        odds = np.exp(self.shift[: confidences.shape[1]])
        moved = confidences * odds
        return np.asarray(moved / (moved + (1 - confidences)), np.float32)

    def learn(self, confidences: NDArray[Any], accepted: NDArray[Any], admitted: NDArray[Any]) -> None:
        """Compare uncorrected `confidences` [R, K] with verdicts: `accepted` of `admitted` drafts [R]. Labels are the
        estimator's: accepted drafts and the first rejected one."""
        seen = self._columns < np.minimum(accepted + 1, admitted)[:, None]
        predicted = self.corrected(confidences)
        missed = np.where(seen, (self._columns < accepted[:, None]) - predicted, 0).sum(axis=0)
        self._information += np.where(seen, predicted * (1 - predicted), 0).sum(axis=0)
        np.minimum(self._information, _MEMORY, out=self._information)
        self.shift += missed / (self._information + _PRIOR)
        np.clip(self.shift, -_LARGEST_OFFSET, _LARGEST_OFFSET, out=self.shift)

    def forget(self) -> None:
        """The confidences have another source from now on: what was learned counts for less."""
        np.minimum(self._information, _REMAINING, out=self._information)
