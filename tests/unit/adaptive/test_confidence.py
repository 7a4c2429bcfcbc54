from __future__ import annotations

import numpy as np
import pytest

from avbench.adaptive.confidence import ConfidenceSource, FixedConfidence
from avbench.adaptive.estimator import OnlineAcceptanceEstimator


def test_fixed_confidence_ignores_the_draft_and_never_learns() -> None:
    source = FixedConfidence([0.9, 0.5])
    slots = np.array([3, 1, 2])
    for features in (np.zeros((3, 2)), np.full((3, 2), 40.0)):
        predicted = source.predict(features, slots)
        assert predicted.tolist() == [[np.float32(0.9), 0.5]] * 3
        assert source.step(slots, np.array([1, 2, 3]), np.array([2, 1, 0])) is None


def test_a_prediction_may_be_written_to() -> None:
    source = FixedConfidence([0.9, 0.5])
    source.predict(np.zeros((1, 2)), np.array([0]))[:] = 0
    assert source.predict(np.zeros((1, 2)), np.array([0]))[0, 1] == 0.5


@pytest.mark.parametrize("confidences", [[1.1], [-0.1], [float("nan")], [[0.5]]])
def test_only_probabilities_are_taken(confidences: list[float]) -> None:
    with pytest.raises(ValueError, match="one probability per draft position"):
        FixedConfidence(confidences)


@pytest.mark.parametrize(
    "source", [FixedConfidence([0.5, 0.5]), OnlineAcceptanceEstimator(max_requests=4, positions=2, refit_interval=1)]
)
def test_sources_are_exchangeable(source: ConfidenceSource) -> None:
    slots = np.array([2, 0])
    assert source.predict(np.zeros((2, 2)), slots).shape == (2, 2)
    source.step(slots, np.array([3, 1]), np.array([0, 1]))
    assert source.predict(np.zeros((0, 2)), np.zeros(0, dtype=int)).shape == (0, 2)
