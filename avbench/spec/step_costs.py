"""The cost table that an emulated sweep names."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from avbench.errors import UsageError
from avbench.spec.paths import reference_path

if TYPE_CHECKING:
    from avbench.adaptive.cost_file import CostFile, DraftKind


def draft_kind(method: str) -> DraftKind:
    """How a method pays for its drafts: once for each block, or once for each token."""
    return "block" if method == "dspark" else "pass"


def resolve_costs(ref: str, base: Path) -> Path:
    """The table's file, or a server's folder with a trace; a relative path starts at `base`, the sweep file's folder.

    Raises UsageError if there is nothing.
    """
    path = reference_path(ref, base)
    if not path.exists():
        raise UsageError(
            f"cost table `{ref}`: there is no file {path}",
            hint="give a cost table (`sweeps/costs/` has examples) or the trace of an engine; paths start at the sweep "
            "file's folder.",
        )
    return path


def read_costs(ref: str, base: Path) -> CostFile:
    """The table. Raises UsageError for a file that is missing or is no valid cost table."""
    from avbench.adaptive.cost_file import read_cost_table  # numpy: only a sweep with a table needs it

    return read_cost_table(resolve_costs(ref, base))


def costs_fingerprint(table: CostFile) -> str:
    """sha256 over the costs themselves: neither their name nor their place alters a number."""
    facts = [table.verify, dict(table.draft), table.graph_limit, table.capture_tokens, table.capture_requests]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, allow_nan=False).encode()).hexdigest()
