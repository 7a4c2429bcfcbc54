"""One way to speculate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ArmKind = Literal["none", "fixed", "adaptive"]
ConfidenceSource = Literal["estimator", "head"]
Depth = Literal["nested"]
# Ties keep the arm that is simpler to run; nested depth comes behind all of them.
SIMPLICITY: tuple[ArmKind, ...] = ("none", "fixed", "adaptive")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """`none`, `fixed(k)` or `adaptive(k, source, depth)`.

    `k` is the number of drafted tokens (0 for `none`). `refit_interval` is the number of engine steps between two
    refits of the online estimator; None keeps the engine's default (100, as in vLLM). `depth` None is the published
    rule, which always drafts `k`; `nested` chooses the draft depth, at most `k`, together with the budget: an
    extension of avbench.
    """

    kind: ArmKind
    k: int = 0
    source: ConfidenceSource | None = None
    refit_interval: int | None = None
    depth: Depth | None = None

    @property
    def id(self) -> str:
        """Stable, fit for a folder's name: `none`, `fixed-3`, `adaptive-7`, `adaptive-7-head-nested`,
        `adaptive-7-refit25`."""
        parts: list[str] = [self.kind] if self.kind == "none" else [self.kind, str(self.k)]
        parts += self._options
        if self.refit_interval is not None:
            parts.append(f"refit{self.refit_interval}")
        return "-".join(parts)

    @property
    def label(self) -> str:
        """For tables and plots: `none`, `K=3`, `AV 7`, `AV 7 head`, `AV 7 nested`."""
        if self.kind == "none":
            return "none"
        if self.kind == "fixed":
            return f"K={self.k}"
        return " ".join(["AV", str(self.k), *self._options])

    @property
    def simplicity(self) -> tuple[int, int]:
        """Sorts simpler arms first."""
        return SIMPLICITY.index(self.kind) + (self.depth == "nested"), self.k

    @property
    def learns(self) -> bool:
        """What it saw at earlier loads decides what it does: an estimator fits, nested depth corrects its costs. A
        confidence head knows only what it was trained for."""
        return self.kind == "adaptive" and (self.source != "head" or self.depth == "nested")

    @property
    def _options(self) -> list[str]:
        return [*(["head"] if self.source == "head" else []), *([self.depth] if self.depth else [])]
