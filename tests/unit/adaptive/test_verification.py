from __future__ import annotations

import numpy as np
import pytest

from avbench.adaptive.costs import CostTables
from avbench.adaptive.verification import AdaptiveVerification


def verification(*, requests: int = 2, positions: int = 2, max_total_logits: int | None = None) -> AdaptiveVerification:
    """One token costs 1; each further one 0.6: a draft is verified if its survival is above about 0.6."""
    tokens = requests * (positions + 1)
    costs = CostTables(draft=np.zeros(requests + 1), verify=0.4 + 0.6 * np.arange(tokens + 1))
    return AdaptiveVerification(
        costs=costs, max_requests=requests, positions=positions, max_total_logits=max_total_logits
    )


SLOT = np.array([0])
BOTH = np.array([2])


def sized(av: AdaptiveVerification) -> int:
    return av.budget(SLOT, BOTH, other_tokens=1, sampling_requests=1)


def test_budgets_read_the_step_before_the_latest() -> None:
    av = verification()
    av.add_request(0)
    assert sized(av) == 2  # a new request counts as sure
    av.record(SLOT, np.array([[0.1, 0.1]]))
    assert sized(av) == 2
    av.record(SLOT, np.array([[0.9, 0.1]]))
    assert sized(av) == 0
    av.record(SLOT, np.array([[0.9, 0.9]]))
    assert sized(av) == 1


def test_ranking_reads_the_latest() -> None:
    av = verification()
    slots = np.array([1, 0])
    av.record(slots, np.array([[0.9, 0.1], [0.5, 0.5]]))
    assert av.admit(slots, np.array([2, 2]), 1).tolist() == [1, 0]
    av.record(slots, np.array([[0.3, 0.1], [0.5, 0.5]]))
    assert av.admit(slots, np.array([2, 2]), 1).tolist() == [0, 1]
    assert av.admit(slots[::-1], np.array([2, 2]), 1).tolist() == [1, 0]


def test_a_new_request_starts_sure_whoever_had_the_slot() -> None:
    av = verification()
    av.record(SLOT, np.array([[0.0, 0.0]]))
    av.record(SLOT, np.array([[0.0, 0.0]]))
    assert sized(av) == 0
    av.add_request(0)
    assert sized(av) == 2
    av.record(SLOT, np.array([[0.0, 0.0]]))
    assert sized(av) == 2  # the copy that was under way when it joined must not bring its predecessor back
    av.record(SLOT, np.array([[0.0, 0.0]]))
    assert sized(av) == 0


def test_a_request_that_sits_out_keeps_its_latest_confidences() -> None:
    av = verification()
    av.record(SLOT, np.array([[0.1, 0.1]]))
    nobody = np.zeros(0, dtype=int)
    av.record(nobody, np.zeros((0, 2)))
    assert sized(av) == 0
    assert av.confidences[0].tolist() == [np.float32(0.1)] * 2


def test_the_logits_cap_holds_in_the_loop() -> None:
    av = verification(max_total_logits=2)
    av.add_request(0)
    assert sized(av) == 1


def test_confidences_are_copied_not_kept() -> None:
    av = verification()
    mine = np.array([[0.4, 0.4]], dtype=np.float32)
    av.record(SLOT, mine)
    mine[:] = 1.0
    assert av.confidences[0] == pytest.approx([0.4, 0.4])
