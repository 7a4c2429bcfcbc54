"""The online acceptance estimator: logistic regression that refits while serving.

    p[r,k] = sigmoid(w f[r,k] + b[k])          one shared slope w, one intercept per draft position: K+1 parameters

Once per engine step the target's verdicts label the accepted drafts of a request and its first rejected one; drafts
behind that, and drafts trimmed before verification, carry no label. Their Newton statistics are summed per position,
and after `refit_interval` calls one damped Newton step on the arrowhead system moves the coefficients. The
mathematics, the cold start and the order of float32 operations are vLLM's (0.31-0.33,
`v1/worker/gpu/spec_decode/acceptance_estimator.py`): bit for bit what its kernels give under Triton's interpreter; a
GPU's exponential differs in the last places.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.confidence import Refit, Slots
from avbench.adaptive.features import Float32, power_of_two

COLD_SLOPE = 0.5
COLD_INTERCEPT = -0.2
REFIT_INTERVAL = 100
DAMPING = 50.0
RIDGE = 1e-3
# Confidences of exactly 0 and 1 exist in float32; half a unit in the last place of 1 keeps their log-loss finite
# (16.6).
_SMALLEST = np.float32(2.0**-24)
_ONE = np.float32(1.0)


class OnlineAcceptanceEstimator:
    """Predicts acceptance for `max_requests` slots x K positions and calibrates itself. O(K) memory per round
    besides."""

    def __init__(
        self,
        *,
        max_requests: int,
        positions: int,
        refit_interval: int = REFIT_INTERVAL,
        damping: float = DAMPING,
        l2: float = RIDGE,
    ) -> None:
        if max_requests < 0 or positions < 1 or refit_interval < 1:
            raise ValueError(f"cannot estimate {max_requests} requests x {positions} positions every {refit_interval}")
        self.slope = np.float32(COLD_SLOPE)
        self.intercepts: Float32 = np.full(positions, COLD_INTERCEPT, dtype=np.float32)
        # Zero until the first draft: a verdict without a draft grades f = 0, p = 0, as in vLLM.
        self.features: Float32 = np.zeros((max_requests, positions), dtype=np.float32)
        self.predictions: Float32 = np.zeros((max_requests, positions), dtype=np.float32)
        self.refits = 0
        self.refit_interval = refit_interval
        self._damping = np.float32(damping)
        self._l2 = np.float32(l2)
        self._steps = 0
        self._prefix = np.arange(positions)[:, None] < np.arange(positions + 1)  # column n: the first n positions
        # Rows wt f^2, wt f, wt, (y-p) f, y-p, n; one column per position, as many columns as the solver's sums are
        # wide.
        self._statistics: Float32 = np.zeros((6, power_of_two(positions)), dtype=np.float32)
        self._sums = self._statistics[:, :positions]
        self._loss = 0.0
        self._terms: Float32 = np.zeros((6, positions, 0), dtype=np.float32)

    @property
    def positions(self) -> int:
        """K, the number of draft positions."""
        return len(self.intercepts)

    def predict(self, features: NDArray[Any], slots: Slots) -> Float32:
        """Return p [R, K] of `features` [R, K]; keep both for the verdict. `slots` [R] are the requests' rows."""
        probabilities = sigmoid(self.log_odds(features))
        self.keep(features, probabilities, slots)
        return probabilities

    def log_odds(self, features: NDArray[Any]) -> Float32:
        """Return w f + b [R, K] in float32."""
        return self.slope * np.asarray(features, dtype=np.float32) + self.intercepts

    def keep(self, features: NDArray[Any], probabilities: NDArray[Any], slots: Slots) -> None:
        """Keep what was predicted for `slots` [R] until the verdict: features and probabilities [R, K]."""
        self.features[slots] = features
        self.predictions[slots] = probabilities

    def step(self, slots: Slots, num_sampled: NDArray[Any], num_rejected: NDArray[Any]) -> Refit | None:
        """Grade the drafts last predicted for `slots` [R]; once per engine step, prefill-only and empty ones included.

        `num_sampled` [R] tokens the target emitted (accepted drafts + 1; 0 for none), `num_rejected` [R] verified
        drafts it refused. Returns the round's report when this call closed it.
        """
        if len(slots):
            self._accumulate(slots, np.asarray(num_sampled), np.asarray(num_rejected))
        self._steps += 1
        return self._refit() if self._steps >= self.refit_interval else None

    def _accumulate(self, slots: Slots, num_sampled: NDArray[Any], num_rejected: NDArray[Any]) -> None:
        """Add the batch to the statistics. Products with 0 and 1, and prefixes looked up: numpy's masked and
        broadcasting loops take several times as long, and the engine waits."""
        accepted = np.maximum(num_sampled - 1, 0)
        label = self._prefix.take(accepted, axis=1, mode="clip")
        observed = self._prefix.take(accepted + np.minimum(num_rejected, 1), axis=1, mode="clip")
        feature = np.ascontiguousarray(self.features.take(slots, axis=0).T)
        prediction = np.ascontiguousarray(self.predictions.take(slots, axis=0).T)
        complement = _ONE - prediction
        terms = self._cleared_terms(len(slots))
        square, product, curvature, scored, residual, count = terms[:, :, : len(slots)]
        count[...] = observed
        np.multiply(prediction, complement, out=curvature)
        np.multiply(curvature, count, out=curvature)
        np.multiply(curvature, feature, out=product)
        np.multiply(product, feature, out=square)
        scored[...] = label
        np.subtract(scored, prediction, out=residual)
        np.multiply(residual, count, out=residual)
        np.multiply(residual, feature, out=scored)
        np.add(self._sums, np.add.reduce(terms, axis=-1), out=self._sums)
        np.copyto(complement, prediction, where=label)
        self._loss += log_loss(complement[observed])

    def _cleared_terms(self, requests: int) -> Float32:
        """Room for [6, K, width], zero behind the batch. vLLM sums over blocks of 256 requests or the next power of
        two; numpy's pairwise sum gives the same bits for every power of two from 8 that holds the batch."""
        width = power_of_two(max(requests, 8))
        if self._terms.shape[2] != width:
            self._terms = np.zeros((6, self.positions, width), dtype=np.float32)
        self._terms[:, :, requests:] = 0.0
        return self._terms

    def _refit(self) -> Refit:
        slope_step, intercept_steps = newton_step(self._statistics, float(self.slope), self._damping, self._l2)
        self.slope = np.float32(self.slope + slope_step)
        self.intercepts = self.intercepts + intercept_steps[: self.positions]
        self.refits += 1
        report = self._report()
        self._statistics.fill(0.0)
        self._loss = 0.0
        self._steps = 0
        return report

    def _report(self) -> Refit:
        statistics = self._sums
        labels = float(statistics[5].sum())
        return Refit(
            number=self.refits,
            slope=float(self.slope),
            intercepts=tuple(self.intercepts.tolist()),
            counts=tuple(int(count) for count in statistics[5]),
            log_loss=self._loss / labels if labels else None,
            information=tuple((a, b, c) for a, b, c in statistics[:3].T.tolist()),
            gradient=tuple((g0, g1) for g0, g1 in statistics[3:5].T.tolist()),
        )


