"""What a step costs on this machine, measured at start for adaptive verification.

Layouts are those of real steps: requests at a context, drafts spread unevenly, a drafting pass before each
verification so that neither finds the caches as the other left them warm. Sizes are visited in random order, five
times; the median counts, and the curve is made monotone. Times are the thread's own (`thread_seconds`): a busy
neighbour that takes the core away for a moment must not make one size look dear.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch

from avbench.adaptive.costs import CostTables, interpolated
from avbench.adaptive.depth import DepthTables
from avbench.adaptive.learned_costs import LearnedCosts
from avbench.reference.drafter import Drafter, DraftJob
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
    shallow: Mapping[int, Curve] = field(default_factory=dict)  # drafting fewer than K tokens, by depth

    def tables(self, max_requests: int, max_tokens: int) -> CostTables:
        """What budgets are sized from, ms: this engine pads nothing, so linear between the points."""
        return interpolated(
            draft_curve=self.draft, verify_curve=self.verify, max_requests=max_requests, max_tokens=max_tokens
        )

    def by_depth(self, max_requests: int, max_tokens: int, *, k: int) -> LearnedCosts:
        """What nested depths are chosen from, ms: linear between the depths too, and nothing for depth 0."""
        tables = self.tables(max_requests, max_tokens)
        timed = [np.zeros_like(tables.draft)]
        for _, curve in sorted(self.shallow.items()):
            timed.append(replace(self, draft=curve).tables(max_requests, max_tokens).draft)
        depths = [0, *sorted(self.shallow), k]
        by_requests = np.array([*timed, tables.draft]).T
        draft = np.array([np.interp(range(k + 1), depths, costs) for costs in by_requests]).T
        return LearnedCosts(DepthTables(draft=draft, verify=tables.verify), sizes=[size for size, _ in self.verify])


def profile(target: Llama, drafter: Drafter, *, slots: int, length: int, shallow: Sequence[int] = ()) -> CostCurves:
    """Time drafting and verification up to `slots` requests and all their drafts. Leaves garbage in the caches.

    `shallow` are depths below K to time drafting at as well.
    """
    rng = random.Random(0)
    context = max(1, min(CONTEXT, length - drafter.k - 1))
    requests = _up_to(REQUESTS, slots)
    tokens = _up_to(TOKENS, min(TOKENS[-1], slots * (drafter.k + 1)))
    jobs = [(depth, n) for depth in (*shallow, drafter.k) for n in requests] + [(0, n) for n in tokens]
    seconds: dict[tuple[int, int], list[float]] = {job: [] for job in jobs}
    for round_number in range(ROUNDS + 1):  # the first warms up
        for depth, size in rng.sample(jobs, len(jobs)):
            if depth:
                elapsed = _timed(partial(_draft, drafter, size, context, depth))
            else:
                _draft(drafter, min(size, slots), context, drafter.k)
                layout = _layout(size, slots, drafter.k, context, rng)
                elapsed = _timed(partial(_verify, target, layout))
            if round_number:
                seconds[depth, size].append(elapsed)
    draft = {depth: _curve([(n, seconds[depth, n]) for n in requests]) for depth in (*shallow, drafter.k)}
    verify = _curve([(n, seconds[0, n]) for n in tokens])
    return CostCurves(draft=draft.pop(drafter.k), verify=verify, context=context, shallow=draft)


def thread_seconds() -> float:
    """Seconds that this thread has computed; waiting, and what the core did for others, do not count."""
    return time.thread_time()


def _timed(run: Callable[[], None]) -> float:
    began = thread_seconds()
    run()
    return thread_seconds() - began


def _draft(drafter: Drafter, requests: int, context: int, depth: int) -> None:
    slots = np.arange(requests)
    known = [np.zeros(context + 1, np.int64)] * requests
    drafter.pretend(slots, context)
    u = np.full((requests, drafter.k), 0.5, np.float32)
    states = torch.zeros(requests, drafter.state_width)
    ones = np.ones(requests, np.float32)
    drafter.draft(DraftJob(known=known, slots=slots, states=states, temperature=ones, u=u, depth=depth))


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
