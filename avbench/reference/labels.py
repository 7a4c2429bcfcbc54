"""Labelled drafts: what was known of each draft when it was made, and what the target made of it.

One row per draft that was made and scheduled for verification, request by request, positions rising. `label` is true
for an accepted draft and false for the first rejected one of its request; drafts behind a rejection, and drafts that
were not verified, have none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.features import feature_of_complement
from avbench.reference.drafter import DraftBlock
from avbench.reference.label_parts import PART_ROWS, UNKNOWN, LabelParts
from avbench.reference.ragged import Ints
from avbench.reference.sampling import Floats

_KNOWN = ("q_max", "logit_q_max", "entropy", "margin", "q_sampled", "head")


class Labels:
    """Keeps what is known of the drafts at hand, by slot, until the verdict; then they are rows of `parts`."""

    def __init__(self, parts: LabelParts, *, slots: int, k: int, now: Callable[[], float] = time.time) -> None:
        """`now` gives the time of a verdict."""
        self._parts, self._now = parts, now
        self._known: Floats = np.full((len(_KNOWN), slots, k), np.nan, np.float32)
        self._request = np.zeros(slots, np.int64)
        self._temperature = np.zeros(slots, np.float32)
        self._at_once = max(1, PART_ROWS // k)  # requests whose drafts fit into one file

    @property
    def ended(self) -> bool:
        """Nothing is written any more."""
        return self._parts.ended

    @property
    def unwritten(self) -> bool:
        """There are rows in no file yet."""
        return self._parts.rows > 0

    def enter(self, slot: int, *, request: int, temperature: float) -> None:
        """A new request takes `slot`."""
        self._request[slot], self._temperature[slot] = request, temperature

    def drafted(self, slots: Ints, block: DraftBlock) -> None:
        """Drafts are out for `slots`; without `block.detail` nothing is kept."""
        detail = block.detail
        if detail is None:
            return
        known = self._known[:, :, : block.tokens.shape[1]]
        known[0, slots] = 1 / (1 + np.maximum(block.complement, 0))
        known[1, slots] = feature_of_complement(block.complement)
        known[2, slots], known[3, slots], known[4, slots] = detail.entropy, detail.margin, detail.sampled
        if block.head is not None:
            known[5, slots] = block.head

    def verdict(
        self,
        step: int,
        slots: Ints,
        *,
        scheduled: Ints,
        admitted: Ints,
        verified: Ints,
        accepted: Ints,
        predictions: Floats | None,
    ) -> None:
        """The target has decided; counts of drafts per row [rows], `predictions` by slot [slots, k]."""
        if self.ended or not scheduled.any():
            return
        now = self._now()
        for begin in range(0, len(slots), self._at_once):
            some = slice(begin, begin + self._at_once)
            of = np.repeat(np.arange(len(slots))[some], scheduled[some])  # the batch's row of each draft
            position = np.arange(len(of)) - np.repeat(_before(scheduled[some]), scheduled[some])
            slot = slots[of]
            rows: dict[str, Any] = dict(zip(_KNOWN, self._known[:, slot, position], strict=True))
            rows |= {"time": now, "step": step, "position": position}
            rows |= {"request": self._request[slot], "temperature": self._temperature[slot]}
            rows["prediction"] = np.nan if predictions is None else predictions[slot, position]
            rows["admitted"] = position < admitted[of]
            rows["label"] = _labels(position, verified[of], accepted[of])
            self._parts.append(len(of), rows)

    def flush(self) -> None:
        """Write what was gathered."""
        self._parts.flush()


def _before(counts: Ints) -> Ints:
    return np.cumsum(counts) - counts


def _labels(position: Ints, verified: Ints, accepted: Ints) -> NDArray[np.int8]:
    labels = np.full(len(position), UNKNOWN)
    labels[(position == accepted) & (position < verified)] = 0
    labels[position < accepted] = 1
    return labels
