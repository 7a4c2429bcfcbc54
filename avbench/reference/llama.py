"""A Llama forward pass for inference on one thread: few large operations, weights prepared at load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from avbench.reference.attention import RaggedAttention
from avbench.reference.checkpoint import LlamaShape, RopeStretch, read_shape, read_weights
from avbench.reference.kv import KvCache
from avbench.reference.ragged import Ragged


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """Fused matrices with the norm weight of their input folded in."""

    qkv: torch.Tensor  # [(heads + 2 kv_heads) * head_dim, hidden], rotary pairs adjacent
    out: torch.Tensor  # [heads * head_dim, hidden], transposed for addmm
    gate_up: torch.Tensor  # [2 * ffn, hidden]
    down: torch.Tensor  # [ffn, hidden], transposed


class Llama:
    """Weights, rotary table and KV cache of one model."""

    def __init__(self, folder: Path, *, slots: int, length: int, dtype: torch.dtype) -> None:
        """Load `folder`; the cache holds `slots` requests of at most `length` tokens."""
        self.shape = read_shape(folder)
        self.dtype = dtype
        weights = read_weights(folder, self.shape)
        embedding = weights["model.embed_tokens.weight"]
        head = weights.get("lm_head.weight", embedding) * weights["model.norm.weight"]
        self._embedding = embedding.to(dtype)
        self._head = head.to(dtype)
        self._layers = [_load_layer(weights, i, self.shape, dtype) for i in range(self.shape.layers)]
        self._rotary = _rotary(self.shape, length)
        self.cache = KvCache(self.shape, slots=slots, length=length, dtype=dtype)
        self.tap: int | None = None  # index of a layer whose output `states` shows beside the last one's
        self._tapped: torch.Tensor | None = None

    def forward(self, batch: Ragged) -> torch.Tensor:
        """Hidden states before the final norm, [T, hidden]; writes the cache."""
        shape = self.shape
        attention = RaggedAttention(
            batch, heads=shape.heads, kv_heads=shape.kv_heads, head_dim=shape.head_dim, dtype=self.dtype
        )
        index = self.cache.write_index(batch)
        rotary = self._rotary.index_select(0, torch.from_numpy(batch.positions))[:, None]
        x = self._embedding.index_select(0, torch.from_numpy(batch.tokens))
        for i, layer in enumerate(self._layers):
            x = self._attention(i, layer, x, rotary, index, attention)
            gate, up = torch.split(F.linear(self._norm(x), layer.gate_up), shape.ffn, dim=1)
            x = torch.addmm(x, F.silu(gate).mul_(up), layer.down)
            if i == self.tap:
                self._tapped = x
        return x

    def states(self, hidden: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """What a parallel drafter reads of chosen rows of the last `forward`: the normalised outputs of the last and
        the tapped layer, float32 [rows, 2 hidden]; [rows, 0] if no layer is tapped."""
        if self._tapped is None:
            return hidden.new_empty(len(rows), 0)
        both = (self._norm(layer.index_select(0, rows)) for layer in (hidden, self._tapped))
        return torch.cat(tuple(both), dim=1).float()

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Float32 logits [N, vocabulary] of chosen rows of `forward`."""
        return F.linear(self._norm(hidden), self._head).float()

    def _attention(
        self,
        i: int,
        layer: _Layer,
        x: torch.Tensor,
        rotary: torch.Tensor,
        index: torch.Tensor,
        attention: RaggedAttention,
    ) -> torch.Tensor:
        shape = self.shape
        qkv = F.linear(self._norm(x), layer.qkv).view(len(x), -1, shape.head_dim)
        qk, v = torch.split(qkv, [shape.heads + shape.kv_heads, shape.kv_heads], dim=1)
        pairs = torch.view_as_complex(qk.float().reshape(len(x), -1, shape.head_dim // 2, 2))
        qk = torch.view_as_real(pairs * rotary).flatten(2).to(self.dtype)
        q, k = torch.split(qk, [shape.heads, shape.kv_heads], dim=1)
        self.cache.write(i, index, torch.cat((k, v), dim=1).view(-1, shape.head_dim))
        return torch.addmm(x, attention.attend(self.cache, i, q), layer.out)

    def _norm(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (self.shape.hidden,), eps=self.shape.norm_eps)


def _rotary(shape: LlamaShape, length: int) -> torch.Tensor:
    """exp(i * position * frequency), complex [length, head_dim / 2]."""
    frequency = shape.rope_theta ** -(torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
    if shape.rope_stretch is not None:
        frequency = _stretched(frequency, shape.rope_stretch)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return torch.polar(torch.ones_like(angle), angle).to(torch.complex64)


def _stretched(frequency: torch.Tensor, stretch: RopeStretch) -> torch.Tensor:
    """Slow rotations by `factor` slower, fast ones as they are, a blend between (Llama 3.1's scheme)."""
    turns = stretch.original_max_position_embeddings * frequency / (2 * torch.pi)
    low, high = stretch.low_freq_factor, stretch.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequency * (kept + (1 - kept) / stretch.factor)


def _load_layer(weights: dict[str, torch.Tensor], i: int, shape: LlamaShape, dtype: torch.dtype) -> _Layer:
    prefix = f"model.layers.{i}."

    def weight(name: str) -> torch.Tensor:
        return weights[f"{prefix}{name}.weight"]

    rotated = [_adjacent_pairs(weight(f"self_attn.{name}"), shape.head_dim) for name in ("q_proj", "k_proj")]
    qkv = torch.cat([*rotated, weight("self_attn.v_proj")]) * weight("input_layernorm")
    gate_up = torch.cat([weight("mlp.gate_proj"), weight("mlp.up_proj")]) * weight("post_attention_layernorm")
    return _Layer(
        qkv=qkv.to(dtype),
        out=weight("self_attn.o_proj").t().contiguous().to(dtype),
        gate_up=gate_up.to(dtype),
        down=weight("mlp.down_proj").t().contiguous().to(dtype),
    )


def _adjacent_pairs(matrix: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Reorder each head's rows from (i, i + head_dim / 2) pairs to neighbours: a complex multiply then rotates them."""
    heads = matrix.view(-1, 2, head_dim // 2, matrix.shape[1])
    return heads.transpose(1, 2).reshape(matrix.shape)
