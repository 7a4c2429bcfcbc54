"""Synthetic results folders on disk, written through the real store and in the engine's own trace format."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from avbench.record.manifest import MANIFEST_SCHEMA
from avbench.record.measurement import Measurement, RequestTrace
from avbench.record.store import ResultStore
from tests.factories import ADAPTIVE, make_manifest, make_measurements

TOKENS = 48


def make_request(index: int, *, tokens: int = TOKENS, finish: str = "stop", **changes: Any) -> RequestTrace:
    """One good request with one token a chunk."""
    request = RequestTrace(
        index=index,
        prompt_id=f"prompt-{index % 40:03d}",
        sample=0,
        seed=index,
        phase="measured",
        sent=2.0 + 0.1 * index,
        chunk_times=tuple(2.1 + 0.1 * index + 0.01 * step for step in range(tokens)),
        chunk_tokens=(1,) * tokens,
        prompt_tokens=60,
        output_tokens=tokens,
        finish_reason=finish,
        error=None,
        status=200,
    )
    return dataclasses.replace(request, **changes)


def make_requests(n: int = 60, *, tokens: float = TOKENS, seed: int = 0) -> list[RequestTrace]:
    """Requests whose lengths vary around `tokens`; two thirds are cut by length."""
    rng = np.random.default_rng(seed)
    lengths = np.maximum(2, rng.poisson(tokens, size=n))
    return [
        make_request(index, tokens=int(length), finish="length" if index % 3 else "stop")
        for index, length in enumerate(lengths)
    ]


def make_trace_lines(
    start: float, *, k: int = 7, interval: int = 25, refits: int = 60, seconds: float = 90.0, seen: int = 7
) -> list[dict[str, Any]]:
    """Events of one adaptive server: coefficients that settle, positions beyond `seen` that are never observed."""
    rng = np.random.default_rng(k)
    lines: list[dict[str, Any]] = [
        {"event": "start", "time": start, "version": "0.0.0", "k": k, "refit_interval": interval, "vocabulary": 2048,
         "source": "estimator"},
        {"event": "costs", "time": start + 0.1, "draft": [[1, 1.0], [64, 4.0]], "verify": [[1, 3.0], [512, 60.0]],
         "context": 1024},
    ]  # fmt: skip
    for number in range(1, refits + 1):
        settle = 1 - math.exp(-number / 12)
        intercepts = [-0.2 + (0.3 - 0.15 * position) * settle + rng.normal(0, 0.03) for position in range(k)]
        lines.append(
            {
                "event": "refit",
                "time": start + seconds * number / refits,
                "step": interval * number,
                "refit": number,
                "slope": 0.5 + 0.08 * settle + rng.normal(0, 0.02),
                "intercepts": [value if position < seen else -0.2 for position, value in enumerate(intercepts)],
                "counts": [max(0, 60 - 8 * position) if position < seen else 0 for position in range(k)],
                "log_loss": 0.62 - 0.06 * settle + rng.normal(0, 0.01),
            }
        )
    lines.append(
        {
            "event": "steps",
            "time": start + seconds,
            "step": 0,
            "seconds": [seconds / 100] * 100,
            "requests": [8] * 100,
            "scheduled": [8 * k] * 100,
            "admitted": [20] * 100,
        }
    )
    return lines


def write_server(root: Path, server: str, lines: Iterable[Mapping[str, Any]] | None, argv: Iterable[str] = ()) -> None:
    """`command.json`, and `trace.jsonl` unless `lines` is None."""
    folder = root / "servers" / server
    folder.mkdir(parents=True, exist_ok=True)
    note = {"argv": ["python", "-m", "avbench.reference", *argv], "env": {"OMP_NUM_THREADS": "1"}}
    (folder / "command.json").write_text(json.dumps(note))
    if lines is not None:
        (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_results(
    root: Path,
    cells: Iterable[Measurement],
    manifest: dict[str, Any] | None = None,
    *,
    requests: Mapping[str, list[RequestTrace]] | None = None,
) -> Path:
    """A results folder that `read_results` reads. `requests` by cell id; others get plain ones of equal length."""
    store = ResultStore(root)
    cells = list(cells)
    with store.writing():
        store.write_manifest({"schema": MANIFEST_SCHEMA} | (make_manifest() if manifest is None else manifest))
        for number, cell in enumerate(cells):
            done = cell.status == "done"
            own = (requests or {}).get(cell.cell_id)
            store.write_cell(cell, own if own is not None else make_requests(seed=number) if done else [])
    return root


def write_sweep(root: Path, *, seed: int = 0, **sweep: Any) -> Path:
    """A whole synthetic sweep with servers and traces."""
    cells = make_measurements(seed=seed, **sweep)
    shape = {key: sweep[key] for key in ("arms", "workloads", "concurrencies", "passes") if key in sweep}
    write_results(root, cells, make_manifest(**shape))
    for server in dict.fromkeys(cell.server for cell in cells):
        own = [cell for cell in cells if cell.server == server]
        adaptive = own[0].arm == ADAPTIVE.id
        begin, end = own[0].clock_epoch - 5, own[-1].clock_epoch + 15
        lines = make_trace_lines(begin, seconds=end - begin) if adaptive else None
        config = '{"method":"draft_model","model":"/models/toy-draft","num_speculative_tokens":7}'
        argv = ["--model", "/models/toy"] + (["--speculative-config", config] if own[0].arm != "none" else [])
        write_server(root, server, lines, argv)
    return root
