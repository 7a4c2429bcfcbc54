"""Muon in float32.

`torch.optim.Muon` orthogonalises in bfloat16, which costs about five times as much as float32 on a CPU without
bfloat16 units (12.8 against 62 GFLOP/s for [4096, 384] x [384, 2048] on an AVX2 core), so the few lines stand here.
Source of the method: Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # quintic coefficients from the source above


def orthogonalise(matrices: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Push the singular values of each matrix of `[n, rows, cols]` towards 1 by Newton-Schulz iteration."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + torch.baddbmm(gram, gram, gram, beta=b, alpha=c) @ x
    result: torch.Tensor = x.mT if tall else x
    return result


class Muon(torch.optim.Optimizer):
    """Momentum, then orthogonalised updates, for the matrices inside the blocks."""

    def __init__(self, params: list[torch.nn.Parameter], *, lr: float = 0.02, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all matrices, those of one shape together."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.nn.Parameter]] = {}
            for p in group["params"]:
                by_shape.setdefault(p.shape, []).append(p)
            for params in by_shape.values():
                self._update(params, group)

    def _update(self, params: list[torch.nn.Parameter], group: dict[str, Any]) -> None:
        momentum = group["momentum"]
        directions = []
        for p in params:
            assert p.grad is not None
            buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
            buffer.lerp_(p.grad, 1 - momentum)
            directions.append(p.grad.lerp(buffer, momentum))  # Nesterov
        rows, cols = params[0].shape
        scale = group["lr"] * max(1.0, rows / cols) ** 0.5
        for p, update in zip(params, orthogonalise(torch.stack(directions)), strict=True):
            p.add_(update, alpha=-scale)
