"""Synthetic records for tests: whole sweeps with known truths, without an engine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from avbench.analysis.results import Results, results_of
from avbench.record.measurement import SCHEMA, CellFailure, Measurement, Percentiles, SpecCounters, Summary
from avbench.spec.arm import Arm
from avbench.spec.sweep import CellProtocol, EngineSpec, Pair, Sampling, Workload

PAIR = Pair(name="toy", target="toy-target", draft="toy-draft", method="draft_model")
NONE = Arm(kind="none")
FIXED_1, FIXED_3, FIXED_7 = (Arm(kind="fixed", k=k) for k in (1, 3, 7))
ADAPTIVE = Arm(kind="adaptive", k=7, source="estimator", refit_interval=25)
ARMS = (NONE, FIXED_1, FIXED_3, FIXED_7, ADAPTIVE)

Truth = Callable[[Arm, str, int], float]  # steady throughput in tok/s


def make_percentiles(median: float, *, n: int = 100, mean: float | None = None) -> Percentiles:
    """A plausible spread around a median."""
    return Percentiles(
        mean=median * 1.02 if mean is None else mean,
        p5=median * 0.8,
        p50=median,
        p95=median * 1.3,
        p99=median * 1.5,
        n=n,
    )


def make_counters(k: int, *, drafts: int = 1000, verified: int | None = None, rate: float = 0.7) -> SpecCounters:
    """Accepted counts that fall from position to position as `rate` ** position."""
    accepted = tuple(round(drafts * rate**position) for position in range(1, k + 1))
    return SpecCounters(
        drafts=drafts if k else 0,
        draft_tokens=drafts * k,
        accepted=sum(accepted),
        accepted_per_position=accepted,
        verified=drafts * k if verified is None and k else verified,
        generation_tokens=drafts + sum(accepted),
        preemptions=0,
    )


def make_summary(
    throughput: float, concurrency: int, *, seconds: float = 10.0, counters: SpecCounters | None = None, **changes: Any
) -> Summary:
    """A summary whose latencies follow from the throughput by Little's law, with 48 output tokens a request."""
    tokens = 48
    speed = throughput / concurrency * 1.1
    tpot, ttft = 1 / speed, 2 / speed
    e2el = concurrency * tokens / throughput
    drafts = counters.drafts if counters else 0
    requests = max(1, round(throughput * seconds / tokens))
    summary = Summary(
        requests=requests,
        failed=0,
        too_long=0,
        output_tokens=requests * tokens,
        prompt_tokens=requests * 60,
        window_seconds=seconds,
        steady_throughput=throughput,
        output_throughput=throughput * 0.97,
        interactivity=make_percentiles(speed),
        ttft=make_percentiles(ttft),
        tpot=make_percentiles(tpot),
        itl=make_percentiles(tpot * 2),
        e2el=make_percentiles(e2el, mean=e2el),
        acceptance_length=1 + counters.accepted / drafts if counters and drafts else None,
        acceptance_rate=counters.accepted / counters.verified if counters and counters.verified else None,
        acceptance_per_position=tuple(a / drafts for a in counters.accepted_per_position)
        if counters and drafts
        else None,
        verified_per_request_step=counters.verified / drafts
        if counters and drafts and counters.verified is not None
        else None,
        tokens_per_request_step=1 + counters.accepted / drafts if counters and drafts else 1.0,
        finish_reasons={"length": requests - requests // 3, "stop": requests // 3},
    )
    return dataclasses.replace(summary, **changes)


def make_measurement(
    arm: Arm,
    workload: str = "code",
    concurrency: int = 8,
    pass_number: int = 1,
    *,
    throughput: float = 1000.0,
    counters: SpecCounters | None = None,
    started: float = 1_700_000_000.0,
    changes: dict[str, Any] | None = None,
    **summary_changes: Any,
) -> Measurement:
    """One done cell. `changes` replace fields of the record, other keywords those of its summary."""
    if counters is None and arm.k:
        counters = make_counters(arm.k, verified=3100 if arm.kind == "adaptive" else None)
    cell = Measurement(
        schema=SCHEMA,
        cell_id=f"{arm.id}__{workload}__c{concurrency}__p{pass_number}",
        identity=f"{arm.id}-{workload}-{concurrency}-{pass_number}",
        arm=arm.id,
        workload=workload,
        concurrency=concurrency,
        pass_number=pass_number,
        status="done",
        failure=None,
        started_at="2026-01-01T00:00:00+00:00",
        clock_epoch=started,
        window=(2.0, 12.0),
        warmup_requests=concurrency,
        server=f"{arm.id}-p{pass_number}",
        server_steps=None,
        estimator_state="carried" if arm.kind == "adaptive" else None,
        loads_before=(),
        counters=counters,
        summary=make_summary(throughput, concurrency, counters=counters, **summary_changes),
    )
    return dataclasses.replace(cell, **(changes or {}))


def failed_cell(cell: Measurement, kind: str = "engine_died", reason: str = "exit status 1") -> Measurement:
    """The same cell as it is recorded when it failed."""
    failure = CellFailure(kind=kind, reason=reason)
    return dataclasses.replace(cell, status="failed", failure=failure, summary=None, counters=None, window=None)


def plain_truth(arm: Arm, _: str, concurrency: int) -> float:
    """Deep drafts win at low load and lose at high load; adaptive verification is near the best everywhere."""
    base = 300 * math.pow(concurrency, 0.55)
    gain = {"none": 1.0, "fixed": 1 + 0.12 * arm.k - 0.035 * arm.k * math.log2(concurrency), "adaptive": 1.25}
    return base * max(gain[arm.kind], 0.4)


def make_measurements(
    *,
    arms: Sequence[Arm] = ARMS,
    workloads: Sequence[str] = ("code", "prose"),
    concurrencies: Sequence[int] = (1, 8, 64),
    passes: int = 2,
    truth: Truth = plain_truth,
    noise: float = 0.02,
    pass_noise: float = 0.0,
    server_noise: float = 0.0,
    seed: int = 0,
) -> list[Measurement]:
    """A whole sweep; noises are standard deviations of logarithms."""
    rng = np.random.default_rng(seed)
    day = {number: rng.normal(0, pass_noise) for number in range(1, passes + 1)}
    found, clock = [], 1_700_000_000.0
    for number in range(1, passes + 1):
        for arm in arms:
            start = rng.normal(0, server_noise)
            for workload in workloads:
                for load in concurrencies:
                    value = truth(arm, workload, load) * math.exp(day[number] + start + rng.normal(0, noise))
                    counters = make_counters(
                        arm.k,
                        rate=rng.normal(0.7, 0.01),
                        verified=max(400, 5500 - 900 * int(math.log2(load))) if arm.kind == "adaptive" else None,
                    )
                    found.append(
                        make_measurement(
                            arm,
                            workload,
                            load,
                            number,
                            throughput=value,
                            counters=counters if arm.k else None,
                            started=clock,
                        )
                    )
                    clock += 15.0
    return found


def make_manifest(
    *,
    arms: Sequence[Arm] = ARMS,
    workloads: Sequence[str] = ("code", "prose"),
    concurrencies: Sequence[int] = (1, 8, 64),
    passes: int = 2,
    name: str = "toy",
    pair: Pair = PAIR,
    **changes: Any,
) -> dict[str, Any]:
    """What the manifest of such a sweep keeps; `changes` replace top-level keys."""
    specs = [Workload(name=each, prompts=each, max_tokens=48, sampling=Sampling()) for each in workloads]
    manifest: dict[str, Any] = {
        "spec": {
            "name": name,
            "pair": dataclasses.asdict(pair),
            "engine": dataclasses.asdict(EngineSpec()),
            "arms": [dataclasses.asdict(arm) for arm in arms],
            "workloads": [dataclasses.asdict(each) for each in specs],
            "concurrency": list(concurrencies),
            "passes": passes,
            "cell": dataclasses.asdict(CellProtocol()),
            "seed": 0,
        },
        "spec_text": "pair: {name: toy}\n",
        "spec_hash": "0" * 64,
        "avbench_version": "0.0.0",
        "engine_version": "reference 0.0.0",
        "environment": {"cpu": "a CPU", "cores": 2, "libraries": {"numpy": "2.0"}},
    }
    return manifest | changes


def make_results(root: Path = Path("results/toy"), **sweep: Any) -> Results:
    """Results of `make_measurements` without any file on disk."""
    shape = {key: sweep[key] for key in ("arms", "workloads", "concurrencies", "passes") if key in sweep}
    return results_of(root, make_manifest(**shape), make_measurements(**sweep))


def make_emulated(root: Path = Path("results/toy"), **sweep: Any) -> Results:
    """The same as if every step had lasted what the cost table `toy table` says."""
    shape = {key: sweep[key] for key in ("arms", "workloads", "concurrencies", "passes") if key in sweep}
    manifest = make_manifest(**shape, costs={"name": "toy table", "notes": ["drafting is free"]})
    manifest["spec"]["engine"] |= {"clock": "emulated", "costs": "toy.json"}
    cells = [dataclasses.replace(cell, clock="emulated") for cell in make_measurements(**sweep)]
    return results_of(root, manifest, cells)
