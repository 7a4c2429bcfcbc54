"""The bookkeeping of nested depth across engine steps, an extension of avbench.

At the end of step t depth d and budget B are chosen; then d tokens are drafted for every request. Step t + 1 verifies
the B best of them, ranked by their own confidences. d and B come from the confidences of drafts whose verdict has
fallen, and from the verdicts themselves: whatever the costs, they cannot know what will be drawn. Choosing them when
the drafts are made would let the confidence of position k + 1, which depends on the token drawn at k, decide whether
position k is verified (`tests/unit/adaptive/test_losslessness.py` counts a total variation of 0.25).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.confidence import Slots
from avbench.adaptive.depth import Choice, DepthCosts, choose_depth
from avbench.adaptive.features import Float32
from avbench.adaptive.outlook import Offsets, Outlook

# Steps between two choices, at most: one takes 0.4 ms at 64 requests, learning as much again, and neither loads nor
# acceptance change in eight steps. A new depth may have been a try, so it is looked at again after one step, then two.
INTERVAL = 8
# Requests come and go; a choice holds while there are about as many.
SIMILAR = 1.5


class NestedDepth:
    """Chooses depth and budget of each step. Per engine step, in this order:

    1. `verdict(...)`: what the target made of the drafts that were out,
    2. `choose(R)`, if it is `due(R)`; `choice(R)` holds for the drafts that are made now,
    3. `record(...)`: their confidences; what it returns ranks them.
    """

    def __init__(
        self,
        *,
        costs: DepthCosts,
        max_requests: int,
        positions: int,
        max_total_logits: int | None = None,
        outlook: Outlook | None = None,
    ) -> None:
        self._costs, self._max_total_logits = costs, max_total_logits
        self._outlook = outlook or Outlook(max_requests=max_requests, positions=positions)
        self._offsets = Offsets(positions)
        self._uncorrected: Float32 = np.zeros((max_requests, positions), np.float32)
        self._seen: list[Float32] = []  # confidences of each step since the last choice
        self._verdicts: list[tuple[Float32, NDArray[Any], NDArray[Any]]] = []
        self._choice, self._chosen_for = Choice(depth=positions, budget=0), 0
        self._interval = 1

    def verdict(self, slots: Slots, accepted: NDArray[Any], verified: NDArray[Any], *, refitted: bool = False) -> None:
        """The target accepted so many of the verified drafts of `slots`, [R] each; `refitted`: the source of the
        confidences has changed."""
        if verified.any():
            self._verdicts.append((self._uncorrected[slots], accepted, verified))
        if refitted:
            self._offsets.forget()

    def due(self, requests: int) -> bool:
        """Whether the last choice is too old, or was made for quite another number of requests."""
        similar = self._chosen_for / SIMILAR < requests < self._chosen_for * SIMILAR
        return len(self._seen) >= self._interval or not similar

    def choose(self, requests: int) -> None:
        """Choose for `requests` >= 1, from everything up to the last verdict."""
        if self._seen:
            self._outlook.record(np.concatenate(self._seen), steps=len(self._seen))
        if self._verdicts:
            self._offsets.learn(*(np.concatenate(parts) for parts in zip(*self._verdicts, strict=True)))
        self._seen, self._verdicts = [], []
        survival = self._outlook.survival(requests)
        choice = choose_depth(survival, self._costs, max_total_logits=self._max_total_logits)
        self._interval = min(2 * self._interval, INTERVAL) if choice.depth == self._choice.depth else 1
        self._choice, self._chosen_for = choice, requests

    def choice(self, requests: int) -> Choice:
        """What holds for `requests`, about as many as the choice was made for: as much budget for each of them."""
        budget = round(self._choice.budget * requests / self._chosen_for)
        if self._max_total_logits is not None:
            budget = min(budget, max(0, self._max_total_logits - requests))
        return Choice(depth=self._choice.depth, budget=budget)

    def record(self, slots: Slots, confidences: NDArray[Any], depth: int) -> Float32:
        """Take in `confidences` [R, K] of the drafts just made, `depth` deep; return them corrected."""
        self._uncorrected[slots] = confidences
        corrected = self._offsets.corrected(confidences)
        self._seen.append(corrected[:, :depth])
        return corrected
