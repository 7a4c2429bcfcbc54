"""The parallel drafter as a module that learns; `avbench.reference.dspark` is the same in inference, and says what it
computes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from avbench.reference.dspark_checkpoint import DSparkShape


class _Layer(nn.Module):
    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(hidden, 2 * intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)
        nn.init.zeros_(self.down.weight)  # residual branches start at zero

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(F.rms_norm(x, x.shape[-1:])).chunk(2, dim=-1)
        y: torch.Tensor = x + self.down(F.silu(gate) * up)
        return y


class _Confidence(nn.Module):
    """One linear classifier for each position."""

    def __init__(self, positions: int, rank: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(positions, rank))
        self.bias = nn.Parameter(torch.zeros(positions))

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return (y * self.weight).sum(-1) + self.bias


class DSparkModel(nn.Module):
    """Parameters under the names of the checkpoint."""

    def __init__(self, shape: DSparkShape) -> None:
        super().__init__()
        self.shape = shape
        hidden, rank, markov = shape.hidden_size, shape.rank, shape.markov_rank
        self.state_proj = nn.Linear(2 * shape.target_hidden_size, hidden, bias=False)
        self.token_embed = nn.Embedding(shape.vocab_size, hidden)
        self.blocks = nn.ModuleList(_Layer(hidden, shape.intermediate_size) for _ in range(shape.num_blocks))
        self.block_proj = nn.Linear(hidden, shape.block_size * rank, bias=False)
        self.block_bias = nn.Parameter(torch.zeros(shape.block_size, rank))
        self.markov_in = nn.Linear(rank, markov, bias=False)
        self.markov_embed = nn.Embedding(shape.vocab_size, markov)
        self.markov_carry = nn.Linear(markov, markov, bias=False)
        self.markov_out = nn.Linear(markov, rank, bias=False)
        self.lm_head = nn.Linear(rank, shape.vocab_size, bias=False)
        self.confidence = _Confidence(shape.block_size, rank)
        for table in (self.token_embed, self.markov_embed):
            nn.init.normal_(table.weight, std=0.5)
        nn.init.zeros_(self.markov_out.weight)
        nn.init.normal_(self.lm_head.weight, std=0.05)

    def forward(self, states: torch.Tensor, before: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [N, K, vocabulary] and confidence logits [N, K] from `states` [N, 2 target hidden] and `before`
        [N, K], the token before each position. The confidence does not train the rest."""
        x = self.state_proj(states) + self.token_embed(before[:, 0])
        for layer in self.blocks:
            x = layer(x)
        z = self.block_proj(F.rms_norm(x, x.shape[-1:])).view(len(x), -1, self.shape.rank) + self.block_bias
        reads, tokens = self.markov_in(z), self.markov_embed(before)
        markov, outputs = torch.zeros_like(reads[:, 0]), []
        for k in range(self.shape.block_size):
            markov = F.silu(reads[:, k] + tokens[:, k] + self.markov_carry(markov))
            outputs.append(F.rms_norm(z[:, k] + self.markov_out(markov), (self.shape.rank,)))
        y = torch.stack(outputs, dim=1)
        return self.lm_head(y), self.confidence(y.detach())
