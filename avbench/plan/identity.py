"""What makes two cells the same measurement: the hash under which a result is found again.

In: everything that changes the numbers; what later versions added only where it differs from its default, so that
records keep their identities. Out: everything that changes by itself or only in place (port, paths, trace
folder, cache folders, raw argv, names of pair and sweep, timeouts, how many passes there are in all). Engine version
and hardware are facts that are checked against the manifest when a server starts, not part of the hash.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from avbench.plan.cells import Cell
from avbench.spec.arm import Arm
from avbench.spec.sweep import SweepSpec, Workload

# Raise it when the protocol of a cell changes so that old and new figures must not be mixed.
PROTOCOL_VERSION = 1
# Variables that steer places, logs and access, not arithmetic. What is not listed here counts.
_HARMLESS_ENV = re.compile(
    r"(?i)^(?:home|tmpdir|path|user|lang|term|no_color|xdg_.*|hf_home|.*_proxy|.*cache.*|.*log(?:_.*|ging.*|level)?"
    r"|.*(?:token|key|secret|password).*|avbench_trace_dir)$"
)


@dataclass(frozen=True, kw_only=True)
class Revisions:
    """Content hashes of what the sweep file only names."""

    target: str
    draft: str | None
    prompts: Mapping[str, str]  # by workload name
    costs: str | None = None  # of the emulated clock


def identified_cell(
    spec: SweepSpec,
    revisions: Revisions,
    *,
    arm: Arm,
    workload: Workload,
    concurrency: int,
    pass_number: int,
    loads_before: tuple[str, ...],
) -> Cell:
    """The cell with its identity: sha256 over its normalised facts, hexadecimal."""
    facts = {
        "protocol": {"version": PROTOCOL_VERSION, "seed": spec.seed, **_cell(spec)},
        "engine": _engine(spec, revisions),
        "pair": _pair(spec, revisions, arm),
        "arm": _arm(arm),
        "workload": _workload(workload, revisions),
        "concurrency": concurrency,
        "pass": pass_number,
        # Only an arm that learns carries something from one load into the next.
        "loads_before": list(loads_before) if arm.learns else None,
        **_watched(spec, arm),
    }
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return Cell(
        arm=arm,
        workload=workload,
        concurrency=concurrency,
        pass_number=pass_number,
        loads_before=loads_before,
        identity=hashlib.sha256(text.encode()).hexdigest(),
    )


def _cell(spec: SweepSpec) -> dict[str, object]:
    cell = spec.cell
    return {"seconds": cell.seconds, "min_requests": cell.min_requests, "warmup_seconds": cell.warmup_seconds}


def _engine(spec: SweepSpec, revisions: Revisions) -> dict[str, object]:
    env = {name: value for name, value in spec.engine.env.items() if not _HARMLESS_ENV.match(name)}
    clock = {"clock": spec.engine.clock, "costs": revisions.costs} if spec.emulated else {}
    return {"kind": spec.engine.kind, "args": spec.engine_args, "env": env, **clock}


def _watched(spec: SweepSpec, arm: Arm) -> dict[str, object]:
    """Labels take time, `observe` trims nothing: plain decoding has neither."""
    found = {"labels": spec.labels, "observe": spec.observe}
    return {name: value for name, value in found.items() if value and arm.kind != "none"}


def _pair(spec: SweepSpec, revisions: Revisions, arm: Arm) -> dict[str, object]:
    """Plain decoding does not touch the draft: another draft leaves its results valid."""
    if arm.kind == "none":
        return {"target": revisions.target}
    pair = spec.pair
    return {
        "target": revisions.target,
        "draft": revisions.draft,
        "method": pair.method,
        "draft_sampling": pair.draft_sampling,
    }


def _arm(arm: Arm) -> dict[str, object]:
    depth = {"depth": arm.depth} if arm.depth is not None else {}
    return {"kind": arm.kind, "k": arm.k, "source": arm.source, "refit_interval": arm.refit_interval, **depth}


def _workload(workload: Workload, revisions: Revisions) -> dict[str, object]:
    return {
        "name": workload.name,
        "prompts": revisions.prompts[workload.name],
        "max_tokens": workload.max_tokens,
        "temperature": workload.sampling.temperature,
        "top_p": workload.sampling.top_p,
        "chat": workload.chat,
        "ignore_eos": workload.ignore_eos,
        "samples_per_prompt": workload.samples_per_prompt,
    }
