"""Replays of recorded engine steps: what ranking, cost tables and step loop make of given arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.budget import admit, spread_evenly
from avbench.adaptive.costs import CostTables, Curve, staircase
from avbench.adaptive.recording import Array, Recording
from avbench.adaptive.verification import AdaptiveVerification


def replay_budget(recording: Recording) -> dict[str, Array]:
    """Choose which drafts to verify.

    In: conf [R,K], capacities [R] drafts scheduled, draft_budget.
    Out: admitted [R].
    """
    confidences, scheduled = recording.array("conf", "RK"), recording.integers("capacities", "R")
    _check_confidences(recording, confidences)
    _check_scheduled(recording, "capacities", scheduled)
    budget = recording.integer("draft_budget", at_least=0)
    return {"admitted": admit(confidences.astype(np.float32), scheduled, budget).astype(np.int32)}


def replay_cost(recording: Recording) -> dict[str, Array]:
    """Build cost tables from curves.

    In: draft_curve [n,2], verify_curve [m,2] (size, cost), max_num_reqs, max_batch_tokens, cudagraph_limit (0: none).
    Out: draft_table [max_num_reqs + 1], verify_table [max_batch_tokens + 1].
    """
    tables = _tables(recording)
    return {"draft_table": tables.draft, "verify_table": tables.verify}


def _tables(recording: Recording) -> CostTables:
    return staircase(
        draft_curve=_curve(recording, "draft_curve", "n2"),
        verify_curve=_curve(recording, "verify_curve", "m2"),
        max_requests=recording.integer("max_num_reqs", at_least=0),
        max_tokens=recording.integer("max_batch_tokens", at_least=0),
        graph_limit=recording.integer("cudagraph_limit", 0, at_least=0),
    )


def _curve(recording: Recording, key: str, dimensions: str) -> Curve:
    curve = recording.array(key, dimensions)
    if not len(curve) or not np.isfinite(curve).all():
        raise recording.refuse(f"`{key}` must hold at least one (size, cost) point, and finite ones")
    if np.any(np.diff(curve[:, 0]) <= 0):
        recording.doubt(f"the sizes of `{key}` do not rise; vLLM never measures such a curve, its table means nothing")
    return [(int(size), float(cost)) for size, cost in curve]


def replay_manager(recording: Recording) -> dict[str, Array]:
    """Run the whole step loop.

    In: conf [T,R,K], the confidences step t produced; drafts [T,R] scheduled; nondraft [T,R] other tokens (-1: not in
      the batch); the `cost` inputs; new [T,R], who joins before the step (default: a slot's first step in the batch);
      sampling [T,R] (default all; false for a prefill chunk that does not end its prompt); max_total_logits.
    Out: num_tokens [T], budget [T] (-1: no drafts), admitted [T,R], compacted [T,R] (host-side even split; -1: not in
      the batch or no drafts), stale [T,R,K], the confidences the budget reads (NaN: not in the batch).
    """
    confidences = recording.array("conf", "TRK").astype(np.float32)
    drafts, others = recording.integers("drafts", "TR"), recording.integers("nondraft", "TR")
    in_batch = others >= 0
    _check_scheduled(recording, "drafts", drafts[in_batch])
    _check_confidences(recording, np.nan_to_num(confidences[in_batch]))  # NaN is refused where it would be used
    first = in_batch & (np.cumsum(in_batch, axis=0) == 1)
    joins = recording.mask("new", True) if "new" in recording else first
    sampling = recording.mask("sampling", True)
    steps, requests, positions = confidences.shape
    verification = AdaptiveVerification(
        costs=_tables(recording),
        max_requests=requests,
        positions=positions,
        max_total_logits=recording.integer("max_total_logits", 2**30, at_least=0),
    )
    out: dict[str, NDArray[np.int64]] = {name: np.full(drafts.shape, -1) for name in ("admitted", "compacted")}
    out |= {"num_tokens": np.zeros(steps, dtype=np.int64), "budget": np.full(steps, -1)}
    stale = np.full(confidences.shape, np.nan, dtype=np.float32)
    for t in range(steps):
        for slot in np.flatnonzero(joins[t]).tolist():
            verification.add_request(slot)
        slots = np.flatnonzero(in_batch[t])
        scheduled, other = drafts[t, slots], others[t, slots]
        stale[t, slots] = verification.stale_confidences[slots]
        out["num_tokens"][t] = other.sum()
        if scheduled.any():
            used = np.arange(positions) < scheduled[:, None]
            if np.isnan([verification.stale_confidences[slots][used], verification.confidences[slots][used]]).any():
                raise recording.refuse(f"step {t} needs confidences that `conf` gives as NaN")
            budget = verification.budget(
                slots,
                scheduled,
                other_tokens=int(other.sum()),
                sampling_requests=int(np.count_nonzero(sampling[t, slots])),
            )
            out["budget"][t] = budget
            out["num_tokens"][t] += budget
            out["admitted"][t, slots] = verification.admit(slots, scheduled, budget)
            out["compacted"][t, slots] = other + spread_evenly(scheduled, budget)
        verification.record(slots, confidences[t, slots])
    return {**out, "stale": stale}


def _check_confidences(recording: Recording, confidences: Array) -> None:
    if not np.all((confidences >= 0) & (confidences <= 1)):
        raise recording.refuse("`conf` must hold probabilities from 0 to 1 for every request in the batch")


def _check_scheduled(recording: Recording, key: str, scheduled: Array) -> None:
    positions = recording.size("K")
    if np.any((scheduled < 0) | (scheduled > positions)):
        raise recording.refuse(f"`{key}` must lie between 0 and the {positions} draft positions of `conf`")
