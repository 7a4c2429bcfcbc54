"""How long `avbench study` takes over 4.5 million labels, its memory, and how far its online fit is from offline.

    OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.study [MILLIONS]

Writes labelled drafts of five workloads with a known law into a temporary folder, as an engine at concurrency 64 and
K = 7 would, and studies them. Every phase is a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.label_factories import Truth, make_labels, write_labels

WORKLOADS = {
    "low-entropy": Truth(mean=2.6, intercepts=(0.7, 0.3, 0.0, -0.2, -0.35, -0.45, -0.55)),
    "code": Truth(mean=2.0, intercepts=(0.6, 0.2, -0.1, -0.3, -0.45, -0.55, -0.65)),
    "maths": Truth(mean=1.6, intercepts=(0.5, 0.1, -0.15, -0.35, -0.5, -0.6, -0.7)),
    "chat": Truth(mean=1.0, intercepts=(0.2, 0.0, -0.25, -0.45, -0.6, -0.7, -0.8)),
    "high-entropy": Truth(mean=0.4, intercepts=(-0.1, -0.2, -0.35, -0.5, -0.65, -0.75, -0.85)),
}
STEPS = 500  # a file
MARGIN = 0.005  # nats between the online fit and the offline one


def write_all(root: Path, millions: float) -> int:
    """Labelled drafts in `root`, one folder a workload; returns the number of labels."""
    total = 0
    for number, (name, truth) in enumerate(WORKLOADS.items()):
        step = written = 0
        while written < millions * 1e6 / len(WORKLOADS):
            seed = 1000 * number + step
            labels = make_labels(truth, steps=STEPS, slots=64, request_steps=300, first_step=step, seed=seed)
            write_labels(root / name / f"part-1-{step // STEPS:05d}.parquet", labels)
            step += STEPS
            written += int(labels["labelled"].sum())
        total += written
    return total


def point_values(root: Path) -> None:
    """Reading, online fits of all features, exact AUC and the other values; no intervals."""
    from avbench.analysis.study.load import load_labels
    from avbench.analysis.study.scoring import score_pool
    from avbench.analysis.study.study import pool_rounds

    begin = time.perf_counter()
    labels = load_labels(root / name for name in WORKLOADS)
    print(f"  reading {time.perf_counter() - begin:.1f} s", flush=True)
    (pool,) = labels.pools
    score_pool(pool, pool_rounds(pool), replicates=0)
    _told("point values", begin)


def everything(root: Path) -> None:
    """The whole study and its page."""
    from avbench.analysis.study.load import load_labels
    from avbench.analysis.study.study import make_study
    from avbench.report.study_page import write_study

    begin = time.perf_counter()
    study = make_study(
        load_labels(root / name for name in WORKLOADS),
        say=lambda text: print(f"  {time.perf_counter() - begin:.1f} s {text}", flush=True),
    )
    write_study(study, root / "study.html")
    _told("everything", begin)
    for fit in study.pools[0].coefficients:
        assert fit.offline_loss is not None
        gap = fit.online_loss - fit.offline_loss
        print(f"  {fit.data_set}: online log-loss {fit.online_loss:.4f}, offline {fit.offline_loss:.4f}, {gap:+.4f}")
        if gap > MARGIN:
            raise SystemExit(f"{fit.data_set}: the online fit is {gap:.4f} nats behind, more than {MARGIN}")


def _told(what: str, begin: float) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    spent = time.process_time()
    print(
        f"{what}: {time.perf_counter() - begin:.1f} s, of them {spent:.1f} s on a CPU, peak {peak:.2f} GiB", flush=True
    )


def main() -> None:
    """Without a phase: make the labels, then run each phase in a process of its own."""
    phases = {"points": point_values, "all": everything}
    if len(sys.argv) == 3 and sys.argv[1] in phases:
        phases[sys.argv[1]](Path(sys.argv[2]))
        return
    millions = float(sys.argv[1]) if len(sys.argv) > 1 else 4.5
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        labels = write_all(Path(folder), millions)
        print(f"{labels:,} labels written in {time.perf_counter() - begin:.0f} s", flush=True)
        for phase in phases:
            subprocess.run([sys.executable, "-m", "benchmarks.study", phase, folder], check=True)


if __name__ == "__main__":
    main()
