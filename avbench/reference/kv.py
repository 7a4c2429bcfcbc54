"""Keys and values, allocated once."""

from __future__ import annotations

import torch

from avbench.reference.checkpoint import LlamaShape
from avbench.reference.ragged import Ragged

PAD_ROWS = 16  # a power-of-two stride between requests would put all of them on the same cache sets


class KvCache:
    """`[layers, 2, slots, kv_heads, length, head_dim]`; a request owns one slot for its life."""

    def __init__(self, shape: LlamaShape, *, slots: int, length: int, dtype: torch.dtype) -> None:
        self._slots, self._heads, self._length = slots, shape.kv_heads, length + PAD_ROWS
        size = (shape.layers, 2, slots, shape.kv_heads, self._length, shape.head_dim)
        self._store = torch.zeros(size, dtype=dtype)
        self._flat = [layer.view(-1, shape.head_dim) for layer in self._store]
        which_head = torch.arange(2)[:, None] * slots * self._heads + torch.arange(self._heads)
        self._plane = which_head.flatten() * self._length  # [2 * kv_heads]

    def write_index(self, batch: Ragged) -> torch.Tensor:
        """Where each token's keys and values go: flat rows, [T * 2 * kv_heads], the same in every layer."""
        first = batch.token_slots * (self._heads * self._length) + batch.positions
        return (torch.from_numpy(first)[:, None] + self._plane).flatten()

    def write(self, layer: int, index: torch.Tensor, values: torch.Tensor) -> None:
        """Store `values` [T * 2 * kv_heads, head_dim] (keys of all heads, then values, token by token)."""
        self._flat[layer].index_copy_(0, index, values)

    def slots(self, layer: int, first: int, end: int, context: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of keys and values of slots [first, end), each [slots, kv_heads, context, head_dim]."""
        block = self._store[layer, :, first:end, :, :context]
        return block[0], block[1]
