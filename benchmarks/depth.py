"""Adaptive verification with and without nested depth against fixed depths, in one process.

    python benchmarks/depth.py --concurrency 1 8 64 --seconds 1 --rounds 12

Every arm is an engine core of its own over the same weights, kept busy by the same closed loop of requests (same
prompts, seeds and lengths, in the same order). The arms take turns of about `--seconds` each, in an order that is
drawn anew for every round, so that whatever else the machine does meets all of them; only ratios between arms of
the same round are compared. "The best" is the best fixed depth, plain decoding included, chosen in other rounds than
those it is compared in. Time is that of the thread, which a busy neighbour slows down but does not stop. No HTTP:
this is the engine alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tokenizers import Tokenizer

from avbench.reference.core import EngineCore
from avbench.reference.core_process import build
from avbench.reference.messages import StepOutput, Submit
from avbench.reference.options import parse_options
from avbench.reference.trace import Trace

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = ROOT / "avbench" / "reference" / "weights"
DRAFTS = {"draft_model": WEIGHTS / "draft", "dspark": WEIGHTS / "dspark"}
ARMS = ("none", "1", "2", "3", "5", "7", "AV", "nested")
SHORTEST, LONGEST = 64, 192  # tokens of an answer: lengths differ, so that requests do not end together


@dataclass(kw_only=True)
class Arm:
    """One engine under its load, and what it did."""

    name: str
    core: EngineCore
    requests: Iterator[Submit]
    tokens: int = 0
    seconds: float = 0.0
    verified: int = 0
    drafted: int = 0
    rows: int = 0
    rates: list[float] = field(default_factory=list)  # tokens/s of each turn

    def add(self, count: int) -> None:
        """Send the next requests."""
        for submit in itertools.islice(self.requests, count):
            self.core.add(submit)

    def take(self, output: StepOutput) -> None:
        """Count what a step gave; whoever ended is replaced at once."""
        self.tokens += sum(len(request.tokens) for request in output.requests)
        self.rows += len(output.requests)
        if output.spec:
            self.verified += output.spec.verified
            self.drafted += output.spec.draft_tokens
        self.add(sum(request.finish is not None for request in output.requests))

    def turn(self, seconds: float) -> None:
        """Run for about so long."""
        tokens, began = self.tokens, time.thread_time()
        while time.thread_time() - began < seconds:
            self.core.step(self.take)
        elapsed = time.thread_time() - began
        self.seconds += elapsed
        self.rates.append((self.tokens - tokens) / elapsed)


def requests(prompts: list[tuple[int, ...]], temperature: float) -> Iterator[Submit]:
    """The endless stream that every arm gets."""
    rng = random.Random(0)
    for i in itertools.count():
        yield Submit(
            request_id=i,
            prompt=prompts[i % len(prompts)],
            max_tokens=rng.randint(SHORTEST, LONGEST),
            temperature=temperature,
            top_p=1.0,
            seed=i,
            ignore_eos=True,
        )


def load_prompts(name: str) -> list[tuple[int, ...]]:
    """A shipped prompt set in a fixed order."""
    tokenizer = Tokenizer.from_file(str(WEIGHTS / "target" / "tokenizer.json"))
    lines = (ROOT / "avbench" / "prompts" / "data" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    prompts = [tuple(tokenizer.encode(json.loads(line)["prompt"]).ids) for line in lines]
    random.Random(0).shuffle(prompts)
    return prompts


def build_arm(name: str, args: argparse.Namespace, concurrency: int, prompts: list[tuple[int, ...]]) -> Arm:
    """An engine core, as its own process would build it."""
    argv = ["--model", str(WEIGHTS / "target"), "--max-num-seqs", str(concurrency), "--dtype", args.dtype]
    argv += ["--max-model-len", str(max(map(len, prompts)) + LONGEST + 16)]
    if name != "none":
        speculative = {
            "method": args.drafter,
            "model": str(DRAFTS[args.drafter]),
            "num_speculative_tokens": 7 if name in ("AV", "nested") else int(name),
            "draft_sample_method": args.sampling,
            "enable_adaptive_verification": name in ("AV", "nested"),
        }
        argv += ["--speculative-config", json.dumps(speculative)]
    os.environ["AVBENCH_REFIT_INTERVAL"] = "25"
    os.environ["AVBENCH_DEPTH"] = "nested" if name == "nested" else "full"
    core, _ = build(parse_options(argv), Trace(args.trace / f"{name}-{concurrency}" if args.trace else None))
    arm = Arm(name=name, core=core, requests=requests(prompts, args.temperature))
    arm.add(concurrency)
    return arm


def measure(args: argparse.Namespace, concurrency: int, prompts: list[tuple[int, ...]]) -> list[Arm]:
    """All arms at one load: a warm-up turn each, then rounds in random order."""
    arms = [build_arm(name, args, concurrency, prompts) for name in args.arms]
    rng = random.Random(concurrency)
    for arm in arms:
        arm.turn(args.warmup * (3 if arm.name in ("AV", "nested") else 1))
        arm.tokens = arm.verified = arm.drafted = arm.rows = 0
        arm.seconds = 0.0
        arm.rates.clear()
    for _ in range(args.rounds):
        for arm in rng.sample(arms, len(arms)):
            arm.turn(args.seconds)
    return arms


def mean_rate(arm: Arm, rounds: slice) -> float:
    """Geometric mean over some rounds, tokens/s."""
    return math.exp(statistics.fmean(map(math.log, arm.rates[rounds])))


def ratio(one: Arm, other: Arm) -> tuple[float, float]:
    """Geometric mean over rounds of one arm's rate over another's, and its standard error, both relative."""
    return summary([math.log(a / b) for a, b in zip(one.rates, other.rates, strict=True)])


def ratio_to_best(one: Arm, fixed: list[Arm]) -> tuple[float, float]:
    """As `ratio`, against the best of `fixed`. The best of several noisy arms looks better than it is, so it is chosen
    in every second round and compared in the others, and the other way round."""
    halves = (slice(0, None, 2), slice(1, None, 2))
    logs = []
    for chosen, compared in (halves, halves[::-1]):
        best = max(fixed, key=lambda arm: mean_rate(arm, chosen))
        logs += [math.log(a / b) for a, b in zip(one.rates[compared], best.rates[compared], strict=True)]
    return summary(logs)


def summary(logs: list[float]) -> tuple[float, float]:
    """Geometric mean of ratios given as logarithms, and its relative standard error."""
    error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
    return math.exp(statistics.fmean(logs)), error


def show(concurrency: int, arms: list[Arm]) -> dict[str, float]:
    """One line per arm; returns the nested arm's ratios."""
    fixed = [arm for arm in arms if arm.name not in ("AV", "nested")]
    best = max(fixed, key=lambda arm: mean_rate(arm, slice(None)))
    print(f"C={concurrency}: best fixed is {best.name}")
    for arm in arms:
        against, error = ratio_to_best(arm, fixed)
        rows = max(1, arm.rows)
        print(
            f"  {arm.name:>7} {mean_rate(arm, slice(None)):7.0f} tok/s  {against:6.3f} ± {error:.3f} of the best  "
            f"{arm.tokens / rows:5.2f} tokens, {arm.verified / rows:5.2f} of {arm.drafted / rows:5.2f} drafts verified"
            " a request-step"
        )
    by_name = {arm.name: arm for arm in arms}
    found = {}
    if "nested" in by_name:
        found["best"] = ratio_to_best(by_name["nested"], fixed)[0]
        for name in ("7", "AV"):
            if name in by_name:
                found[name] = ratio(by_name["nested"], by_name[name])[0]
        print("  nested:", ", ".join(f"{value - 1:+.1%} on {name}" for name, value in found.items()))
    sys.stdout.flush()
    return found


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drafter", choices=tuple(DRAFTS), default="draft_model")
    parser.add_argument("--sampling", choices=("probabilistic", "greedy"), default="probabilistic")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--prompts", choices=("code", "prose"), default="code")
    parser.add_argument("--seconds", type=float, default=1.0, help="one turn of one arm")
    parser.add_argument("--rounds", type=int, default=12, help="at least 2")
    parser.add_argument("--warmup", type=float, default=1.0, help="of each arm, seconds; three times that for AV")
    parser.add_argument("--trace", type=Path, help="folder for the engines' traces")
    args = parser.parse_args()
    if args.rounds < 2:
        parser.error(f"--rounds is {args.rounds}, expected at least 2: one to choose the best in, one to compare")
    return args


def main() -> None:
    """Measure, print."""
    args = parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    torch.set_flush_denormal(True)
    prompts = load_prompts(args.prompts)
    found = [show(c, measure(args, c, prompts)) for c in args.concurrency]
    for name in found[0]:
        logs = [math.log(ratios[name]) for ratios in found]
        print(
            f"nested on {name}: geometric mean {math.exp(statistics.fmean(logs)) - 1:+.1%}, worst "
            f"{math.exp(min(logs)) - 1:+.1%}"
        )


if __name__ == "__main__":
    main()
