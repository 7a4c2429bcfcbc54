"""What a step of this engine costs on other hardware, by a cost table."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from avbench.adaptive.cost_file import CostFile, DraftKind
from avbench.adaptive.costs import CostTables
from avbench.adaptive.depth import DepthTables

# One token in each pass, or a block of them in one.
KINDS: dict[str, DraftKind] = {"draft_model": "pass", "dspark": "block"}
Curve = list[tuple[int, float]]


class StepCosts:
    """A cost table for one engine: at most `requests` at a time, `tokens` in a step and `k` drafts for each request."""

    def __init__(self, file: CostFile, method: str | None, *, k: int, requests: int, tokens: int) -> None:
        """`method` None and `k` 0: plain decoding. Raises UsageError for a table that does not reach that far."""
        self.name, self.graph_limit = file.name, file.graph_limit
        self.kind = None if method is None else KINDS[method]
        self._file, self._k, self._requests, self._tokens = file, k, requests, tokens
        self._by_depth: dict[int, CostTables] = {}
        file.check_covers(requests, k=k, kind=self.kind)

    def tables(self, depth: int) -> CostTables:
        """Tables in ms for drafts of `depth` tokens."""
        if depth not in self._by_depth:
            self._by_depth[depth] = self._file.tables(
                kind=self.kind or "block", depth=depth, max_requests=self._requests, max_tokens=self._tokens
            )
        return self._by_depth[depth]

    def verify_seconds(self, tokens: int) -> float:
        """Seconds until the target has seen `tokens`, drafts and prompts included."""
        return float(self._verify.verify[tokens]) / 1000

    def draft_seconds(self, requests: int, depth: int) -> float:
        """Seconds until `depth` tokens are drafted for each of `requests`."""
        return float(self.tables(depth).draft[requests]) / 1000 if requests and depth else 0.0

    @property
    def by_depth(self) -> DepthTables:
        """Tables in ms for drafts of 0..k tokens."""
        draft = [self.tables(depth).draft for depth in range(self._k + 1)]
        return DepthTables(draft=np.array(draft), verify=self._verify.verify)

    @property
    def curves(self) -> tuple[Curve, Curve]:
        """The points behind the tables, ms: drafting K tokens by requests, verification by tokens."""
        captured = self._file.capture_requests or tuple(size for size, _ in self._file.drafting(self.kind or "block"))
        sizes = sorted({min(size, self._requests) for size in (*captured, self._requests)})
        draft = self.tables(self._k).draft
        return [(size, float(draft[size])) for size in sizes], list(self._file.captured_verify)

    @cached_property
    def _verify(self) -> CostTables:
        return self.tables(0)
