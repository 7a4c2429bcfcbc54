"""What a drafter is asked, what it answers, and what the engine needs to know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from avbench.reference.ragged import Ints
from avbench.reference.sampling import Floats, Weights


@dataclass(frozen=True, kw_only=True)
class DraftJob:
    """Draft `depth` tokens after all `known` tokens of each row."""

    known: list[Ints]  # prompt and output of each row
    slots: Ints  # [rows]
    states: torch.Tensor  # [rows, width] what the target knew when it sampled the last known token: `Llama.states`
    temperature: Floats  # [rows]
    u: Floats  # [rows, k] uniforms
    depth: int  # 0..k


@dataclass(frozen=True, kw_only=True)
class DraftBlock:
    """Drafts for each row and what is known about their distributions; [rows, depth] each."""

    tokens: Ints
    complement: Floats  # sum over z != argmax of exp(l_z - l_max), what logit(q_max) is made of
    head: Floats | None  # logit of the checkpoint's confidence head; None: it has none
    detail: DraftDetail | None  # None: not asked for


@dataclass(frozen=True, kw_only=True)
class DraftDetail:
    """What labelled drafts record beside the feature that is used; [rows, depth] each."""

    entropy: Floats  # nats
    margin: Floats  # largest probability minus the second
    sampled: Floats  # probability of the drafted token


class Drafter(Protocol):
    """Owns the draft model and the distributions of the drafts that are out."""

    k: int
    vocabulary: int
    max_position: int
    has_head: bool
    state_width: int  # of `DraftJob.states`
    detailed: bool  # fill `DraftBlock.detail`

    @property
    def distributions(self) -> Weights | None:
        """q of the drafts that are out; None if drafts are argmax."""
        ...

    def rows(self, slots: Ints) -> Ints:
        """Rows of `distributions` for each slot, [len(slots), k]."""
        ...

    def forget(self, slot: int) -> None:
        """The slot has a new request."""
        ...

    def pretend(self, slots: Ints, length: int) -> None:
        """Take the first `length` positions of these slots as read, whatever is in the cache: for timing only."""
        ...

    def draft(self, job: DraftJob) -> DraftBlock:
        """Draft."""
        ...

    def accept(self, slots: Ints, accepted: Ints) -> None:
        """The target accepted so many of each slot's drafts, [len(slots)]."""
        ...
