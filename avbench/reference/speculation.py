"""Drafting, and deciding which drafts the target sees."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.confidence import ConfidenceSource
from avbench.adaptive.features import feature_of_complement
from avbench.adaptive.verification import AdaptiveVerification
from avbench.reference.drafter import SequentialDrafter
from avbench.reference.ragged import Ints
from avbench.reference.sampling import Drafts, Floats
from avbench.reference.trace import Trace


class Adaptive:
    """Adaptive verification of one engine: the confidence source, the budget, and their trace."""

    def __init__(self, source: ConfidenceSource, verification: AdaptiveVerification, trace: Trace) -> None:
        self._source, self._verification, self._trace = source, verification, trace

    def enter(self, slot: int) -> None:
        """A new request takes `slot`."""
        self._verification.add_request(slot)

    def admit(self, slots: Ints, scheduled: Ints, plain_tokens: Ints) -> Ints:
        """How many of each row's scheduled drafts are verified, [rows].

        The budget is sized from the previous step's confidences and split by the current ones: only that order is
        lossless for every cost table (`avbench.adaptive.budget`).
        """
        if not scheduled.any():
            return scheduled
        budget = self._verification.budget(
            slots, scheduled, other_tokens=int(plain_tokens.sum()), sampling_requests=len(slots)
        )
        return self._verification.admit(slots, scheduled, budget)

    def observe(self, step: int, slots: Ints, accepted: Ints, admitted: Ints) -> None:
        """Grade the last predictions with the target's verdicts; once per engine step."""
        refit = self._source.step(slots, accepted + 1, admitted - accepted)
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

    def predict(self, slots: Ints, complement: Floats) -> None:
        """Score new drafts, [rows, K]."""
        confidences = self._source.predict(feature_of_complement(complement), slots)
        self._verification.record(slots, confidences)

    def skip(self) -> None:
        """Nothing was drafted in this step."""
        nothing = np.zeros(0, np.intp)
        self._verification.record(nothing, np.zeros((0, self._verification.confidences.shape[1]), np.float32))


class Speculator(Protocol):
    """What the engine step asks of speculation."""

    k: int
    tokens: Ints  # [slots, k] drafts that are out

    def enter(self, slot: int) -> None:
        """A new request takes `slot`."""
        ...

    def admit(self, slots: Ints, scheduled: Ints, plain_tokens: Ints) -> Ints:
        """How many of each row's scheduled drafts are verified, [rows]; `plain_tokens` [rows] are not drafts."""
        ...

    def drafts(self, slots: Ints, admitted: Ints) -> Drafts:
        """What is to be verified."""
        ...

    def observe(self, step: int, slots: Ints, accepted: Ints, admitted: Ints) -> None:
        """Learn what the target decided."""
        ...

    def propose(self, *, known: list[NDArray[np.int64]], slots: Ints, temperature: Floats, u: Floats) -> None:
        """Draft k tokens for each row."""
        ...


class PlainDecoding:
    """No speculation: nothing is drafted, so nothing is verified."""

    def __init__(self, *, slots: int) -> None:
        self.k = 0
        self.tokens = np.zeros((slots, 0), np.int64)

    def enter(self, slot: int) -> None:
        """Nothing to forget."""

    def admit(self, slots: Ints, scheduled: Ints, plain_tokens: Ints) -> Ints:
        """Nothing is scheduled."""
        return scheduled

    def drafts(self, slots: Ints, admitted: Ints) -> Drafts:
        """None for any row."""
        return Drafts(tokens=self.tokens[slots], admitted=admitted, q=None, q_rows=self.tokens[slots])

    def observe(self, step: int, slots: Ints, accepted: Ints, admitted: Ints) -> None:
        """Nothing to learn."""

    def propose(self, *, known: list[NDArray[np.int64]], slots: Ints, temperature: Floats, u: Floats) -> None:
        """Nothing to draft."""


class Speculation:
    """A drafter and, if adaptive, what trims its drafts; without it all drafts are verified."""

    def __init__(self, drafter: SequentialDrafter, adaptive: Adaptive | None, *, slots: int) -> None:
        self.k = drafter.k
        self.tokens = np.zeros((slots, drafter.k), np.int64)  # drafts that are out, by slot
        self._drafter, self._adaptive = drafter, adaptive

    def enter(self, slot: int) -> None:
        """A new request takes `slot`."""
        self._drafter.forget(slot)
        if self._adaptive:
            self._adaptive.enter(slot)

    def admit(self, slots: Ints, scheduled: Ints, plain_tokens: Ints) -> Ints:
        """How many of each row's scheduled drafts are verified, [rows]; `plain_tokens` [rows] are not drafts."""
        return self._adaptive.admit(slots, scheduled, plain_tokens) if self._adaptive else scheduled

    def drafts(self, slots: Ints, admitted: Ints) -> Drafts:
        """What is to be verified."""
        return Drafts(
            tokens=self.tokens[slots],
            admitted=admitted,
            q=self._drafter.distributions,
            q_rows=self._drafter.rows(slots),
        )

    def observe(self, step: int, slots: Ints, accepted: Ints, admitted: Ints) -> None:
        """Tell drafter and estimator what the target decided."""
        self._drafter.accept(slots, accepted)
        if self._adaptive:
            self._adaptive.observe(step, slots, accepted, admitted)

    def propose(self, *, known: list[NDArray[np.int64]], slots: Ints, temperature: Floats, u: Floats) -> None:
        """Draft K tokens for each row."""
        if len(slots) == 0:
            if self._adaptive:
                self._adaptive.skip()
            return
        block = self._drafter.draft(known, slots, temperature, u)
        self.tokens[slots] = block.tokens
        if self._adaptive:
            self._adaptive.predict(slots, block.complement)
