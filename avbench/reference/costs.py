"""What a step costs on this machine, measured at start for adaptive verification.

Layouts are those of real steps: requests at a context, drafts spread unevenly, a drafting pass before each
verification so that neither finds the caches as the other left them warm. Sizes are visited in random order, five
times; the median counts, and the curve is made monotone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from avbench.reference.drafter import SequentialDrafter
from avbench.reference.llama import Llama
from avbench.reference.ragged import Ragged
from avbench.reference.sampling import draw, target_weights

ROUNDS = 5
CONTEXT = 256  # tokens already in the cache of each request
# Beyond 384 tokens the matrices are as efficient as they get, and the last slope goes on.
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKENS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
Curve = list[tuple[int, float]]


@dataclass(frozen=True, kw_only=True)
class CostCurves:
    """Milliseconds by size: drafting by requests, verification by tokens."""

    draft: Curve
    verify: Curve
    context: int


def profile(target: Llama, drafter: SequentialDrafter, *, slots: int, length: int) -> CostCurves:
    """Time drafting and verification up to `slots` requests and all their drafts. Leaves garbage in the caches."""
    rng = random.Random(0)
    context = max(1, min(CONTEXT, length - drafter.k - 1))
    requests = _up_to(REQUESTS, slots)
    tokens = _up_to(TOKENS, min(TOKENS[-1], slots * (drafter.k + 1)))
    jobs: list[tuple[str, int]] = [("draft", n) for n in requests] + [("verify", n) for n in tokens]
    seconds: dict[tuple[str, int], list[float]] = {job: [] for job in jobs}
    for round_number in range(ROUNDS + 1):  # the first warms up
        for kind, size in rng.sample(jobs, len(jobs)):
            if kind == "draft":
                elapsed = _timed(partial(_draft, drafter, size, context))
            else:
                _draft(drafter, min(size, slots), context)
                layout = _layout(size, slots, drafter.k, context, rng)
                elapsed = _timed(partial(_verify, target, layout))
            if round_number:
                seconds[kind, size].append(elapsed)
    draft = [(n, seconds["draft", n]) for n in requests]
    verify = [(n, seconds["verify", n]) for n in tokens]
    return CostCurves(draft=_curve(draft), verify=_curve(verify), context=context)


def _timed(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _draft(drafter: SequentialDrafter, requests: int, context: int) -> None:
    slots = np.arange(requests)
    known = [np.zeros(context + 1, np.int64)] * requests
    drafter.pretend(slots, context)
    drafter.draft(known, slots, np.ones(requests, np.float32), np.full((requests, drafter.k), 0.5, np.float32))


def _verify(target: Llama, batch: Ragged) -> None:
    ones = np.ones(len(batch.tokens), np.float32)
    p = target_weights(target.logits(target.forward(batch)), ones, ones)
    draw(p.normalised(batch.offsets[:-1]), np.full(len(batch.slots), 0.5, np.float32))


def _layout(tokens: int, slots: int, k: int, context: int, rng: random.Random) -> Ragged:
    """`tokens` over as many requests as there are slots for, the rest spread at random up to k drafts each."""
    rows = min(tokens, slots)
    counts = np.ones(rows, np.int64)
    places = rng.sample(range(rows * k), tokens - rows)
    np.add.at(counts, np.array(places, np.int64) // k, 1)
    return Ragged(
        tokens=np.zeros(tokens, np.int64), slots=np.arange(rows), starts=np.full(rows, context), counts=counts
    )


def _up_to(sizes: tuple[int, ...], largest: int) -> list[int]:
    return [n for n in sizes if n < largest] + [largest]


def _curve(samples: list[tuple[int, list[float]]]) -> Curve:
    milliseconds = np.maximum.accumulate([1000 * float(np.median(times)) for _, times in samples])
    return [(size, round(value, 4)) for (size, _), value in zip(samples, milliseconds.tolist(), strict=True)]
