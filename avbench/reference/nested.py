"""Nested depth in the engine, an extension of avbench: drafting stops where it does not pay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from avbench.adaptive.confidence import ConfidenceSource
from avbench.adaptive.depth import Choice, DepthCosts
from avbench.adaptive.learned_costs import LearnedCosts
from avbench.adaptive.nested import NestedDepth
from avbench.adaptive.verification import AdaptiveVerification
from avbench.reference.costs import thread_seconds
from avbench.reference.drafter import DraftBlock
from avbench.reference.ragged import Ints
from avbench.reference.speculation import Adaptive, score
from avbench.reference.trace import Trace


class NestedAdaptive(Adaptive):
    """Adaptive verification that also decides how deep to draft."""

    def __init__(
        self,
        source: ConfidenceSource,
        verification: AdaptiveVerification,
        trace: Trace,
        *,
        costs: DepthCosts,
        observe: bool = False,
    ) -> None:
        """`costs` that are `LearnedCosts` are corrected by this thread's own step times, others are taken as exact."""
        super().__init__(source, verification, trace, observe=observe)
        slots, positions = verification.confidences.shape
        self._stopwatch = Stopwatch(costs) if isinstance(costs, LearnedCosts) else None
        self._rule = NestedDepth(
            costs=costs,
            max_requests=slots,
            positions=positions,
            max_total_logits=verification.max_total_logits,
        )
        self._choice = Choice(depth=0, budget=0)

    def depth(self, slots: Ints) -> int:
        """How many tokens to draft for each of `slots`; while observing all K."""
        requests = len(slots)
        if self._stopwatch:
            self._stopwatch.verified()
        if self._rule.due(requests):
            if self._stopwatch:
                self._stopwatch.teach()
            self._rule.choose(requests)
        self._choice = self._rule.choice(requests)
        depth = super().depth(slots) if self._observe else self._choice.depth
        if self._stopwatch:
            self._stopwatch.drafting(depth)
        return depth

    def admit(self, slots: Ints, scheduled: Ints, plain_tokens: Ints) -> Ints:
        """How many of each row's scheduled drafts are worth verifying, [rows]: the budget was chosen with the depth."""
        within = np.minimum(scheduled, self._choice.depth)
        admitted = self._verification.admit(slots, within, self._choice.budget)
        if self._stopwatch:
            self._stopwatch.begin(plain_tokens, self.verified(slots, scheduled, admitted))
        return admitted

    def observe(self, step: int, slots: Ints, accepted: Ints, verified: Ints) -> bool:
        """Grade the last predictions with the target's verdicts; once per engine step."""
        refitted = super().observe(step, slots, accepted, verified)
        self._rule.verdict(slots, accepted, verified, refitted=refitted)
        return refitted

    def predict(self, slots: Ints, block: DraftBlock) -> None:
        """Score new drafts; positions that were not drafted have no confidence, and nobody asks for it."""
        depth = block.tokens.shape[1]
        scores = np.zeros((len(slots), self._verification.confidences.shape[1]), np.float32)
        scores[:, :depth] = score(self._source, block)
        confidences = self._source.predict(scores, slots)
        self._verification.record(slots, self._rule.record(slots, confidences, depth))
        if self._stopwatch:
            self._stopwatch.drafted(len(slots))

    def skip(self) -> None:
        """Nothing was drafted in this step."""
        super().skip()
        if self._stopwatch:
            self._stopwatch.pause()


@dataclass(kw_only=True)
class _Times:
    """Of the steps since the last choice."""

    requests: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)


class Stopwatch:
    """Times both halves of each step, and teaches them to the costs when it is time for the next choice."""

    def __init__(self, costs: LearnedCosts, now: Callable[[], float] = thread_seconds) -> None:
        self._costs, self._now = costs, now
        self._ended: float | None = None  # when the last step was over
        self._halfway = self._began = 0.0
        self._decoding = self._drafts = self._prompt_tokens = 0
        self._depth, self._catches_up = 0, True
        self._verifying, self._drafting = _Times(), _Times()

    def begin(self, plain_tokens: Ints, verified: Ints) -> None:
        """A step of these rows, `plain_tokens` and `verified` drafts each [rows], is about to run."""
        prompts = plain_tokens > 1
        self._prompt_tokens = int(plain_tokens[prompts].sum())
        self._decoding = len(plain_tokens) - int(prompts.sum())
        self._drafts = int(verified.sum())

    def verified(self) -> None:
        """All but drafting is done."""
        self._halfway = self._now()
        if self._ended is not None and self._decoding:
            times = self._verifying
            times.requests.append(self._decoding)
            times.drafts.append(self._drafts)
            times.prompt_tokens.append(self._prompt_tokens)
            times.milliseconds.append(1000 * (self._halfway - self._ended))

    def teach(self) -> None:
        """All steps since the last call had drafts of one depth."""
        seen, drafted = self._verifying, self._drafting
        if seen.requests:
            self._costs.learn_verify(
                depth=self._depth,
                requests=seen.requests,
                drafts=seen.drafts,
                prompt_tokens=seen.prompt_tokens,
                costs=seen.milliseconds,
            )
        if drafted.requests:
            self._costs.learn_draft(
                depth=self._depth,
                requests=drafted.requests,
                prompt_tokens=drafted.prompt_tokens,
                costs=drafted.milliseconds,
            )
        self._verifying, self._drafting = _Times(), _Times()

    def drafting(self, depth: int) -> None:
        """The choice is made: the rest of the step drafts `depth` tokens."""
        self._began = self._now()
        self._catches_up = self._depth == 0
        self._depth = depth

    def drafted(self, requests: int) -> None:
        """The step is over; `requests` were drafted for."""
        self._ended = self._now()
        if self._depth and not self._catches_up:
            times = self._drafting
            times.requests.append(requests)
            times.prompt_tokens.append(self._prompt_tokens)
            times.milliseconds.append(1000 * (self._ended - self._began))

    def pause(self) -> None:
        """No request goes on."""
        self._ended = None
