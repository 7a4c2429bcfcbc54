"""A batch in which every request brings its own number of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Ragged:
    """`rows` requests; row i processes `counts[i]` tokens from position `starts[i]` on, in KV slot `slots[i]`.

    `tokens` holds them one row after the other, [T] int64. Slots are distinct.
    """

    tokens: Ints
    slots: Ints
    starts: Ints
    counts: Ints

    @cached_property
    def offsets(self) -> Ints:
        """Where each row begins in the flat tokens, and the end: [rows + 1]."""
        return np.concatenate(([0], np.cumsum(self.counts)))

    @cached_property
    def token_slots(self) -> Ints:
        """Slot of each token, [T]."""
        return np.repeat(self.slots, self.counts)

    @cached_property
    def positions(self) -> Ints:
        """Position of each token in its request, [T]."""
        first = np.repeat(self.starts - self.offsets[:-1], self.counts)
        return first + np.arange(len(first))

    @cached_property
    def ends(self) -> Ints:
        """Context length of each row after its last token, [rows]."""
        return self.starts + self.counts

    @cached_property
    def last(self) -> torch.Tensor:
        """Flat index of each row's last token, [rows]."""
        return torch.from_numpy(self.offsets[1:] - 1)