def newton_step(statistics: Float32, slope: float, damping: np.float32, l2: np.float32) -> tuple[np.float32, Float32]:
    """Solve the arrowhead system [[A, b], [b, C]] [dw, db] = [G0, g1] in float32; `statistics` [6, K'], K' padded
    with 0.

    dw = (G0 - sum b g1 / C) / (A - sum b^2 / C) * N/(N+D), 0 if NaN or if the slope would turn negative;
    db = (g1 - b dw) / C * n/(n+D), 0 where NaN. The ridge `l2` is on the whole diagonal.
    """
    a, b, c, g0, g1, n = statistics
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        ridged = c + l2
        total = n.sum()
        schur = (a.sum() + l2) - (b * b / ridged).sum()
        slope_step = (g0.sum() - (b * g1 / ridged).sum()) / schur * (total / (total + damping))
        if not np.float32(slope) + slope_step >= 0:
            slope_step = np.float32(0.0)
        intercept_steps = (g1 - b * slope_step) / ridged * (n / (n + damping))
    return slope_step, np.where(np.isnan(intercept_steps), np.float32(0.0), intercept_steps)


def sigmoid(x: Float32) -> Float32:
    """Return 1 / (1 + exp(-x)) in float32, as vLLM's kernel rounds it."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(_ONE / (_ONE + np.exp(-x)), dtype=np.float32)


def log_loss(of_label: Float32) -> float:
    """Return the summed log-loss in nats, of the probabilities that were given to what came true."""
    return -float(np.log(np.maximum(of_label, _SMALLEST)).sum(dtype=np.float64))
