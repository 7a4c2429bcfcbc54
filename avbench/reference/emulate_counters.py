"""Counts of one emulated engine, the ones a server shows under `/metrics`."""

from __future__ import annotations

from dataclasses import dataclass, field

from avbench.reference.messages import StepOutput


@dataclass(kw_only=True)
class Counters:
    """Sums since the engine's start; `drafting` is false without speculation, where nobody counts drafts."""

    drafting: bool = False
    drafts: int = 0
    draft_tokens: int = 0
    verified: int = 0
    accepted: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    generation_tokens: int = 0

    def add(self, output: StepOutput) -> None:
        """Count one engine step."""
        self.generation_tokens += sum(len(request.tokens) for request in output.requests)
        if output.spec is None:
            return
        self.drafting = True
        self.drafts += output.spec.drafts
        self.draft_tokens += output.spec.draft_tokens
        self.verified += output.spec.verified
        self.accepted += output.spec.accepted
        more = output.spec.accepted_per_position
        so_far = self.accepted_per_position or [0] * len(more)
        self.accepted_per_position = [a + b for a, b in zip(so_far, more, strict=True)]

    def copy(self) -> Counters:
        """As they are now."""
        return Counters(**{**vars(self), "accepted_per_position": list(self.accepted_per_position)})

    def since(self, before: Counters) -> dict[str, object]:
        """What was counted after `before` was copied. The engine never preempts."""
        positions = before.accepted_per_position or [0] * len(self.accepted_per_position)
        return {
            "drafts": self.drafts - before.drafts,
            "draft_tokens": self.draft_tokens - before.draft_tokens,
            "accepted": self.accepted - before.accepted,
            "accepted_per_position": [a - b for a, b in zip(self.accepted_per_position, positions, strict=True)],
            "verified": self.verified - before.verified if self.drafting else None,
            "generation_tokens": self.generation_tokens - before.generation_tokens,
            "preemptions": 0,
        }
