"""The parallel drafter with a Markov head: one pass gives all K draft distributions, up to what the drafts before say.

    x    = state_proj(states) + token_embed[last token], then `num_blocks` gated layers       once per block of drafts
    z_k  = block_proj_k(x) + bias_k                                                          all positions at once
    m_k  = silu(markov_in z_k + markov_embed[token before k] + markov_carry m_{k-1})          low rank, in order
    y_k  = norm(z_k + markov_out m_k),   logits_k = lm_head y_k,   confidence_k = w_k y_k + b_k

The kind is DSpark's and DFlash's (a block in one pass; a low-rank term restores the dependency inside it); shapes and
weights are our own. It reads two of the target's layers and keeps no cache. The confidence is a function of the
tokens before position k, never of the one drawn there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from avbench.errors import UsageError
from avbench.reference.drafter import DraftBlock, DraftJob
from avbench.reference.dspark_checkpoint import DSparkShape, read_dspark_shape, read_dspark_weights
from avbench.reference.proposals import Proposals, Sampling
from avbench.reference.ragged import Ints
from avbench.reference.sampling import Floats, Weights

ANY_LENGTH = 2**31  # nothing in it depends on positions


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """Matrices as the loop wants them: transposed where that is faster, `markov_in` folded into the block."""

    state: torch.Tensor
    tokens: torch.Tensor
    gates: tuple[torch.Tensor, ...]
    downs: tuple[torch.Tensor, ...]
    block: torch.Tensor  # [K * (rank + markov), hidden]
    bias: torch.Tensor  # [K * (rank + markov)]
    embed: Floats  # the loop over drafts is numpy: its arrays are small, and a torch call costs more than they do
    carry: Floats
    out: Floats
    head: torch.Tensor  # [rank, vocabulary] float32


class DSparkDrafter:
    """Weights of the drafter and the distributions of the drafts that are out."""

    max_position = ANY_LENGTH

    def __init__(self, folder: Path, *, k: int, slots: int, dtype: torch.dtype, sampling: Sampling) -> None:
        """Load `folder`. Raises UsageError if it cannot draft `k` tokens."""
        self.shape = shape = read_dspark_shape(folder)
        if k > shape.block_size:
            raise UsageError(
                f"num_speculative_tokens is {k}, but `{folder}` drafts blocks of {shape.block_size}",
                hint=f"give at most {shape.block_size}",
            )
        self.k, self.vocabulary = k, shape.vocab_size
        self.has_head = shape.enable_confidence_head
        self.state_width = 2 * shape.target_hidden_size
        weights = read_dspark_weights(folder, shape)
        self._weights = _prepare(weights, shape, dtype)
        self._dtype = dtype
        self._confidence = _confidence(weights) if self.has_head else None
        self._proposals = Proposals(k=k, slots=slots, vocabulary=shape.vocab_size, sampling=sampling)

    @property
    def detailed(self) -> bool:
        """Whether blocks carry what labelled drafts record."""
        return self._proposals.detailed

    @detailed.setter
    def detailed(self, wanted: bool) -> None:
        self._proposals.detailed = wanted

    @property
    def distributions(self) -> Weights | None:
        """q of the drafts that are out; None if drafts are argmax."""
        return self._proposals.distributions

    def rows(self, slots: Ints) -> Ints:
        """Rows of `distributions` for each slot, [len(slots), K]."""
        return self._proposals.rows(slots)

    def forget(self, slot: int) -> None:
        """Nothing is kept of a request."""

    def pretend(self, slots: Ints, length: int) -> None:
        """Nothing depends on the length."""

    def accept(self, slots: Ints, accepted: Ints) -> None:
        """Nothing is kept of a request."""

    def draft(self, job: DraftJob) -> DraftBlock:
        """One pass, then a small loop over the drafts."""
        block = self._proposals.begin(job.slots, job.depth)
        rank, w = self.shape.rank, self._weights
        tokens = np.array([known[-1] for known in job.known])
        scores = np.zeros((len(tokens), job.depth), np.float32)
        positions = self._trunk(job.states.to(self._dtype), tokens, job.depth) if job.depth else None
        markov: Floats | None = None
        for i in range(job.depth):
            assert positions is not None
            reads = positions[:, i, rank:] + w.embed[tokens]
            if markov is not None:
                reads += markov @ w.carry
            markov = reads / (1 + np.exp(-reads))
            y = _normed(positions[:, i, :rank] + markov @ w.out)
            if self._confidence is not None:
                scores[:, i] = y @ self._confidence[0][i] + self._confidence[1][i]
            torch.mm(torch.from_numpy(y), w.head, out=self._proposals.room(i, len(tokens)))
            tokens = self._proposals.choose(block, i, job.temperature, job.u[:, i])
        return block.finished(head=scores if self.has_head else None, detailed=self.detailed)

    def _trunk(self, states: torch.Tensor, tokens: Ints, depth: int) -> Floats:
        """z and markov_in z of the first `depth` positions, [rows, depth, rank + markov]."""
        w, width = self._weights, self.shape.rank + self.shape.markov_rank
        x = F.linear(states, w.state) + w.tokens.index_select(0, torch.from_numpy(tokens))
        for gate_up, down in zip(w.gates, w.downs, strict=True):
            gate, up = F.linear(F.rms_norm(x, x.shape[1:]), gate_up).chunk(2, dim=1)
            x = torch.addmm(x, F.silu(gate).mul_(up), down)
        block = F.linear(F.rms_norm(x, x.shape[1:]), w.block[: depth * width], w.bias[: depth * width])
        positions: Floats = block.view(len(x), depth, width).float().numpy()
        return positions


def _normed(x: Floats) -> Floats:
    """`F.rms_norm` with its default epsilon."""
    mean = np.einsum("ij,ij->i", x, x)[:, None] / np.float32(x.shape[1])
    normed: Floats = x / np.sqrt(mean + np.finfo(np.float32).eps)
    return normed


def _confidence(weights: dict[str, torch.Tensor]) -> tuple[Floats, Floats]:
    return weights["confidence.weight"].numpy(), weights["confidence.bias"].numpy()


def _prepare(weights: dict[str, torch.Tensor], shape: DSparkShape, dtype: torch.dtype) -> _Prepared:
    positions = weights["block_proj.weight"].view(shape.block_size, shape.rank, shape.hidden_size)
    into = weights["markov_in.weight"]
    block = torch.cat((positions, into @ positions), dim=1)
    bias = torch.cat((weights["block_bias"], weights["block_bias"] @ into.t()), dim=1)

    def turned(name: str) -> torch.Tensor:
        return weights[name].t().contiguous().to(dtype)

    return _Prepared(
        state=weights["state_proj.weight"].to(dtype),
        tokens=weights["token_embed.weight"].to(dtype),
        gates=tuple(weights[f"blocks.{i}.gate_up.weight"].to(dtype) for i in range(shape.num_blocks)),
        downs=tuple(turned(f"blocks.{i}.down.weight") for i in range(shape.num_blocks)),
        block=block.reshape(-1, shape.hidden_size).to(dtype),
        bias=bias.flatten().to(dtype),
        embed=weights["markov_embed.weight"].numpy(),
        carry=weights["markov_carry.weight"].t().contiguous().numpy(),
        out=weights["markov_out.weight"].t().contiguous().numpy(),
        head=weights["lm_head.weight"].t().contiguous(),
    )
