"""One way to speculate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ArmKind = Literal["none", "fixed", "adaptive"]
ConfidenceSource = Literal["estimator", "head"]
# Ties keep the arm that is simpler to run.
SIMPLICITY: tuple[ArmKind, ...] = ("none", "fixed", "adaptive")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """`none`, `fixed(k)` or `adaptive(k, source)`.

    `k` is the number of drafted tokens (0 for `none`). `refit_interval` is the number of engine steps between two
    refits of the online estimator; None keeps the engine's default (100, as in vLLM).
    """

    kind: ArmKind
    k: int = 0
    source: ConfidenceSource | None = None
    refit_interval: int | None = None

    @property
    def id(self) -> str:
        """Stable, fit for a folder's name: `none`, `fixed-3`, `adaptive-7`, `adaptive-7-head`, `adaptive-7-refit25`."""
        parts: list[str] = [self.kind] if self.kind == "none" else [self.kind, str(self.k)]
        if self.source == "head":
            parts.append("head")
        if self.refit_interval is not None:
            parts.append(f"refit{self.refit_interval}")
        return "-".join(parts)

    @property
    def label(self) -> str:
        """For tables and plots: `none`, `K=3`, `AV 7`, `AV 7 head`."""
        if self.kind == "none":
            return "none"
        if self.kind == "fixed":
            return f"K={self.k}"
        return f"AV {self.k} head" if self.source == "head" else f"AV {self.k}"

    @property
    def simplicity(self) -> tuple[int, int]:
        """Sorts simpler arms first."""
        return SIMPLICITY.index(self.kind), self.k
