"""What the estimator and the labels cost per engine step, and how near the online fit comes to an offline one.

    OMP_NUM_THREADS=1 python benchmarks/estimator.py [--steps 600] [--rounds 400]

C=64 requests, K=7 drafts, a vocabulary of 2,048. First the pieces on random numbers, median and 10th percentile over
the rounds, in thread time, each right after an unmeasured repetition. Then the embedded engine runs the shipped pair,
observing; its labels are graded twice: by the predictions that the estimator made before it saw each label, and by a
logistic regression of scikit-learn with the same parameters (one slope, one intercept per position) that is fitted to
all of them afterwards. In between: what labels cost the whole engine.
Exits with 1 if a piece takes longer than agreed or the log-losses differ by more than 0.005.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from tokenizers import Tokenizer

from avbench.adaptive.estimator import OnlineAcceptanceEstimator
from avbench.adaptive.features import feature_of_complement
from avbench.reference.core import EngineCore
from avbench.reference.core_process import build
from avbench.reference.drafter import DraftBlock
from avbench.reference.label_parts import LabelParts
from avbench.reference.labels import Labels
from avbench.reference.messages import StepOutput, Submit
from avbench.reference.options import parse_options
from avbench.reference.proposals import Proposals
from avbench.reference.trace import Trace

REQUESTS, K, VOCABULARY = 64, 7, 2048
REFIT_INTERVAL, COLD_REFITS = 25, 8
NEAR = 0.005  # nats
PACKAGE = Path(__file__).resolve().parent.parent / "avbench"
LIMITS = {"features of a block": 2000.0, "estimator update": 60.0, "estimator refit": 200.0, "label rows": 500.0}  # us


def main() -> int:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600, help="engine steps behind the comparison")
    parser.add_argument("--rounds", type=int, default=400, help="repetitions of every piece")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    torch.set_flush_denormal(True)
    with tempfile.TemporaryDirectory() as folder:
        quick = pieces(args.rounds, Path(folder) / "pieces")
        throughput(args.steps // 6, Path(folder) / "throughput")
        return 0 if compare(args.steps, Path(folder) / "comparison") and quick else 1


def pieces(rounds: int, folder: Path) -> bool:
    """Print what each piece costs; whether all stay within their limits. The pieces take turns."""
    jobs: dict[str, Callable[[], float]] = {
        "features of a block": blocks(detailed=True),
        "  without entropy and margin": blocks(detailed=False),
        **estimator_jobs(),
        "label rows": label_rows(folder),
    }
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            job()
            times[name].append(1e6 * job())
    print(f"{REQUESTS} requests x {K} drafts, vocabulary {VOCABULARY}: us per engine step")
    within = True
    for name, taken in times.items():
        limit, middle = LIMITS.get(name), float(np.median(taken))
        within = within and (limit is None or middle <= limit)
        text = "" if limit is None else f"   at most {limit:5.0f}"
        print(f"  {name:30} {middle:7.1f}  (10 %: {np.percentile(taken, 10):7.1f}){text}")
    return within


def timed(run: Callable[[], Any]) -> float:
    """Seconds of this thread."""
    began = time.thread_time()
    run()
    return time.thread_time() - began


def blocks(*, detailed: bool) -> Callable[[], float]:
    """Weights, feature, entropy, margin and drafted token of a block, position by position as a drafter does it."""
    proposals = Proposals(k=K, slots=REQUESTS, vocabulary=VOCABULARY, sampling="greedy")
    proposals.detailed = detailed
    logits = 3 * torch.randn(K, REQUESTS, VOCABULARY, generator=torch.Generator().manual_seed(0))
    slots, ones = np.arange(REQUESTS), np.ones(REQUESTS, np.float32)

    def job() -> float:
        block, seconds = proposals.begin(slots, K), 0.0
        for i in range(K):
            proposals.room(i, REQUESTS).copy_(logits[i])  # the drafter's own work
            seconds += timed(lambda i=i: proposals.choose(block, i, ones, ones))  # type: ignore[misc]
        return seconds + timed(
            lambda: (feature_of_complement(block.complement), block.finished(head=None, detailed=detailed))
        )

    return job


def estimator_jobs() -> dict[str, Callable[[], float]]:
    """Prediction, update and refit on verdicts that differ from round to round."""
    rng, slots = np.random.default_rng(0), np.arange(REQUESTS)
    never = OnlineAcceptanceEstimator(max_requests=REQUESTS, positions=K, refit_interval=10**9)
    always = OnlineAcceptanceEstimator(max_requests=REQUESTS, positions=K, refit_interval=1)
    features = rng.normal(0, 2, (REQUESTS, K)).astype(np.float32)
    nobody, nothing = np.zeros(0, np.intp), np.zeros(0, np.int64)

    def update(estimator: OnlineAcceptanceEstimator) -> Callable[[], Any]:
        accepted = rng.integers(0, K + 1, REQUESTS)
        rejected = np.minimum(rng.integers(0, K + 1, REQUESTS), K - accepted)
        return lambda: estimator.step(slots, accepted + 1, rejected)

    def refit() -> float:
        always.refit_interval = 2
        update(always)()
        return timed(lambda: always.step(nobody, nothing, nothing))

    return {
        "estimator prediction": lambda: timed(lambda: never.predict(features, slots)),
        "estimator update": lambda: timed(update(never)),
        "estimator refit": refit,
    }


def label_rows(folder: Path) -> Callable[[], float]:
    """What labels cost beside the features: keep what is known of a block, turn a verdict into rows."""
    rng, slots = np.random.default_rng(0), np.arange(REQUESTS)
    labels = Labels(LabelParts(folder, {}), slots=REQUESTS, k=K)
    block = Proposals.begin(Proposals(k=K, slots=REQUESTS, vocabulary=8, sampling="greedy"), slots, K)
    known: DraftBlock = block.finished(head=rng.random((REQUESTS, K), np.float32), detailed=True)
    scheduled, predictions = np.full(REQUESTS, K), rng.random((REQUESTS, K), np.float32)

    def job() -> float:
        accepted = rng.integers(0, K + 1, REQUESTS)
        verified = np.maximum(accepted, rng.integers(0, K + 1, REQUESTS))
        counts = {"scheduled": scheduled, "admitted": verified, "verified": verified, "accepted": accepted}
        began = time.thread_time()
        labels.drafted(slots, known)
        labels.verdict(0, slots, **counts, predictions=predictions)
        return time.thread_time() - began

    return job


class Load:
    """An engine with 64 requests at a time, without end."""

    def __init__(self, core: EngineCore) -> None:
        self.core, self._requests, self._running, self.tokens = core, submits(), 0, 0

    def step(self) -> float:
        """One engine step; seconds of this thread."""
        for submit in itertools.islice(self._requests, REQUESTS - self._running):
            self.core.add(submit)
        return timed(lambda: self.core.step(self._take))

    def _take(self, output: StepOutput) -> None:
        self._running = output.running
        self.tokens += sum(len(request.tokens) for request in output.requests)


def throughput(steps: int, folder: Path) -> None:
    """Print what labels cost. Both engines serve the same requests and write the same tokens, step by step."""
    for method, draft in (("draft_model", "draft"), ("dspark", "dspark")):
        plain, labelled = (Load(engine(folder, method, draft, labels=on, adaptive=False)) for on in (False, True))
        pairs = [(plain.step(), labelled.step()) for _ in range(steps)][10:]
        without, with_labels = np.array(pairs).sum(0)
        assert plain.tokens == labelled.tokens
        print(f"labels, {method}, K={K}, C={REQUESTS}: {1000 * without / len(pairs):.2f} ms a step without,", end=" ")
        print(f"{1000 * with_labels / len(pairs):.2f} with: {100 * (without / with_labels - 1):+.1f} % tokens/s")


def compare(steps: int, folder: Path) -> bool:
    """Print the log-loss of both fits on the engine's labels; whether they are near."""
    load = Load(engine(folder, "draft_model", "draft", labels=True, adaptive=True))
    for _ in range(steps):
        load.step()
    load.core.flush()
    refits = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines() if '"refit"' in line]
    parts = sorted((folder / "labels").iterdir())
    table = pyarrow.concat_tables([pyarrow.parquet.read_table(path) for path in parts]).to_pandas()
    graded = table[table.label.notna()]
    settled = graded[graded.step > refits[COLD_REFITS - 1]["step"]]
    label = settled.label.to_numpy(bool)
    online, offline = log_loss(label, settled.prediction.to_numpy(float)), log_loss(label, offline_fit(settled))
    print(f"{len(table)} drafts, {len(graded)} labels, {len(settled)} after {COLD_REFITS} of {len(refits)} refits")
    print(f"  log-loss online  {online:.5f} nats (each prediction before its label)")
    print(f"  log-loss offline {offline:.5f} nats (scikit-learn, fitted to the same labels)")
    print(f"  difference       {online - offline:+.5f}   at most {NEAR}")
    return abs(online - offline) <= NEAR


