"""A small parallel drafter, trained for a moment on the tiny target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from avbench.reference.dspark_checkpoint import DSparkShape, write_dspark
from avbench.reference.llama import Llama
from avbench.reference.train.dspark import drafting
from avbench.reference.train.dspark_model import DSparkModel

SHAPE = DSparkShape(
    block_size=4,
    vocab_size=8,
    target_hidden_size=32,
    tap_layer=0,
    hidden_size=32,
    intermediate_size=48,
    num_blocks=1,
    rank=16,
    markov_rank=8,
    enable_confidence_head=True,
)


def train_dspark(pair: Path, *, steps: int = 80) -> list[float]:
    """Write `pair/dspark` after some steps on random tokens; returns the losses."""
    torch.manual_seed(3)
    target = Llama(pair / "target", slots=8, length=48, dtype=torch.float32)
    target.tap = SHAPE.tap_layer
    model = DSparkModel(SHAPE)
    loss_of = drafting(model, target, seed=1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rng = np.random.default_rng(0)
    losses = []
    with torch.enable_grad():
        for _ in range(steps):
            loss = loss_of(torch.from_numpy(rng.integers(0, 8, (8, 48))))
            loss.backward()
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            losses.append(loss.item())
    write_dspark(pair / "dspark", SHAPE, model.state_dict())
    return losses
