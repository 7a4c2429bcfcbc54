"""Which prompt is sent when, with which seed: a function of the sweep's seed and the pass, the same in every arm."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from avbench.prompts.prompt_set import Prompt, PromptSet

WARMUP_SHARE = 0.15
# Request seeds are an arithmetic sequence modulo 2^52: distinct because the step is odd, and exact in any JSON reader.
SEEDS = 1 << 52
_STEP = 0x9E3779B97F4A7 | 1  # 2^52 / golden ratio: neighbours land far apart
SEED_STEP = 2 * _STEP  # within a phase


class Draw(NamedTuple):
    """One request to send."""

    prompt: Prompt
    sample: int  # which walk over the set, from 0
    seed: int  # of this request; distinct within a pass, warm-up included


@dataclass(frozen=True, kw_only=True)
class Walk:
    """Prompts in the order they are sent, round and round. A rule and no list, so that it can be handed on whole."""

    prompts: tuple[Prompt, ...]
    rounds: int | None  # None: without end
    first_seed: int  # request i has seed `(first_seed + i * SEED_STEP) % SEEDS`

    def draws(self) -> Iterator[Draw]:
        """The requests, one after the other."""
        seeds = (self.first_seed + index * SEED_STEP for index in count())
        for sample in count() if self.rounds is None else range(self.rounds):
            for prompt in self.prompts:
                yield Draw(prompt, sample, next(seeds) % SEEDS)


@dataclass(frozen=True, kw_only=True)
class Split:
    """A set parted so that no measured prompt has been seen by the server before."""

    warmup: tuple[Prompt, ...]
    measured: tuple[Prompt, ...]


def split_prompts(prompts: PromptSet, *, seed: int) -> Split:
    """About 15 % of the set for warm-up, at least one, and the rest to measure. The same split in every pass."""
    ordered = _shuffled(prompts.prompts, f"split/{seed}")
    warmup = max(1, round(WARMUP_SHARE * len(ordered)))
    return Split(warmup=tuple(ordered[:warmup]), measured=tuple(ordered[warmup:]))


def measured_walk(prompts: PromptSet, *, samples: int, seed: int, pass_number: int = 1) -> Walk:
    """The measured prompts in the order they are sent, walked `samples` times.

    Order and request seeds differ between passes, so that the spread between passes holds the luck of the draw too;
    within a pass they are the same in every arm and at every load, so that arms can be paired by request.
    """
    measured = _shuffled(split_prompts(prompts, seed=seed).measured, f"measured/{seed}/{pass_number}")
    first = _first_seed(prompts, seed=seed, pass_number=pass_number, phase=1)
    return Walk(prompts=tuple(measured), rounds=samples, first_seed=first)


def warmup_walk(prompts: PromptSet, *, seed: int, pass_number: int = 1) -> Walk:
    """The warm-up prompts, round and round without end, each time with another seed."""
    warmup = _shuffled(split_prompts(prompts, seed=seed).warmup, f"warmup/{seed}/{pass_number}")
    first = _first_seed(prompts, seed=seed, pass_number=pass_number, phase=0)
    return Walk(prompts=tuple(warmup), rounds=None, first_seed=first)


def measured_sequence(prompts: PromptSet, *, samples: int, seed: int, pass_number: int = 1) -> tuple[Draw, ...]:
    """The requests of `measured_walk`: `len(measured) * samples` of them."""
    return tuple(measured_walk(prompts, samples=samples, seed=seed, pass_number=pass_number).draws())


def warmup_sequence(prompts: PromptSet, *, seed: int, pass_number: int = 1) -> Iterator[Draw]:
    """The requests of `warmup_walk`, without end."""
    return warmup_walk(prompts, seed=seed, pass_number=pass_number).draws()


def _shuffled(prompts: Sequence[Prompt], label: str) -> list[Prompt]:
    """Sorted by a hash: the order does not hang on the random module of one Python version."""
    return sorted(prompts, key=lambda prompt: hashlib.sha256(f"{label}/{prompt.id}".encode()).digest())


def _first_seed(prompts: PromptSet, *, seed: int, pass_number: int, phase: int) -> int:
    """Even places of one sequence for warm-up (phase 0), odd ones for measuring (phase 1)."""
    label = f"requests/{seed}/{pass_number}/{prompts.fingerprint}"
    start = int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "big")
    return (start + phase * _STEP) % SEEDS
