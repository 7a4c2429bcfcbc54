"""Replays of recorded drafts and verdicts: what the estimator makes of them."""

from __future__ import annotations

import numpy as np

from avbench.adaptive.confidence import Refit, Slots
from avbench.adaptive.estimator import DAMPING, REFIT_INTERVAL, RIDGE, OnlineAcceptanceEstimator
from avbench.adaptive.features import Float32, logit_qmax
from avbench.adaptive.recording import Array, Recording


def replay_estimate(recording: Recording) -> dict[str, Array]:
    """Predict, grade and refit.

    In (T steps, R request slots, K draft positions, V vocabulary):
      logits [T,R,K,V] before temperature, or features [T,R,K] = logit(q_max); with logits: temperature (scalar, [R] or
      [T,R]; default 1; not above 0: greedy); accepted, rejected [T,R], the verdict on the drafts of the same row;
      draft_active, verdict_active [T,R], rows that are predicted and graded (default all); refit_interval, damping, l2,
      lead_steps (steps before the first row, default 0), slope0, intercepts0 (start, default 0.5 and -0.2).
    Out: slope [M+1], intercepts [M+1,K] (entry 0 the start, entry i after refit i), refit_row [M] (row that closed the
      round, -1 for a lead step), counts [M,K], info [M,K,3], grad [M,K,2], log_loss [M], features, predictions [T,R,K]
      (NaN where nothing was drafted).
    """
    features = _features(recording)
    accepted, rejected = recording.integers("accepted", "TR"), recording.integers("rejected", "TR")
    drafted, graded = recording.mask("draft_active", True), recording.mask("verdict_active", True)
    estimator = _estimator(recording)
    start = float(estimator.slope), tuple(estimator.intercepts.tolist())
    nobody = np.zeros(0, dtype=np.int64)
    refits: list[tuple[int, Refit]] = []
    for _ in range(recording.integer("lead_steps", 0, at_least=0)):
        if refit := estimator.step(nobody, nobody, nobody):
            refits.append((-1, refit))
    predict = OnlineAcceptanceEstimator.predict if "logits" in recording else _predict_outside_kernel
    predictions = np.full(features.shape, np.nan, dtype=np.float32)
    for row in range(len(features)):
        slots = np.flatnonzero(drafted[row])
        predictions[row, slots] = predict(estimator, features[row, slots], slots)
        slots = np.flatnonzero(graded[row])
        if refit := estimator.step(slots, accepted[row, slots] + 1, rejected[row, slots]):
            refits.append((row, refit))
    features[~drafted] = np.nan
    return _fit_history(start, refits) | {"features": features, "predictions": predictions}


def _predict_outside_kernel(estimator: OnlineAcceptanceEstimator, features: Float32, slots: Slots) -> Float32:
    """Predict as one must without logits, outside vLLM's kernel: a scalar library rounds the exponential
    once, the kernel's float32 exponential is up to 2 units off, and one unit matters where p(1-p) is tiny."""
    exponential = np.exp(-estimator.log_odds(features).astype(np.float64)).astype(np.float32)
    probabilities = np.float32(1.0) / (np.float32(1.0) + exponential)
    estimator.keep(features, probabilities, slots)
    return probabilities


def _features(recording: Recording) -> Float32:
    """[T, R, K] from logits if there are any, else as recorded; a copy that may be written to."""
    if "logits" not in recording:
        return recording.array("features", "TRK").astype(np.float32)
    logits = recording.array("logits", "TRKV")
    steps, requests, positions, vocabulary = logits.shape
    if not vocabulary:
        raise recording.refuse("`logits` has an empty vocabulary")
    given = recording.array("temperature", _shape_of_temperature(recording)) if "temperature" in recording else 1.0
    temperature = np.broadcast_to(np.asarray(given, dtype=np.float32), (steps, requests))
    features = np.empty((steps, requests, positions), dtype=np.float32)
    for row in range(steps):  # a step at a time: padding all logits at once could need several times their memory
        features[row] = logit_qmax(logits[row], temperature[row][:, None])
    return features


def _shape_of_temperature(recording: Recording) -> str:
    return {0: "", 1: "R"}.get(recording.dimensions("temperature"), "TR")


def _estimator(recording: Recording) -> OnlineAcceptanceEstimator:
    if not recording.size("K"):
        raise recording.refuse("there is no draft position (K = 0)")
    estimator = OnlineAcceptanceEstimator(
        max_requests=recording.size("R"),
        positions=recording.size("K"),
        refit_interval=recording.integer("refit_interval", REFIT_INTERVAL, at_least=1),
        damping=recording.number("damping", DAMPING, at_least=0),
        l2=recording.number("l2", RIDGE, at_least=0),
    )
    estimator.slope = np.float32(recording.number("slope0", float(estimator.slope)))
    if "intercepts0" in recording:
        estimator.intercepts[:] = recording.array("intercepts0", "K" if recording.dimensions("intercepts0") else "")
    return estimator


def _fit_history(start: tuple[float, tuple[float, ...]], refits: list[tuple[int, Refit]]) -> dict[str, Array]:
    positions = len(start[1])
    return {
        "slope": np.array([start[0], *(refit.slope for _, refit in refits)], dtype=np.float32),
        "intercepts": np.array([start[1], *(refit.intercepts for _, refit in refits)], dtype=np.float32),
        "refit_row": np.array([row for row, _ in refits], dtype=np.int64),
        "counts": _rounds([refit.counts for _, refit in refits], positions),
        "info": _rounds([refit.information for _, refit in refits], positions, 3),
        "grad": _rounds([refit.gradient for _, refit in refits], positions, 2),
        "log_loss": np.array([np.nan if r.log_loss is None else r.log_loss for _, r in refits], dtype=np.float64),
    }


def _rounds(values: object, *shape: int) -> Float32:
    return np.array(values, dtype=np.float32).reshape(-1, *shape)
