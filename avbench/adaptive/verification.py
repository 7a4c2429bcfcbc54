"""The bookkeeping of adaptive verification across engine steps: who was how confident, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.budget import Int, admit, size_budget
from avbench.adaptive.confidence import Slots
from avbench.adaptive.costs import CostTables
from avbench.adaptive.features import Float32


class AdaptiveVerification:
    """Sizes and splits the draft budget of each step. Per engine step, in this order:

    1. `add_request(slot)` for each request that joins,
    2. `budget(...)`, if drafts are scheduled: B* from the confidences recorded one step before the latest,
    3. `admit(...)`: the B* best slots by the latest confidences, those of the drafts being verified,
    4. `record(...)` the confidences of the new drafts: in every step, also when nothing is drafted.

    One step of delay between 3 and 2 is what vLLM's copy to the host costs, and what keeps the output lossless.
    """

    def __init__(
        self, *, costs: CostTables, max_requests: int, positions: int, max_total_logits: int | None = None
    ) -> None:
        self.costs = costs
        self.max_total_logits = max_total_logits
        self.confidences: Float32 = np.ones((max_requests, positions), dtype=np.float32)
        self.stale_confidences: Float32 = np.ones((max_requests, positions), dtype=np.float32)

    def add_request(self, slot: int) -> None:
        """Start `slot` at confidence 1.0, whoever was there before."""
        self.confidences[slot] = 1.0
        self.stale_confidences[slot] = 1.0

    def budget(self, slots: Slots, scheduled: NDArray[Any], *, other_tokens: int, sampling_requests: int) -> int:
        """Return B* for the batch `slots` [R] with `scheduled` [R] drafts; see `size_budget`."""
        return size_budget(
            self.stale_confidences[slots],
            scheduled,
            other_tokens=other_tokens,
            sampling_requests=sampling_requests,
            costs=self.costs,
            max_total_logits=self.max_total_logits,
        )

    def admit(self, slots: Slots, scheduled: NDArray[Any], budget: int) -> Int:
        """Return the drafts to verify per request [R], summing to `budget`; see `avbench.adaptive.budget.admit`."""
        return admit(self.confidences[slots], scheduled, budget)

    def record(self, slots: Slots, confidences: NDArray[Any]) -> None:
        """Keep `confidences` [R, K] of the drafts just made for `slots` [R]; what was latest becomes what budgets
        read."""
        np.copyto(self.stale_confidences, self.confidences)
        self.confidences[slots] = confidences
