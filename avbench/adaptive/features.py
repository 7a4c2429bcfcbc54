"""The confidence feature of a draft: logit of the draft distribution's largest probability, in vLLM's float32
arithmetic.

    f = logit(q_max) = -ln( sum over z != argmax of exp(l_z - l_max) ),  l = logits / T,  clamped to [-40, 40]

f is a function of the draft distribution and never of the token drawn from it. Trimming by a feature of the drawn token
selects on the proposal and biases what is emitted; the tests count such a case out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]

MAX_LOG_ODDS = np.float32(40.0)
# vLLM sums the vocabulary in blocks of this many logits and then rescales the blocks to the global maximum. Blocks
# decide how float32 sums round, and `sum - 1` of a confident row shows every rounding.
VOCABULARY_BLOCK = 4096


def logit_qmax(logits: NDArray[Any], temperature: float | NDArray[Any] = 1.0) -> Float32:
    """Return f for every row: `logits` [..., V] before temperature, `temperature` scalar or [...] -> [...].

    A temperature that is not above 0 (greedy) leaves the logits alone. A row whose other tokens underflow gives 40,
    a row without a finite maximum too, as in vLLM.
    """
    divisor = np.asarray(temperature, dtype=np.float32)
    divisor = np.where(divisor > 0, divisor, np.float32(1.0))
    scaled = np.asarray(logits).astype(np.float32) / divisor[..., None]
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        return feature_of_complement(_sum_of_exponentials(scaled) - np.float32(1.0))


def feature_of_complement(complement: NDArray[Any]) -> Float32:
    """Return f from `complement` = sum of exp(l - l_max) - 1, float32, any shape, for who has the softmax pieces
    already.

    The subtraction must happen in float32: its noise is part of vLLM's feature (0.05 at f = 12, and the largest value
    below the clamp is 15.94).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        feature = -np.log(np.fmax(np.asarray(complement, dtype=np.float32), np.float32(0.0)))
    return np.asarray(np.fmin(np.fmax(feature, -MAX_LOG_ODDS), MAX_LOG_ODDS), dtype=np.float32)


def _sum_of_exponentials(scaled: Float32) -> Float32:
    """Sum exp(l - l_max) over the last axis, block by block. numpy's pairwise float32 sum gives the same bits for any
    padding of a block with zeros up to a power of two, so short vocabularies need not be padded to a whole block."""
    *rows, vocabulary = scaled.shape
    width = min(VOCABULARY_BLOCK, power_of_two(max(vocabulary, 8)))
    blocks = -(-vocabulary // width)
    padded = np.full((*rows, blocks * width), -np.inf, dtype=np.float32)
    padded[..., :vocabulary] = scaled
    padded = padded.reshape(*rows, blocks, width)
    block_max = np.fmax.reduce(padded, axis=-1)
    block_sum = np.exp(padded - block_max[..., None]).sum(axis=-1, dtype=np.float32)
    block_sum = np.where(block_max > -np.inf, block_sum, np.float32(0.0))
    if blocks == 1:
        return np.asarray(block_sum[..., 0] * np.exp(block_max[..., 0] - block_max[..., 0]), dtype=np.float32)
    scaled_sums = np.zeros((*rows, power_of_two(blocks)), dtype=np.float32)
    scaled_sums[..., :blocks] = block_sum * np.exp(block_max - np.fmax.reduce(block_max, axis=-1)[..., None])
    return np.asarray(scaled_sums.sum(axis=-1, dtype=np.float32))


def power_of_two(size: int) -> int:
    """Return the smallest power of two that holds `size`."""
    return 1 << max(size - 1, 0).bit_length()
