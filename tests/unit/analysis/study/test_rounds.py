from __future__ import annotations

import numpy as np

from avbench.analysis.study.rounds import Rounds, find_rounds


def rounds(steps: list[int], streams: list[int], intervals: list[int], *, carried: bool = False) -> Rounds:
    step, stream = np.array(steps, dtype=np.int64), np.array(streams, dtype=np.int32)
    return find_rounds(step, stream, np.array(intervals, dtype=np.int64), carried=carried)


def test_a_round_ends_after_each_hundredth_step_whatever_has_labels() -> None:
    found = rounds([3, 99, 100, 199, 450], [0] * 5, [100])
    assert found.borders.tolist() == [0, 2, 4, 5]
    assert found.fresh.tolist() == [True, False, False]
    assert found.steps.tolist() == [100, 200, 300]  # rounds without labels are not there


def test_each_process_starts_anew_with_its_own_interval() -> None:
    found = rounds([10, 60, 110, 10, 60], [0, 0, 0, 1, 1], [100, 50])
    assert found.borders.tolist() == [0, 2, 3, 4, 5]
    assert found.fresh.tolist() == [True, False, True, False]
    assert found.steps.tolist() == [100, 200, 50, 100]


def test_carried_goes_on_over_processes() -> None:
    found = rounds([10, 10, 60], [0, 1, 1], [100, 50], carried=True)
    assert found.fresh.tolist() == [True, False, False]
    assert found.steps.tolist() == [100, 150, 200]


def test_the_later_half_of_each_process_is_settled() -> None:
    found = rounds([0, 100, 200, 300, 400, 0, 100], [0, 0, 0, 0, 0, 1, 1], [100, 100])
    assert found.settled().tolist() == [False, False, True, True, True, False, True]
    assert found.rows_of(found.settled()).tolist() == [False, False, True, True, True, False, True]
