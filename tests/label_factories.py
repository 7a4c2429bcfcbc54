"""Labelled drafts whose truth is known: a logistic law, requests that differ, drafts up to the first rejection."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
NULLABLE = ("label", "head", "prediction")
INFO = {
    "schema": 1,
    "engine": "avbench 0.0.0",
    "target": "/models/toy",
    "draft": "/models/toy-draft",
    "method": "draft_model",
    "draft_sampling": "probabilistic",
    "k": 7,
    "source": None,
    "observe": False,
    "refit_interval": 100,
    "head": True,
    "clock": "real",
}


@dataclass(frozen=True, kw_only=True)
class Truth:
    """P(accepted | everything before it was, draft distribution) = sigmoid(slope f + intercept), f = logit(q_max).

    The drawn token says more: it is the most likely one more often where the draft will be accepted.
    """

    slope: float = 0.55
    intercepts: tuple[float, ...] = (0.6, 0.2, -0.1, -0.3, -0.45, -0.55, -0.65)
    mean: float = 1.0  # of f
    spread: float = 2.5
    between_requests: float = 0.8  # standard deviation of the requests' own means of f
    drawn_top: tuple[float, float] = (0.95, 0.55)  # chance that the most likely token is drawn: accepted, rejected
    head_noise: float = 0.8  # the head sees the true log-odds through this much noise
    head_shift: float = 0.0

    @property
    def k(self) -> int:
        return len(self.intercepts)


def sigmoid(x: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-np.asarray(x, dtype=np.float64))))


def make_labels(
    truth: Truth | None = None,
    *,
    steps: int = 400,
    slots: int = 16,
    request_steps: int = 40,
    seed: int = 0,
    first_step: int = 0,
    start: float = 1_700_000_000.0,
    step_seconds: float = 0.01,
    budget: float | None = None,
    trim: bool = False,
    nulls: bool = True,
) -> Columns:
    """Every draft of `slots` requests at once over `steps`; a request lasts `request_steps` steps.

    `budget`: drafts whose true survival is below it are not admitted; `trim`: those get no label either. `nulls`: rows
    without a label are kept.
    """
    truth = truth or Truth()
    rng = np.random.default_rng(seed)
    shape = (steps, slots, truth.k)
    step = np.arange(first_step, first_step + steps)
    # Slot s begins a new request every `request_steps` steps, slots out of phase.
    request = (step[:, None] + 7 * np.arange(slots)) // request_steps * slots + np.arange(slots)
    own_mean = np.random.default_rng(seed + 1).normal(0, truth.between_requests, int(request.max()) + 1)[request]
    f = np.clip(truth.mean + own_mean[:, :, None] + rng.normal(0, truth.spread, shape), -12, 12).astype(np.float32)
    odds = truth.slope * f + np.array(truth.intercepts)
    p = sigmoid(odds)
    accepted = rng.random(shape) < p
    reached = np.cumprod(accepted, axis=-1)[..., :-1].astype(np.bool_)
    reached = np.concatenate([np.ones((steps, slots, 1), dtype=np.bool_), reached], axis=-1)
    admitted = np.ones(shape, dtype=np.bool_) if budget is None else np.cumprod(p, axis=-1) >= budget
    labelled = reached & admitted if trim else reached
    q_max = sigmoid(f)
    top = rng.random(shape) < np.where(accepted, *truth.drawn_top)
    rest = 1 - q_max
    second = np.minimum(q_max, rest) * rng.uniform(0.3, 0.9, shape)
    head = odds + truth.head_shift + rng.normal(0, truth.head_noise, shape)
    columns: Columns = {
        "time": np.broadcast_to(start + step_seconds * (step[:, None, None] - first_step), shape),
        "step": np.broadcast_to(step[:, None, None], shape),
        "request": np.broadcast_to(request[:, :, None], shape),
        "position": np.broadcast_to(np.arange(truth.k), shape),
        "temperature": np.ones(shape),
        "q_max": q_max,
        "logit_q_max": f,
        "entropy": _binary_entropy(q_max) + rest * rng.uniform(0.5, 3.0, shape),
        "margin": q_max - second,
        "q_sampled": np.where(top, q_max, np.maximum(rest * rng.uniform(0.05, 0.9, shape), 1e-6)),
        "head": head,
        "prediction": np.full(shape, np.nan),
        "admitted": admitted,
        "label": accepted,
        "labelled": labelled,
    }
    flat = {name: np.ascontiguousarray(values).reshape(-1) for name, values in columns.items()}
    return flat if nulls else {name: values[flat["labelled"]] for name, values in flat.items()}


def _binary_entropy(q: NDArray[np.float64]) -> NDArray[np.float64]:
    inside = np.clip(q, 1e-12, 1 - 1e-12)
    return np.asarray(-inside * np.log(inside) - (1 - inside) * np.log(1 - inside))


def arrow_table(columns: Mapping[str, NDArray[Any]], info: Mapping[str, Any] | None = INFO) -> pa.Table:
    """As the engine writes it. `labelled` becomes the nulls of `label`; NaN in head and prediction becomes null."""
    arrays: dict[str, pa.Array] = {}
    for name, values in columns.items():
        if name == "labelled":
            continue
        mask = np.isnan(values) if name in ("head", "prediction") else None
        if name == "label":
            mask = ~columns["labelled"] if "labelled" in columns else None
        arrays[name] = pa.array(values.astype(_TYPES[name]), mask=mask)
    table = pa.table(arrays)
    return table if info is None else table.replace_schema_metadata({"avbench.labels": json.dumps(info)})


_TYPES: dict[str, Any] = {
    "time": np.float64,
    "step": np.int64,
    "request": np.int64,
    "position": np.int16,
    "temperature": np.float32,
    "q_max": np.float32,
    "logit_q_max": np.float32,
    "entropy": np.float32,
    "margin": np.float32,
    "q_sampled": np.float32,
    "head": np.float32,
    "prediction": np.float32,
    "admitted": np.bool_,
    "label": np.bool_,
}


def write_labels(path: Path, columns: Mapping[str, NDArray[Any]], info: Mapping[str, Any] | None = INFO) -> Path:
    """One Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(arrow_table(columns, info), path)
    return path


def write_parts(
    folder: Path,
    columns: Mapping[str, NDArray[Any]],
    info: Mapping[str, Any] | None = INFO,
    *,
    rows: int,
    pid: int = 42,
) -> Path:
    """A folder of parts of one process, as the engine writes them."""
    for number, part in enumerate(_split(columns, rows)):
        write_labels(folder / f"part-{pid}-{number:05d}.parquet", part, info)
    return folder


def _split(columns: Mapping[str, NDArray[Any]], rows: int) -> Iterator[Columns]:
    for start in range(0, len(columns["step"]), rows):
        yield {name: values[start : start + rows] for name, values in columns.items()}
