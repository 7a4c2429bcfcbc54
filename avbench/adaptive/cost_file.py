"""A table of step costs in a file: what an engine with other hardware would take for a step.

A cost table is JSON (`docs/emulation.md`), or the `costs` event of an engine's trace. Costs are milliseconds. Drafting
is priced by requests, once per pass for a drafter that makes one token at a time and once per block for one that makes
all of them together; verification by tokens, of prompts too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from avbench.adaptive.costs import CostTables, interpolated, staircase
from avbench.errors import UsageError

DraftKind = Literal["block", "pass"]
Points = tuple[tuple[int, float], ...]
DRAFT_NAMES: dict[DraftKind, str] = {
    "block": "`draft_block` (a drafter that makes all tokens in one pass)",
    "pass": "`draft_pass` (a drafter that makes one token in each pass)",
}


@dataclass(frozen=True, kw_only=True)
class CostFile:
    """Costs as they stand in a file. Points are (size, ms) by rising size."""

    path: Path
    name: str
    source: str  # where the numbers are from
    notes: tuple[str, ...] = ()  # assumptions
    verify: Points  # by tokens
    draft: Mapping[DraftKind, Points] = field(default_factory=dict)  # by requests; a kind may be missing
    graph_limit: int = 0  # tokens up to which a batch is padded to the next captured size; 0: nothing is padded
    capture_tokens: tuple[int, ...] = ()  # the captured sizes, up to `graph_limit`
    capture_requests: tuple[int, ...] = ()

    def tables(self, *, kind: DraftKind, depth: int, max_requests: int, max_tokens: int) -> CostTables:
        """Tables in ms for a drafter of `kind` that makes `depth` tokens: a pass is paid `depth` times, a block once.

        With a graph limit the points are first interpolated onto the captured sizes, then padded to the next of them,
        as vLLM does; beyond the limit, and without one, costs are linear between the points. Raises UsageError if the
        file has no drafting costs of `kind`.
        """
        drafting = self.drafting(kind) if depth else ((1, 0.0),)
        times = depth if kind == "pass" else 1
        draft = [(size, cost * times) for size, cost in _onto(self.capture_requests, drafting)]
        if not self.graph_limit:
            return interpolated(
                draft_curve=draft, verify_curve=self.verify, max_requests=max_requests, max_tokens=max_tokens
            )
        return staircase(
            draft_curve=draft,
            verify_curve=self.captured_verify,
            max_requests=max_requests,
            max_tokens=max_tokens,
            graph_limit=self.graph_limit,
        )

    @property
    def captured_verify(self) -> Points:
        """The verification points as the engine would profile them: captured sizes, then what lies beyond the limit."""
        inside = tuple(point for point in self.verify if point[0] <= self.graph_limit)
        beyond = tuple(point for point in self.verify if point[0] > self.graph_limit)
        return (*_onto(self.capture_tokens, inside), *beyond)

    def drafting(self, kind: DraftKind) -> Points:
        """Drafting costs of `kind`. Raises UsageError if the file has none."""
        if kind not in self.draft:
            raise UsageError(
                f"{self.path}: no drafting costs for this drafter: {DRAFT_NAMES[kind]} is missing",
                hint=f"the file has {', '.join(DRAFT_NAMES[other] for other in self.draft) or 'verification only'}; "
                "add the missing costs, or use a table that has them.",
            )
        return self.draft[kind]

    def check_covers(self, requests: int, *, k: int = 0, kind: DraftKind | None = None) -> None:
        """Raises UsageError if `requests` at a time, each with `k` drafts, go beyond the last point.

        `kind` None asks nothing of the drafting costs but that those which are there reach far enough.
        """
        tokens = requests * (k + 1)
        most = self.verify[-1][0]
        if tokens > most:
            what = f"{requests} requests with {k} drafts each" if k else f"{requests} requests"
            raise self._short("verify", f"{what} are {tokens} tokens", most, "tokens")
        for name, points in {kind: self.drafting(kind)}.items() if kind is not None else self.draft.items():
            if requests > points[-1][0]:
                raise self._short(f"draft_{name}", f"the loads go to {requests} requests", points[-1][0], "requests")

    def _short(self, key: str, wanted: str, most: int, unit: str) -> UsageError:
        return UsageError(
            f"{self.path}: the cost table is too small: {wanted}, but `{key}` covers 1 to {most} {unit}",
            hint=f"lower the concurrency or K, or add measured points beyond {most} {unit} to `{key}`.",
        )


def _onto(sizes: tuple[int, ...], points: Points) -> Points:
    """Linear between the points, at `sizes`; without sizes the points themselves."""
    if not sizes:
        return points
    wanted = [size for size in sizes if size < points[-1][0]] + [points[-1][0]]
    known, costs = zip(*points, strict=True)
    return tuple(zip(wanted, np.interp(wanted, known, costs).tolist(), strict=True))


def capture_grid(limit: int) -> tuple[int, ...]:
    """vLLM's captured sizes up to `limit`: 1, 2, 4, by 8 up to 256, by 16 beyond, and the limit itself."""
    sizes = [1, 2, 4, *range(8, 257, 8), *range(272, limit + 1, 16)]
    return (*(size for size in sizes if size < limit), limit)


def read_cost_table(path: Path) -> CostFile:
    """Read a cost table: a JSON file, or the `costs` event of a `trace.jsonl` or of the server folder it is in.

    Raises UsageError that names the file and the key for everything that is wrong with it.
    """
    from avbench.adaptive.cost_reader import read_json_table, read_trace_table

    where = path / "trace.jsonl" if path.is_dir() else path
    try:
        text = where.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{where}: the cost table cannot be read: {reason}", hint="check the path.") from error
    return read_trace_table(where, text) if where.suffix == ".jsonl" else read_json_table(where, text)
