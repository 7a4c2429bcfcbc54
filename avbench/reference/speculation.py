"""Drafting, and deciding which drafts the target sees."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from avbench.adaptive.confidence import ConfidenceSource, HeadConfidence
from avbench.adaptive.features import Float32, feature_of_complement
from avbench.adaptive.verification import AdaptiveVerification
from avbench.reference.drafter import DraftBlock, Drafter, DraftJob
from avbench.reference.labels import Labels
from avbench.reference.ragged import Ints
from avbench.reference.sampling import Drafts, Floats
from avbench.reference.trace import Trace


class Adaptive:
    """Adaptive verification of one engine: the confidence source, the budget, and their trace."""

    def __init__(
        self, source: ConfidenceSource, verification: AdaptiveVerification, trace: Trace, *, observe: bool = False
    ) -> None:
        """`observe`: decide what to trim, and trim nothing."""
        self._source, self._verification, self._trace = source, verification, trace
        self._observe = observe

    @property
    def confidences(self) -> Float32:
        """Of the drafts that are out, [slots, K]."""
        return self._verification.confidences

    def enter(self, slot: int) -> None:
        """A new request takes `slot`."""
        self._verification.add_request(slot)

    def admit(self, slots: Ints, scheduled: Ints, plain_tokens: Ints) -> Ints:
        """How many of each row's scheduled drafts are worth verifying, [rows].

        The budget is sized from the previous step's confidences and split by the current ones: only that order is
        lossless for every cost table (`avbench.adaptive.budget`).
        """
        if not scheduled.any():
            return scheduled
        budget = self._verification.budget(
            slots, scheduled, other_tokens=int(plain_tokens.sum()), sampling_requests=len(slots)
        )
        return self._verification.admit(slots, scheduled, budget)

    def verified(self, slots: Ints, scheduled: Ints, admitted: Ints) -> Ints:
        """How many are verified, [rows]: the admitted ones; while observing all of them, as far as one step goes."""
        most = self._verification.max_total_logits
        if not self._observe:
            return admitted
        return scheduled if most is None else self._verification.admit(slots, scheduled, max(0, most - len(slots)))

    def depth(self, slots: Ints) -> int:
        """How many tokens to draft for each of `slots`: always K, as in vLLM."""
        return int(self._verification.confidences.shape[1])

    def observe(self, step: int, slots: Ints, accepted: Ints, verified: Ints) -> bool:
        """Grade the last predictions with the target's verdicts; once per engine step. Says whether that refitted the
        source."""
        refit = self._source.step(slots, accepted + 1, verified - accepted)
        if refit is not None:
            self._trace.event(
                "refit",
                step=step,
                refit=refit.number,
                slope=refit.slope,
                intercepts=list(refit.intercepts),
                counts=list(refit.counts),
                log_loss=refit.log_loss,
            )
        return refit is not None

    def predict(self, slots: Ints, block: DraftBlock) -> None:
        """Score new drafts."""
        confidences = self._source.predict(score(self._source, block), slots)
        self._verification.record(slots, confidences)

    def skip(self) -> None:
        """Nothing was drafted in this step."""
        nothing = np.zeros(0, np.intp)
        self._verification.record(nothing, np.zeros((0, self._verification.confidences.shape[1]), np.float32))


def score(source: ConfidenceSource, block: DraftBlock) -> Float32:
    """What the source judges drafts by, [rows, depth]."""
    if isinstance(source, HeadConfidence):
        assert block.head is not None  # checked when the engine was put together
        return block.head
    return feature_of_complement(block.complement)


class Speculator(Protocol):
    """What the engine step asks of speculation."""

    k: int
    tokens: Ints  # [slots, k] drafts that are out
    made: Ints  # [slots] how many that are

    def enter(self, slot: int, *, request: int, temperature: float) -> None:
        """A new request takes `slot`."""
        ...

    def admit(self, slots: Ints, scheduled: Ints, plain_tokens: Ints) -> Ints:
        """How many of each row's scheduled drafts are verified, [rows]; `plain_tokens` [rows] are not drafts."""
        ...

    def drafts(self, slots: Ints, admitted: Ints) -> Drafts:
        """What is to be verified."""
        ...

    def observe(self, step: int, slots: Ints, *, scheduled: Ints, verified: Ints, accepted: Ints) -> None:
        """Learn what the target decided, counts of drafts per row."""
        ...

    def propose(self, *, known: list[Ints], slots: Ints, states: torch.Tensor, temperature: Floats, u: Floats) -> None:
        """Draft for each row; the arguments are those of `DraftJob`."""
        ...

    @property
    def unwritten(self) -> bool:
        """There is something to `flush`."""
        ...

    def flush(self) -> None:
        """Write the labelled drafts that were gathered."""
        ...


