"""Causal attention over a ragged batch, without repeating keys and values for grouped heads.

Three shapes of work, chosen once per step and shared by all layers:

- long rows (prompts): one call each;
- decoding rows: one call over the slots as they lie in the cache for the first tokens of all of them, padded to the
  depth that most have;
- what deeper rows have beyond that (adaptive verification): one small call for each. Padding 64 rows to the deepest
  one (8 tokens) costs 3.0-3.7 ms a layer against 0.6 ms for one token each; a small call costs about 25 us (AVX2, one
  thread, context 128). The depth at which to part them is the cheapest by these prices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from avbench.reference.kv import KvCache
from avbench.reference.ragged import Ints, Ragged

LONG_ROW = 24  # tokens from which a row is attended on its own
PADDED_TOKEN_US, SMALL_CALL_US = 6.0, 25.0  # the two prices above


@dataclass(frozen=True, kw_only=True)
class _Block:
    """Rows of equal depth, taken together over the slots [0, slots)."""

    gather: torch.Tensor  # [slots * depth] flat token of each place, 0 where there is none
    scatter: torch.Tensor  # [tokens] place of each token
    tokens: torch.Tensor  # [tokens] flat token of each place that is used
    slots: int
    depth: int
    context: int
    mask: torch.Tensor  # [slots, 1, group * depth, context] additive


@dataclass(frozen=True, kw_only=True)
class _Row:
    """Consecutive tokens of one request."""

    first: int
    end: int
    slot: int
    context: int
    mask: torch.Tensor | None  # [1, 1, tokens, context]; None: causal from position 0


class RaggedAttention:
    """The plan for one batch; `attend` runs it in one layer."""

    def __init__(self, batch: Ragged, *, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
        self._kv_heads, self._group, self._head_dim = kv_heads, heads // kv_heads, head_dim
        self._dtype = dtype
        long = batch.counts >= LONG_ROW
        short = np.flatnonzero(~long)
        self._rows = [row for i in np.flatnonzero(long).tolist() for row in self._split(batch, np.array([i]), 0)]
        self._block: _Block | None = None
        if len(short) == 0:
            return
        counts = batch.counts[short]
        depth = common_depth(counts)
        self._rows += self._split(batch, short[counts > depth], depth)
        self._block = self._dense(batch, short, depth)

    def attend(self, cache: KvCache, layer: int, queries: torch.Tensor) -> torch.Tensor:
        """Attention output [T, heads * head_dim] for `queries` [T, heads, head_dim]; keys are in the cache already."""
        out = torch.empty_like(queries)
        if self._block is not None:
            self._attend_block(self._block, cache, layer, queries, out)
        for row in self._rows:
            keys, values = cache.slots(layer, row.slot, row.slot + 1, row.context)
            q = queries[row.first : row.end].transpose(0, 1).unsqueeze(0)
            y = F.scaled_dot_product_attention(
                q, keys, values, attn_mask=row.mask, is_causal=row.mask is None, enable_gqa=True
            )
            out[row.first : row.end] = y[0].transpose(0, 1)
        return out.view(len(queries), -1)

    def _attend_block(
        self, block: _Block, cache: KvCache, layer: int, queries: torch.Tensor, out: torch.Tensor
    ) -> None:
        keys, values = cache.slots(layer, 0, block.slots, block.context)
        q = queries.index_select(0, block.gather)
        q = q.view(block.slots, block.depth, self._kv_heads, self._group, self._head_dim)
        q = q.permute(0, 2, 3, 1, 4).reshape(block.slots, self._kv_heads, -1, self._head_dim)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=block.mask)
        y = y.view(block.slots, self._kv_heads, self._group, block.depth, self._head_dim).permute(0, 3, 1, 2, 4)
        y = y.reshape(block.slots * block.depth, -1, self._head_dim)
        out.index_copy_(0, block.tokens, y.index_select(0, block.scatter))

    def _split(self, batch: Ragged, rows: Ints, skip: int) -> list[_Row]:
        """Each of `rows` on its own, from its token `skip` on. One mask for all, of which each gets its part."""
        if len(rows) == 0:
            return []
        first, end, context = batch.offsets[rows] + skip, batch.offsets[rows + 1], batch.ends[rows]
        causal = len(rows) == 1 and batch.starts[rows[0]] == 0 and not skip
        places = np.concatenate([np.arange(c - (e - f), c) for f, e, c in zip(first, end, context, strict=True)])
        mask = None if causal else self._causal(places, int(context.max()))
        until = np.cumsum(end - first).tolist()
        columns = zip(first.tolist(), end.tolist(), until, batch.slots[rows].tolist(), context.tolist(), strict=True)
        return [
            _Row(
                first=f,
                end=e,
                slot=slot,
                context=length,
                mask=None if mask is None else mask[None, None, u - (e - f) : u, :length],
            )
            for f, e, u, slot, length in columns
        ]

    def _dense(self, batch: Ragged, rows: Ints, depth: int) -> _Block:
        slots = int(batch.slots[rows].max()) + 1
        counts = np.minimum(batch.counts[rows], depth)
        within = np.arange(depth)
        used = within[None, :] < counts[:, None]  # [rows, depth]
        place = (batch.slots[rows, None] * depth + within)[used]
        tokens = (batch.offsets[rows, None] + within)[used]
        gather = np.zeros(slots * depth, np.int64)
        gather[place] = tokens
        positions = np.zeros((slots, depth), np.int64)  # unused places look at position 0, whatever it holds
        positions[batch.slots[rows]] = batch.starts[rows, None] + within
        context = int((batch.starts[rows] + counts).max())
        mask = self._causal(positions, context)[:, None, None].expand(-1, -1, self._group, -1, -1)
        return _Block(
            gather=torch.from_numpy(gather),
            scatter=torch.from_numpy(place),
            tokens=torch.from_numpy(tokens),
            slots=slots,
            depth=depth,
            context=context,
            mask=mask.reshape(slots, 1, self._group * depth, context),
        )

    def _causal(self, positions: Ints, context: int) -> torch.Tensor:
        """Additive mask [..., context]: 0 up to and including each position, minus infinity after it."""
        hidden = torch.arange(context) > torch.from_numpy(positions)[..., None]
        return torch.zeros(hidden.shape, dtype=self._dtype).masked_fill_(hidden, float("-inf"))


def common_depth(counts: Ints) -> int:
    """Tokens of each row to take together, so that padding and further calls cost least."""
    depths = np.arange(1, int(counts.max()) + 1)[:, None]
    padding = np.maximum(depths - counts, 0).sum(axis=1)
    calls = (counts > depths).sum(axis=1)
    return 1 + int(np.argmin(padding * PADDED_TOKEN_US + calls * SMALL_CALL_US))
