"""Random numbers that belong to a request, not to the batch it happens to share.

Each request has a 64-bit key; draw `i` of its step `s` is a hash of (key, s, i), so a seeded request draws the same
numbers whoever runs beside it, and two runs that take the same decisions are bit-identical. The counter is the
request's own step and not the token position: a position that was drafted, trimmed and drafted again must get a
fresh number, else the second draft would be known from the first and the decision to verify it would depend on it.
Mixing function: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
BITS = 24  # exact in float32 and below 1 after every rounding of the product with a float32 total
Keys = NDArray[np.uint64]


def mix(x: Keys) -> Keys:
    """Scramble 64-bit words, elementwise."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * MIX_1
        x = (x ^ (x >> np.uint64(27))) * MIX_2
    return x ^ (x >> np.uint64(31))


def request_key(seed: int, prompt: bytes) -> np.uint64:
    """The key of a request. The prompt is part of it: clients like to send one seed with every request, and drafts
    of two requests that draw the same numbers would know of each other when the budget ranks them."""
    text = int.from_bytes(hashlib.blake2b(prompt, digest_size=8).digest(), "little")
    return np.uint64(mix(mix(np.array([seed & (2**64 - 1)], np.uint64) + GOLDEN) ^ np.uint64(text))[0])


def uniforms(keys: Keys, steps: NDArray[np.int64], draws: int) -> NDArray[np.float32]:
    """Numbers in [0, 1), [rows, draws], for each row's key and step counter."""
    with np.errstate(over="ignore"):
        base = mix(keys + steps.astype(np.uint64) * GOLDEN)
        words = mix(base[:, None] + np.arange(1, draws + 1, dtype=np.uint64) * GOLDEN)
    return (words >> np.uint64(64 - BITS)).astype(np.float32) * np.float32(2.0**-BITS)