class PlainDecoding:
    """No speculation: nothing is drafted, so nothing is verified."""

    def __init__(self, *, slots: int) -> None:
        self.k = 0
        self.tokens = np.zeros((slots, 0), np.int64)
        self.made = np.zeros(slots, np.int64)
        self.unwritten = False

    def enter(self, slot: int, *, request: int, temperature: float) -> None:
        """Nothing to forget."""

    def admit(self, slots: Ints, scheduled: Ints, plain_tokens: Ints) -> Ints:
        """Nothing is scheduled."""
        return scheduled

    def drafts(self, slots: Ints, admitted: Ints) -> Drafts:
        """None for any row."""
        return Drafts(tokens=self.tokens[slots], admitted=admitted, q=None, q_rows=self.tokens[slots])

    def observe(self, step: int, slots: Ints, *, scheduled: Ints, verified: Ints, accepted: Ints) -> None:
        """Nothing to learn."""

    def propose(self, *, known: list[Ints], slots: Ints, states: torch.Tensor, temperature: Floats, u: Floats) -> None:
        """Nothing to draft."""

    def flush(self) -> None:
        """Nothing was gathered."""


class Speculation:
    """A drafter and, if adaptive, what trims its drafts; without it all drafts are verified."""

    def __init__(
        self, drafter: Drafter, adaptive: Adaptive | None, *, slots: int, labels: Labels | None = None
    ) -> None:
        self.k = drafter.k
        self.tokens = np.zeros((slots, drafter.k), np.int64)  # drafts that are out, by slot
        self.made = np.zeros(slots, np.int64)
        self._admitted = np.zeros(slots, np.int64)  # how many of them the budget is for
        self._drafter, self._adaptive, self._labels = drafter, adaptive, labels
        drafter.detailed = labels is not None

    def enter(self, slot: int, *, request: int, temperature: float) -> None:
        """A new request takes `slot`."""
        self._drafter.forget(slot)
        self.made[slot] = 0
        if self._adaptive:
            self._adaptive.enter(slot)
        if self._labels:
            self._labels.enter(slot, request=request, temperature=temperature)

    def admit(self, slots: Ints, scheduled: Ints, plain_tokens: Ints) -> Ints:
        """How many of each row's scheduled drafts are verified, [rows]; `plain_tokens` [rows] are not drafts."""
        admitted = self._adaptive.admit(slots, scheduled, plain_tokens) if self._adaptive else scheduled
        self._admitted[slots] = admitted
        return self._adaptive.verified(slots, scheduled, admitted) if self._adaptive else scheduled

    def drafts(self, slots: Ints, admitted: Ints) -> Drafts:
        """What is to be verified."""
        return Drafts(
            tokens=self.tokens[slots],
            admitted=admitted,
            q=self._drafter.distributions,
            q_rows=self._drafter.rows(slots),
        )

    def observe(self, step: int, slots: Ints, *, scheduled: Ints, verified: Ints, accepted: Ints) -> None:
        """Tell drafter, estimator and labels what the target decided, counts of drafts per row."""
        self._drafter.accept(slots, accepted)
        if self._adaptive:
            self._adaptive.observe(step, slots, accepted, verified)
        if self._labels:
            self._labels.verdict(
                step,
                slots,
                scheduled=scheduled,
                admitted=self._admitted[slots],
                verified=verified,
                accepted=accepted,
                predictions=self._adaptive.confidences if self._adaptive else None,
            )
            if self._labels.ended:
                self._labels, self._drafter.detailed = None, False

    def propose(self, *, known: list[Ints], slots: Ints, states: torch.Tensor, temperature: Floats, u: Floats) -> None:
        """Draft for each row: K tokens, or what adaptive verification thinks worth it."""
        if len(slots) == 0:
            if self._adaptive:
                self._adaptive.skip()
            return
        depth = self._adaptive.depth(slots) if self._adaptive else self.k
        job = DraftJob(known=known, slots=slots, states=states, temperature=temperature, u=u, depth=depth)
        block = self._drafter.draft(job)
        self.made[slots] = job.depth
        self.tokens[slots[:, None], np.arange(job.depth)] = block.tokens
        if self._adaptive:
            self._adaptive.predict(slots, block)
        if self._labels:
            self._labels.drafted(slots, block)

    @property
    def unwritten(self) -> bool:
        """There are labelled drafts in no file yet."""
        return self._labels is not None and self._labels.unwritten

    def flush(self) -> None:
        """Write the labelled drafts that were gathered."""
        if self._labels:
            self._labels.flush()
