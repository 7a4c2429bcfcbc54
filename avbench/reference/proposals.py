"""The distributions of the drafts that are out, and drawing from them: what every drafter does once it has logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from avbench.reference.drafter import DraftBlock, DraftDetail
from avbench.reference.ragged import Ints
from avbench.reference.sampling import Floats, Weights, draw, exponentials, put_on_argmax, scaled, softmax_weights

Sampling = Literal["greedy", "probabilistic"]


@dataclass(kw_only=True)
class Block:
    """A block of drafts in the making, [rows, depth] each."""

    tokens: Ints
    complement: Floats
    weighted: Floats  # sum of w ln w of the weights w
    second: Floats  # ln of the second largest weight; the largest is 1
    chosen: Floats  # weight of the drafted token

    def finished(self, *, head: Floats | None, detailed: bool) -> DraftBlock:
        """The block as the engine gets it."""
        return DraftBlock(
            tokens=self.tokens, complement=self.complement, head=head, detail=self._detail() if detailed else None
        )

    def _detail(self) -> DraftDetail:
        """With Z the sum of the weights, the entropy is ln Z - (sum of w ln w) / Z."""
        total = self.complement + np.float32(1)
        return DraftDetail(
            entropy=np.log(total) - self.weighted / total,
            margin=(np.float32(1) - np.exp(self.second)) / total,
            sampled=self.chosen / total,
        )


class Proposals:
    """q of every draft that is out, kept as weights until the verdict: row `position * slots + place in the batch`."""

    def __init__(self, *, k: int, slots: int, vocabulary: int, sampling: Sampling) -> None:
        self._k, self._slots = k, slots
        self._probabilistic = sampling == "probabilistic"
        self._values = torch.zeros(k * slots, vocabulary)
        self._totals = torch.ones(k * slots, 1)
        self._place = np.zeros(slots, np.int64)
        self._shifted = torch.empty(0, vocabulary)
        self.detailed = False

    @property
    def distributions(self) -> Weights | None:
        """All of them; None if drafts are argmax."""
        return Weights(values=self._values, totals=self._totals) if self._probabilistic else None

    def rows(self, slots: Ints) -> Ints:
        """Rows of `distributions` for each slot of the last block, [len(slots), k]."""
        return self._place[slots][:, None] + np.arange(self._k) * self._slots

    def room(self, i: int, rows: int) -> torch.Tensor:
        """Where the logits of position `i` are to be written, [rows, vocabulary]: they become q in place."""
        return self._values[i * self._slots : i * self._slots + rows]

    def begin(self, slots: Ints, depth: int) -> Block:
        """An empty block for the requests in `slots`; the distributions of the last block are given up."""
        rows = len(slots)
        self._place[slots] = np.arange(rows)
        floats = np.zeros((4, rows, depth), np.float32)
        return Block(
            tokens=np.empty((rows, depth), np.int64),
            complement=floats[0],
            weighted=floats[1],
            second=floats[2],
            chosen=floats[3],
        )

    def choose(self, block: Block, i: int, temperature: Floats, u: Floats) -> Ints:
        """Draw position `i` of `block` from the logits in its room; returns the tokens, [rows]."""
        logits = self.room(i, len(u))
        weights = (
            self._described(block, i, logits, temperature) if self.detailed else softmax_weights(logits, temperature)
        )
        values = weights.values
        block.complement[:, i] = weights.totals.numpy()[:, 0] - np.float32(1)
        if self._probabilistic:
            put_on_argmax(weights, np.flatnonzero(temperature == 0))
            self._totals[i * self._slots : i * self._slots + len(u)] = weights.totals
            tokens = draw(values, u)
        else:
            tokens = values.numpy().argmax(-1)  # torch's takes nine times as long
        block.tokens[:, i] = tokens
        if self.detailed:
            # At temperature 0 too: the argmax weighs 1 before and after everything is put on it.
            block.chosen[:, i] = values.numpy()[np.arange(len(tokens)), tokens]
        return tokens

    def _described(self, block: Block, i: int, logits: torch.Tensor, temperature: Floats) -> Weights:
        """`softmax_weights` to the last bit, and what entropy and margin are made of: before a temperature of 0 puts
        everything on the argmax. What costs is passes over memory, so there are few."""
        plain = scaled(logits, temperature).numpy()
        rows, best = np.arange(len(plain)), plain.argmax(-1)
        largest = plain[rows, best]
        plain[rows, best] = -np.inf
        block.second[:, i] = plain.max(-1) - largest
        plain[rows, best] = largest
        shifted = torch.sub(logits, torch.from_numpy(largest)[:, None], out=self._spare(len(rows)))
        values = exponentials(shifted, out=logits)
        block.weighted[:, i] = np.matmul(values.numpy()[:, None], shifted.numpy()[:, :, None])[:, 0, 0]
        return Weights(values=values, totals=values.sum(-1, keepdim=True))

    def _spare(self, rows: int) -> torch.Tensor:
        """Memory for logits beside their weights. Taken once: fresh pages cost more than what is computed on them."""
        if len(self._shifted) < rows:
            self._shifted = torch.empty(self._slots, self._shifted.shape[1])
        return self._shifted[:rows]