def offline_fit(rows: Any) -> np.ndarray[Any, Any]:
    """Probabilities by a logistic regression with the estimator's parameters, fitted to `rows` themselves."""
    columns = [rows.logit_q_max.to_numpy(float)] + [(rows.position == k).to_numpy(float) for k in range(K)]
    design = np.stack(columns, axis=1)
    model = LogisticRegression(C=1e6, fit_intercept=False, tol=1e-8, max_iter=1000)
    model.fit(design, rows.label.to_numpy(bool))
    probabilities: np.ndarray[Any, Any] = model.predict_proba(design)[:, 1]
    return probabilities


def engine(folder: Path, method: str, draft: str, *, labels: bool, adaptive: bool) -> EngineCore:
    """The shipped target with a shipped draft; adaptive with the estimator, and observing. Labels go to `folder`."""
    os.environ |= {
        "AVBENCH_TRACE_DIR": str(folder),
        "AVBENCH_LABELS": str(int(labels)),
        "AVBENCH_OBSERVE": "1",
        "AVBENCH_CONFIDENCE_SOURCE": "estimator",
        "AVBENCH_REFIT_INTERVAL": str(REFIT_INTERVAL),
    }
    weights = PACKAGE / "reference/weights"
    config = {
        "method": method,
        "model": str(weights / draft),
        "num_speculative_tokens": K,
        "draft_sample_method": "probabilistic",
        "enable_adaptive_verification": adaptive,
    }
    argv = ["--model", str(weights / "target"), "--max-num-seqs", str(REQUESTS), "--max-model-len", "512"]
    core, _ = build(parse_options([*argv, "--speculative-config", json.dumps(config)]), Trace(folder))
    return core


def submits() -> Iterator[Submit]:
    """Requests without end: the shipped code prompts in turn, 128 tokens each, at temperature 1."""
    tokenizer = Tokenizer.from_file(str(PACKAGE / "reference/weights/target/tokenizer.json"))
    lines = (PACKAGE / "prompts/data/code.jsonl").read_text(encoding="utf-8").splitlines()
    prompts = [tuple(tokenizer.encode(json.loads(line)["prompt"]).ids) for line in lines]
    for i in itertools.count():
        yield Submit(
            request_id=i,
            prompt=prompts[i % len(prompts)],
            max_tokens=128,
            temperature=1.0,
            top_p=1.0,
            seed=i,
            ignore_eos=True,
        )


if __name__ == "__main__":
    sys.exit(main())
