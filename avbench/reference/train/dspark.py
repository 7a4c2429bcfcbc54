"""What the parallel drafter and its confidence head learn from: the target's distributions along real text.

Anchors are random places of the text. At each, the drafter sees what the target knew there and the next token, and its
K distributions are compared with the target's own along the true continuation: 0.3 KL + 0.7 (-ln of the overlap
sum min(p, q)), the chance that a draft is accepted. The confidence learns that overlap by binary cross-entropy. Two
temperatures, since a draft that fits at 1 need not fit when both are sharpened.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from avbench.reference.llama import Llama
from avbench.reference.ragged import Ragged
from avbench.reference.train.dspark_model import DSparkModel
from avbench.reference.train.loop import LossFn

ANCHORS = 1024
FIRST_ANCHOR = 4  # a prompt has a few tokens at least
KL_SHARE = 0.3
POSITION_DECAY = 0.8  # later positions count less: they are reached less often
TEMPERATURES, TEMPERATURE_SHARES = (1.0, 0.6), (0.6, 0.4)


@dataclass(frozen=True, kw_only=True)
class Anchors:
    """What one step learns from."""

    states: torch.Tensor  # [N, 2 hidden]
    before: torch.Tensor  # [N, K] token before each position
    wanted: torch.Tensor  # [N, K, vocabulary] the target's distributions


def drafting(model: DSparkModel, target: Llama, *, seed: int) -> LossFn:
    """Loss over random anchors of a batch of text."""
    rng = np.random.default_rng(seed)

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        temperature = float(rng.choice(TEMPERATURES, p=TEMPERATURE_SHARES))
        return drafting_loss(model, anchors(tokens, target, model.shape.block_size, temperature, rng), temperature)

    return loss


@torch.no_grad()
def anchors(tokens: torch.Tensor, target: Llama, k: int, temperature: float, rng: np.random.Generator) -> Anchors:
    """Random anchors of `tokens` [rows, length]; `target` needs a cache of as many slots and tokens."""
    rows, length = tokens.shape
    row = torch.from_numpy(rng.integers(0, rows, ANCHORS))
    place = torch.from_numpy(rng.integers(FIRST_ANCHOR, length - k - 1, ANCHORS))
    everything = np.full(rows, length)
    hidden = target.forward(
        Ragged(
            tokens=tokens.flatten().numpy(),
            slots=np.arange(rows),
            starts=np.zeros(rows, np.int64),
            counts=everything,
        )
    )
    ahead = place[:, None] + 1 + torch.arange(k)
    wanted = (target.logits(hidden) / temperature).softmax(-1).view(rows, length, -1)[row[:, None], ahead]
    return Anchors(
        states=target.states(hidden, row * length + place), before=tokens[row[:, None], ahead], wanted=wanted
    )


def drafting_loss(model: DSparkModel, batch: Anchors, temperature: float) -> torch.Tensor:
    """Mean over anchors and positions, later ones weighted less."""
    logits, confidence = model(batch.states, batch.before)
    log_q = F.log_softmax(logits / temperature, dim=-1)
    overlap = torch.minimum(log_q.exp(), batch.wanted).sum(-1)
    divergence = -(batch.wanted * log_q).sum(-1)  # KL but for a constant
    per_draft = KL_SHARE * divergence - (1 - KL_SHARE) * (overlap + 1e-4).log()
    per_draft = per_draft + F.binary_cross_entropy_with_logits(confidence, overlap.detach(), reduction="none")
    return (per_draft * POSITION_DECAY ** torch.arange(per_draft.shape[1])).mean()
