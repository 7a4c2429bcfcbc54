"""Step costs that follow the engine: tables measured at start, corrected by how long real steps take.

A profile is wrong in two ways: everything moves together (a neighbour on the machine, a warmer core), and single points
are off (few samples, other layouts). Choosing a depth only needs ratios, so the first must not look like the second:
correcting only the cells that are in use would make all others seem cheaper on a slow afternoon. So the corrections, in
log, are one Gaussian state with a covariance, and a Kalman filter (recursive least squares with a prior) updates it:

    log(measured / table) = r(size) + noise
    r of what was never seen follows r of what was, neighbours more; what is not measured returns to the prior

Entries: verification at each profiled size, drafting at each depth, and three effects: of raggedness (some requests
deep, others not: attention pads), of prompts on verification, of prompts on drafting. Surprises are clipped (Huber),
corrections bounded.

What is not known well is hoped to be cheap: half a standard deviation, beside the entry in use. Else an entry that the
profile made some per cent too dear would never be seen again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.costs import Float64
from avbench.adaptive.depth import DepthTables

# Standard deviations of log costs: all together, one entry on its own, an effect, one step's measurement.
_COMMON, _OWN, _EFFECT, _STEP = 0.3, 0.15, 0.3, 0.1
_EFFECTS = 3
# Steps after which a measurement is out of date. All corrections together then wander by 1 % in a step.
_MEMORY = 2000.0
# Entries of neighbouring sizes are alike.
_ALIKE = 0.5
_HOPE = 0.5  # standard deviations
_OUTLIER = 2.5  # standard deviations
# A step that took so many times what was expected says nothing about steps: something else happened.
_ABSURD = float(np.log(5.0))
_BOUND = float(np.log(3.0))

Counts = Sequence[int]


class LearnedCosts:
    """`DepthTables` with corrections. `sizes` are the token counts that were profiled, rising."""

    def __init__(self, tables: DepthTables, *, sizes: Sequence[int]) -> None:
        self._tables = tables
        self._depths = len(tables.draft) - 1
        self._sizes = np.array(sizes, np.float64)
        self._entries = len(sizes) + self._depths
        self.corrections = np.zeros(self._entries + _EFFECTS)
        self._latest = np.zeros_like(self.corrections)
        self._prior = _prior([len(sizes), self._depths])
        self._covariance = self._prior.copy()
        most = self._tables.draft.shape[1] * (self._depths + 1)
        self._weights = np.array([np.interp(range(most), self._sizes, column) for column in np.eye(len(sizes))]).T
        self._raggedness: dict[int, Float64] = {}

    def steps(self, requests: int) -> Float64:
        """See `DepthCosts.steps`."""
        tables, depths = self._tables, self._depths
        tokens = slice(requests, requests + requests * depths + 1)
        bounded = np.clip(self.corrections - self._hope(), -_BOUND, _BOUND)
        sized = self._weights[tokens] @ bounded[: len(self._sizes)]
        cost = np.exp(sized + bounded[-3] * self._ragged(requests))
        cost *= tables.verify[tokens]
        cost[1:] += (tables.draft[1:, requests] * np.exp(bounded[len(self._sizes) : self._entries]))[:, None]
        return np.asarray(cost)

    def learn_draft(self, *, depth: int, requests: Counts, prompt_tokens: Counts, costs: Sequence[float]) -> None:
        """Drafting `depth` >= 1 deep took `costs` in some steps, in the tables' unit; each drafted for `requests`, and
        the drafter had `prompt_tokens` to read before."""
        of_step = np.array(requests)
        entry = np.zeros(len(self.corrections))
        entry[len(self._sizes) + depth - 1] = 1.0
        entry[-1] = np.mean(np.array(prompt_tokens) / (of_step * depth))
        self._learn(entry, self._tables.draft[depth, of_step], costs)

    def learn_verify(
        self, *, depth: int, requests: Counts, drafts: Counts, prompt_tokens: Counts, costs: Sequence[float]
    ) -> None:
        """Everything but drafting took `costs` in some steps; each verified `drafts` drafts of `requests` decoding
        requests, made `depth` deep, and read `prompt_tokens`."""
        tokens = np.array(requests) + np.array(drafts)
        everything = tokens + np.array(prompt_tokens)
        entry = np.zeros(len(self.corrections))
        entry[: len(self._sizes)] = self._weights[np.minimum(tokens, len(self._weights) - 1)].mean(axis=0)
        entry[-3] = _spread(np.array(drafts), np.array(requests) * depth).mean()
        entry[-2] = np.mean(prompt_tokens / everything)
        self._latest = entry
        self._learn(entry, self._tables.verify[everything], costs)

    def _hope(self) -> Float64:
        """How much cheaper than estimated an entry may be beside the one in use, given what is known of both."""
        against = self._covariance @ self._latest
        contrast = self._covariance.diagonal() - 2 * against + self._latest @ against
        hope = _HOPE * np.sqrt(np.maximum(contrast, 0.0))
        hope[self._entries :] = 0.0
        return np.asarray(hope)

    def _learn(self, entry: Float64, tables: Float64, costs: Sequence[float]) -> None:
        """One measurement: the median over some steps that were alike."""
        kept = float(np.exp(-len(costs) / _MEMORY))
        self.corrections *= kept
        self._covariance = kept**2 * self._covariance + (1 - kept**2) * self._prior
        seen = self._covariance @ entry
        variance = float(entry @ seen) + _STEP**2 / len(costs)
        surprise = float(np.median(np.log(np.array(costs) / tables)) - entry @ self.corrections)
        if abs(surprise) > _ABSURD:
            return
        limit = _OUTLIER * variance**0.5
        self.corrections += seen * (min(max(surprise, -limit), limit) / variance)
        self._covariance -= np.outer(seen, seen / variance)

    def _ragged(self, requests: int) -> Float64:
        if requests not in self._raggedness:
            drafts = np.arange(requests * self._depths + 1)
            most = requests * np.arange(self._depths + 1)[:, None]
            self._raggedness = {requests: _spread(drafts, most)}
        return self._raggedness[requests]


def _prior(groups: Sequence[int]) -> Float64:
    """Covariance of the corrections before anything is measured; `groups` of neighbours, then the effects."""
    entries = sum(groups)
    covariance = np.zeros((entries + _EFFECTS, entries + _EFFECTS))
    covariance[:entries, :entries] = _COMMON**2
    group, place = np.repeat(np.arange(len(groups)), groups), np.arange(entries)
    alike = _OWN**2 * _ALIKE ** abs(place[:, None] - place)
    covariance[:entries, :entries] += np.where(group[:, None] == group, alike, 0.0)
    covariance[entries:, entries:] = _EFFECT**2 * np.eye(_EFFECTS)
    return covariance


def _spread(verified: NDArray[np.intp], drafted: NDArray[np.intp]) -> Float64:
    """How uneven requests are in depth: 0 if no draft or every draft is verified, 1 in the middle."""
    share = np.minimum(verified, drafted) / np.maximum(drafted, 1)
    return np.asarray(4 * share * (1 - share))
