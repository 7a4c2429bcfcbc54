"""One training run: optimisers, schedule by the clock, checkpoints, log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from avbench.reference.train.data import Batches
from avbench.reference.train.muon import Muon

CHECKPOINT_SECONDS = 120.0
LOG_STEPS = 20
LossFn = Callable[[torch.Tensor], torch.Tensor]  # tokens [rows, length] -> mean loss over predictions
WARM_UP, FLAT = 0.02, 0.4  # shares of the run: linear rise, constant, then linear fall to zero
LONG_SHARE = 0.9  # the last tenth trains on windows twice as long, so that the whole context is usable


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a run may differ in. `minutes` counts time spent training, over all sittings."""

    minutes: float
    rows: int
    length: int
    muon_lr: float
    adam_lr: float
    seed: int


def schedule(progress: float) -> float:
    """Learning-rate factor at `progress` in [0, 1]."""
    if progress < WARM_UP:
        return progress / WARM_UP
    return 1.0 if progress < FLAT else max(0.0, (1 - progress) / (1 - FLAT))


class Run:
    """Trains `model` with `loss_fn` until the recipe's minutes are spent; resumes from `checkpoint` if it exists."""

    def __init__(self, model: nn.Module, loss_fn: LossFn, batches: Batches, recipe: Recipe, checkpoint: Path) -> None:
        self._model, self._loss_fn, self._batches, self._recipe = model, loss_fn, batches, recipe
        self._checkpoint = checkpoint
        self._step, self._spent = 0, 0.0
        inner, outer = split_parameters(model)
        self._optimisers = [
            Muon(inner, lr=recipe.muon_lr),
            torch.optim.AdamW(outer, lr=recipe.adam_lr, betas=(0.9, 0.95), weight_decay=0.0),
        ]
        self._base = [[g["lr"] for g in o.param_groups] for o in self._optimisers]
        if checkpoint.exists():
            self._resume()

    @property
    def progress(self) -> float:
        """Share of the run that is done."""
        return min(1.0, self._spent / (60 * self._recipe.minutes))

    def train(self, log: Callable[[str], None]) -> None:
        """Train to the end, saving every two minutes."""
        saved, smooth = self._spent, math.nan
        while self.progress < 1.0:
            began = time.perf_counter()
            loss = self._one_step()
            self._spent += time.perf_counter() - began
            smooth = loss if math.isnan(smooth) else smooth + (loss - smooth) / 20
            if self._step % LOG_STEPS == 0:
                where = f"step {self._step} tokens {self._batches.position} minutes {self._spent / 60:.1f}"
                log(f"{where} loss {smooth:.4f}")
            if self._spent - saved > CHECKPOINT_SECONDS:
                self._save()
                saved = self._spent
        self._save()

    def _one_step(self) -> float:
        factor = schedule(self.progress)
        for optimiser, rates in zip(self._optimisers, self._base, strict=True):
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * factor
        stretch = 2 if self.progress > LONG_SHARE else 1
        tokens = self._batches.next(self._recipe.rows // stretch, self._recipe.length * stretch)
        loss = self._loss_fn(tokens)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        for optimiser in self._optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self._step += 1
        return loss.item()

    def _save(self) -> None:
        state = {
            "model": self._model.state_dict(),
            "optimisers": [o.state_dict() for o in self._optimisers],
            "step": self._step,
            "spent": self._spent,
            "position": self._batches.position,
        }
        partial = self._checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self._checkpoint)

    def _resume(self) -> None:
        state = torch.load(self._checkpoint, weights_only=True)
        self._model.load_state_dict(state["model"])
        for optimiser, stored in zip(self._optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(stored)
        self._step, self._spent, self._batches.position = state["step"], state["spent"], state["position"]


NOT_MATRICES = ("embed", "lm_head", "bias", "confidence")  # looked up, or one row for each class or position


def split_parameters(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Matrices inside the blocks, and the rest (embeddings, norms, output layers)."""
    inner: list[nn.Parameter] = []
    outer: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        matrix = parameter.ndim == 2 and not any(part in name for part in NOT_MATRICES)
        (inner if matrix else outer).append(parameter)
    return inner, outer
