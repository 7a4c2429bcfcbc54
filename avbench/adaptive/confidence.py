"""Where confidences come from: one interface, so that the engine and the studies can exchange the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.features import Float32

Slots = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Refit:
    """One closed round of an online fit: its labels, statistics, log-loss, and the coefficients that hold from now."""

    number: int  # from 1
    slope: float
    intercepts: tuple[float, ...]  # one per draft position
    counts: tuple[int, ...]  # labels per draft position
    log_loss: float | None  # mean over the labels, nats, of the predictions as they were made; None without labels
    information: tuple[tuple[float, float, float], ...]  # per position: sums of wt f^2, wt f, wt with wt = p(1-p)
    gradient: tuple[tuple[float, float], ...]  # per position: sums of (y-p) f, y-p


class ConfidenceSource(Protocol):
    """Predicts, per request slot and draft position, how likely the target accepts the draft; learns from verdicts."""

    def predict(self, features: NDArray[Any], slots: Slots) -> Float32:
        """Return confidences [R, K] for `features` [R, K] of the requests in `slots` [R]; both are kept for grading."""
        ...

    def step(self, slots: Slots, num_sampled: NDArray[Any], num_rejected: NDArray[Any]) -> Refit | None:
        """Grade what was last predicted for `slots` [R] with the target's verdicts [R]; once per engine step."""
        ...


class FixedConfidence:
    """Always predicts the same vector, whatever the draft says. It never learns."""

    def __init__(self, confidences: Sequence[float]) -> None:
        vector = np.asarray(confidences, dtype=np.float32)
        if vector.ndim != 1 or not np.all((vector >= 0) & (vector <= 1)):
            raise ValueError(f"confidences must be one probability per draft position, not {confidences!r}")
        self.confidences = vector

    def predict(self, features: NDArray[Any], slots: Slots) -> Float32:
        """Return the vector once per request, [R, K]."""
        return np.tile(self.confidences, (len(slots), 1))

    def step(self, slots: Slots, num_sampled: NDArray[Any], num_rejected: NDArray[Any]) -> Refit | None:
        """Learn nothing."""
        return None


class HeadConfidence:
    """Believes the confidence head of the draft checkpoint: features are its logits. It never learns."""

    def predict(self, features: NDArray[Any], slots: Slots) -> Float32:
        """Return sigmoid of the logits, [R, K]."""
        with np.errstate(over="ignore"):
            return np.asarray(1 / (1 + np.exp(-np.asarray(features, np.float32))), dtype=np.float32)

    def step(self, slots: Slots, num_sampled: NDArray[Any], num_rejected: NDArray[Any]) -> Refit | None:
        """Learn nothing."""
        return None
