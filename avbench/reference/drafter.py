"""The sequential drafter: K passes of a small model, each on the token before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from avbench.reference.llama import Llama
from avbench.reference.ragged import Ints, Ragged
from avbench.reference.sampling import Floats, Weights, draw, put_on_argmax, softmax_weights


@dataclass(frozen=True, kw_only=True)
class DraftBlock:
    """K drafts for each row."""

    tokens: Ints  # [rows, K]
    complement: Floats  # [rows, K] sum over z != argmax of exp(l_z - l_max), what logit(q_max) is made of


class SequentialDrafter:
    """Owns the draft model, its cache and the distributions of the drafts that are out."""

    def __init__(
        self,
        folder: Path,
        *,
        k: int,
        slots: int,
        length: int,
        dtype: torch.dtype,
        sampling: Literal["greedy", "probabilistic"],
    ) -> None:
        self.k = k
        self._slots = slots
        self._model = Llama(folder, slots=slots, length=length + k, dtype=dtype)
        self._probabilistic = sampling == "probabilistic"
        vocabulary = self._model.shape.vocabulary
        self.vocabulary = vocabulary
        self.max_position = self._model.shape.max_position
        self._values = torch.zeros(k * slots, vocabulary)
        self._totals = torch.ones(k * slots, 1)
        self._done = np.zeros(slots, np.int64)  # tokens of each slot's request that are in the draft's cache

    @property
    def distributions(self) -> Weights | None:
        """q of the drafts that are out, row `position * slots + slot`; None if drafts are argmax."""
        return Weights(values=self._values, totals=self._totals) if self._probabilistic else None

    def rows(self, slots: Ints) -> Ints:
        """Rows of `distributions` for each slot, [len(slots), K]."""
        return slots[:, None] + np.arange(self.k) * self._slots

    def forget(self, slot: int) -> None:
        """The slot has a new request."""
        self._done[slot] = 0

    def pretend(self, slots: Ints, length: int) -> None:
        """Take the first `length` positions of these slots as read, whatever is in the cache: for timing only."""
        self._done[slots] = length

    def draft(self, known: list[NDArray[np.int64]], slots: Ints, temperature: Floats, u: Floats) -> DraftBlock:
        """Draft K tokens after all `known` tokens of each row; `u` [rows, K] uniforms, `temperature` [rows]."""
        lengths = np.array([len(tokens) for tokens in known])
        starts = self._done[slots]
        batch = Ragged(
            tokens=np.concatenate([tokens[start:] for tokens, start in zip(known, starts, strict=True)]),
            slots=slots,
            starts=starts,
            counts=lengths - starts,
        )
        tokens = np.empty((len(slots), self.k), np.int64)
        complement = np.empty((len(slots), self.k), np.float32)
        for i in range(self.k):
            hidden = self._model.forward(batch)
            logits = self._model.logits(hidden if len(hidden) == len(slots) else hidden.index_select(0, batch.last))
            tokens[:, i], complement[:, i] = self._choose(logits, temperature, slots + i * self._slots, u[:, i])
            batch = Ragged(tokens=tokens[:, i], slots=slots, starts=lengths + i, counts=np.ones_like(slots))
        self._done[slots] = lengths  # drafts in the cache become known tokens only when accepted, see `accept`
        return DraftBlock(tokens=tokens, complement=complement)

    def accept(self, slots: Ints, accepted: Ints) -> None:
        """Accepted drafts are in the cache already, all but the K-th, which was never an input."""
        self._done[slots] += np.minimum(accepted, self.k - 1)

    def _choose(self, logits: torch.Tensor, temperature: Floats, rows: Ints, u: Floats) -> tuple[Ints, Floats]:
        weights = softmax_weights(logits, temperature)
        complement = weights.totals.numpy()[:, 0] - np.float32(1)
        if not self._probabilistic:
            best: Ints = weights.values.argmax(-1).numpy()
            return best, complement
        put_on_argmax(weights, np.flatnonzero(temperature == 0))
        index = torch.from_numpy(rows)
        self._values.index_copy_(0, index, weights.values)
        self._totals.index_copy_(0, index, weights.totals)
        return draw(weights.values, u), complement
