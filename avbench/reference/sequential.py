"""The sequential drafter: K passes of a small model, each on the token before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from avbench.reference.drafter import DraftBlock, DraftJob
from avbench.reference.llama import Llama
from avbench.reference.proposals import Proposals, Sampling
from avbench.reference.ragged import Ints, Ragged
from avbench.reference.sampling import Weights


class SequentialDrafter:
    """A small Llama with a cache of its own."""

    has_head = False
    state_width = 0

    def __init__(
        self, folder: Path, *, k: int, slots: int, length: int, dtype: torch.dtype, sampling: Sampling
    ) -> None:
        self.k = k
        self._model = Llama(folder, slots=slots, length=length + k, dtype=dtype)
        self.vocabulary = self._model.shape.vocabulary
        self.max_position = self._model.shape.max_position
        self._proposals = Proposals(k=k, slots=slots, vocabulary=self.vocabulary, sampling=sampling)
        self._done = np.zeros(slots, np.int64)  # tokens of each slot's request that are in the draft's cache
        self._depth = np.zeros(slots, np.int64)  # drafts that are out

    @property
    def detailed(self) -> bool:
        """Whether blocks carry what labelled drafts record."""
        return self._proposals.detailed

    @detailed.setter
    def detailed(self, wanted: bool) -> None:
        self._proposals.detailed = wanted

    @property
    def distributions(self) -> Weights | None:
        """q of the drafts that are out; None if drafts are argmax."""
        return self._proposals.distributions

    def rows(self, slots: Ints) -> Ints:
        """Rows of `distributions` for each slot, [len(slots), K]."""
        return self._proposals.rows(slots)

    def forget(self, slot: int) -> None:
        """The slot has a new request."""
        self._done[slot] = self._depth[slot] = 0

    def pretend(self, slots: Ints, length: int) -> None:
        """Take the first `length` positions of these slots as read, whatever is in the cache: for timing only."""
        self._done[slots] = length

    def draft(self, job: DraftJob) -> DraftBlock:
        """Read what is new, then one pass for each draft. A depth of 0 reads nothing: the next draft catches up."""
        block = self._proposals.begin(job.slots, job.depth)
        self._depth[job.slots] = job.depth
        if job.depth == 0:
            return block.finished(head=None, detailed=self.detailed)
        lengths = np.array([len(tokens) for tokens in job.known])
        batch = self._unread(job, lengths)
        for i in range(job.depth):
            hidden = self._model.forward(batch)
            last = hidden if len(hidden) == len(lengths) else hidden.index_select(0, batch.last)
            self._proposals.room(i, len(lengths)).copy_(self._model.logits(last))
            tokens = self._proposals.choose(block, i, job.temperature, job.u[:, i])
            batch = Ragged(tokens=tokens, slots=job.slots, starts=lengths + i, counts=np.ones_like(job.slots))
        self._done[job.slots] = lengths  # drafts in the cache become known tokens only when accepted, see `accept`
        return block.finished(head=None, detailed=self.detailed)

    def accept(self, slots: Ints, accepted: Ints) -> None:
        """Accepted drafts are in the cache already, all but the deepest, which was never an input."""
        self._done[slots] += np.minimum(accepted, np.maximum(self._depth[slots] - 1, 0))

    def _unread(self, job: DraftJob, lengths: Ints) -> Ragged:
        starts = self._done[job.slots]
        tokens = [tokens[start:] for tokens, start in zip(job.known, starts, strict=True)]
        return Ragged(tokens=np.concatenate(tokens), slots=job.slots, starts=starts, counts=lengths - starts)
