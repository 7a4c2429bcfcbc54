from __future__ import annotations

import numpy as np
import pytest

from avbench.adaptive.outlook import SMALLEST_SAMPLE, Offsets, Outlook


def outlook(*, requests: int = 4, positions: int = 2, patience: float = 100.0, sample: int = 1) -> Outlook:
    return Outlook(max_requests=requests, positions=positions, patience=patience, smallest_sample=sample)


def test_everything_is_certain_before_anything_is_seen() -> None:
    assert (outlook().survival(3) == 1).all()


def test_the_latest_confidences_are_what_is_expected() -> None:
    view = outlook()
    view.record(np.array([[0.9, 0.1], [0.3, 0.2]]))
    view.record(np.array([[0.5, 0.5], [0.6, 0.5]]))
    assert view.survival(2)[-1] == pytest.approx(np.array([[0.5, 0.25], [0.6, 0.3]]))
    assert view.survival(4)[-1] == pytest.approx(np.array([[0.9, 0.09], [0.3, 0.06], [0.5, 0.25], [0.6, 0.3]]))


def test_a_small_batch_gets_several_samples() -> None:
    view = Outlook(max_requests=64, positions=2)
    assert view.survival(1).shape == (SMALLEST_SAMPLE, 1, 2)
    assert view.survival(3).shape == (11, 3, 2)
    assert view.survival(64).shape == (1, 64, 2)
    for confidence in (0.2, 0.4):
        view.record(np.full((1, 2), confidence))
    assert view.survival(1)[-3:, 0, 0] == pytest.approx([1.0, 0.2, 0.4])


def test_more_rows_than_it_holds_leave_the_latest() -> None:
    view = outlook(requests=2)
    rows = np.linspace(0.1, 0.9, 20)[:, None] * np.ones(2)
    view.record(rows, steps=10)
    assert view.survival(2)[-1, :, 0] == pytest.approx(rows[-2:, 0])


def test_positions_that_are_not_drafted_keep_their_confidences_and_gain_hope() -> None:
    """After n steps a chance of rejection of 0.8 is 0.8 exp(-n / 100)."""
    view = outlook(requests=1)
    view.record(np.array([[0.5, 0.2]]))
    for _ in range(50):
        view.record(np.array([[0.5]]))
    assert view.survival(1)[-1, 0] == pytest.approx([0.5, 0.5 * (1 - 0.8 * np.exp(-0.5))])
    view.record(np.array([[0.5, 0.3]]))
    assert view.survival(1)[-1, 0] == pytest.approx([0.5, 0.5 * 0.3])


def test_hope_grows_with_steps_not_with_rows() -> None:
    view = outlook(requests=4)
    view.record(np.full((4, 2), 0.5))
    view.record(np.full((8, 0), 0.5), steps=2)
    assert view.survival(1)[-1, 0, 0] == pytest.approx(1 - 0.5 * np.exp(-0.02))


def graded(offsets: Offsets, confidence: float, accepted: int, of: int) -> None:
    """One position, `of` requests with one verified draft each."""
    taken = (np.arange(of) < accepted).astype(int)
    offsets.learn(np.full((of, 1), confidence), taken, np.ones(of, int))


def test_offsets_move_confidences_to_what_is_observed() -> None:
    offsets = Offsets(1)
    for _ in range(150):
        graded(offsets, 0.45, 9, 12)
    assert offsets.corrected(np.array([[0.45]]))[0, 0] == pytest.approx(0.75, abs=0.005)
    assert offsets.corrected(np.array([[0.0], [1.0]])).ravel().tolist() == [0, 1]


def test_a_first_step_by_hand() -> None:
    """Four labels at confidence 0.5, all accepted: surprise 2, information 1, prior 5: the log-odds move by 1/3."""
    offsets = Offsets(1)
    graded(offsets, 0.5, 4, 4)
    assert offsets.shift == pytest.approx([1 / 3])


def test_only_labels_count() -> None:
    """Behind a rejection, and where nothing was verified, there are none."""
    offsets = Offsets(3)
    confidences = np.full((2, 3), 0.5)
    offsets.learn(confidences, np.array([0, 0]), np.array([3, 0]))
    assert offsets.shift == pytest.approx([-0.5 / 5.25, 0, 0])
    offsets = Offsets(3)
    offsets.learn(confidences, np.array([2, 1]), np.array([2, 1]))
    assert (offsets.shift[:2] > 0).all()
    assert offsets.shift[2] == 0


def test_right_confidences_stay_as_they_are() -> None:
    rng = np.random.default_rng(0)
    offsets = Offsets(1)
    for _ in range(300):
        confidences = rng.uniform(0.1, 0.9, (16, 1))
        accepted = (rng.uniform(size=16) < confidences[:, 0]).astype(int)
        offsets.learn(confidences, accepted, np.ones(16, int))
    assert abs(offsets.shift[0]) < 0.3


def test_after_a_change_of_source_fewer_labels_are_enough() -> None:
    slow, quick = Offsets(1), Offsets(1)
    for offsets in (slow, quick):
        for _ in range(100):
            graded(offsets, 0.5, 6, 12)
    quick.forget()
    for offsets in (slow, quick):
        graded(offsets, 0.5, 12, 12)
    assert quick.shift[0] > 2 * slow.shift[0] > 0


def test_offsets_are_bounded() -> None:
    offsets = Offsets(1)
    for _ in range(500):
        graded(offsets, 0.01, 64, 64)
    assert offsets.shift[0] == 3.0
