"""What a step costs by a table, in virtual time and as a pace for real work."""

from __future__ import annotations

from pathlib import Path

import pytest

from avbench.adaptive.cost_file import CostFile
from avbench.errors import UsageError
from avbench.reference.clock import PacedClock, RealClock, VirtualClock
from avbench.reference.step_costs import StepCosts

TABLE = CostFile(
    path=Path("table.json"),
    name="test",
    source="made up",
    verify=((1, 10.0), (5, 50.0), (64, 640.0)),
    draft={"pass": ((1, 2.0), (8, 9.0)), "block": ((1, 4.0), (8, 4.0))},
)


def costs(method: str | None = "draft_model", *, k: int = 3, requests: int = 8) -> StepCosts:
    return StepCosts(TABLE, method, k=k, requests=requests, tokens=64)


def test_passes_cost_each_and_a_block_once() -> None:
    assert costs().verify_seconds(3) == pytest.approx(0.030)
    assert costs().draft_seconds(2, 3) == pytest.approx(0.009)
    assert costs().draft_seconds(2, 1) == pytest.approx(0.003)
    assert costs("dspark").draft_seconds(2, 3) == costs("dspark").draft_seconds(2, 1) == pytest.approx(0.004)


@pytest.mark.parametrize(("requests", "depth"), [(0, 3), (4, 0)])
def test_nothing_drafted_costs_nothing(requests: int, depth: int) -> None:
    assert costs().draft_seconds(requests, depth) == 0.0


def test_plain_decoding_needs_no_drafting_costs() -> None:
    bare = CostFile(path=Path("t"), name="n", source="s", verify=TABLE.verify)
    plain = StepCosts(bare, None, k=0, requests=8, tokens=64)
    assert plain.draft_seconds(8, 0) == 0.0
    with pytest.raises(UsageError, match="`draft_pass`"):
        StepCosts(bare, "draft_model", k=3, requests=8, tokens=64)


def test_a_table_that_does_not_cover_the_engine_is_refused() -> None:
    with pytest.raises(UsageError, match="covers 1 to 64 tokens"):
        costs(k=8)


def test_budgets_and_clock_read_the_same_table() -> None:
    tables = costs().tables(3)
    assert tables.draft[2] / 1000 == costs().draft_seconds(2, 3)
    assert tables.verify[17] / 1000 == costs().verify_seconds(17)


def test_curves_are_the_points_behind_the_tables() -> None:
    draft, verify = costs(requests=4).curves
    assert draft == [(1, 6.0), (4, 15.0)]
    assert verify == list(TABLE.verify)


def test_virtual_time_is_the_sum_of_the_table() -> None:
    clock = VirtualClock(costs())
    clock.begin()
    clock.verified(5)
    assert clock.seconds == pytest.approx(0.050)
    clock.drafted(8, 3)
    assert clock.elapsed() == clock.now() == pytest.approx(0.077)
    clock.restart()
    assert (clock.seconds, clock.steps) == (0.0, 1)
    assert clock.now() == pytest.approx(0.077)
    clock.wait_until(0.5)
    clock.wait_until(0.2)
    assert clock.seconds == 0.5


def test_a_measurement_does_not_depend_on_what_ran_before_it() -> None:
    """Adding up from 0, and not subtracting two large numbers."""
    late, fresh = VirtualClock(costs()), VirtualClock(costs())
    for _ in range(1000):
        late.verified(3)
    late.restart()
    for clock in (late, fresh):
        for tokens in range(1, 40):
            clock.verified(tokens)
    assert late.seconds == fresh.seconds


class Machine:
    """A clock that moves when somebody sleeps or works."""

    def __init__(self) -> None:
        self.time = 100.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds + 0.0001  # a sleep ends late

    def pace(self) -> PacedClock:
        return PacedClock(costs(), clock=self.now, sleep=self.sleep)


def test_a_paced_step_waits_for_verification_and_for_drafting() -> None:
    machine = Machine()
    clock = machine.pace()
    clock.begin()
    machine.time += 0.004  # the target's real work
    clock.verified(2)
    assert machine.slept == [pytest.approx(0.016)]
    machine.time += 0.001
    clock.drafted(1, 3)
    assert machine.time - 100.0 == pytest.approx(0.0261)
    assert clock.report() == {"steps": 1, "overran": 0, "behind": 0.0}


def test_late_sleeps_do_not_add_up() -> None:
    machine = Machine()
    clock = machine.pace()
    for _ in range(100):
        clock.begin()
        clock.verified(1)
        clock.drafted(1, 1)
    assert machine.time - 100.0 == pytest.approx(100 * 0.012, abs=0.0002)


def test_a_step_after_idling_begins_when_it_begins() -> None:
    machine = Machine()
    clock = machine.pace()
    for _ in range(2):
        machine.time += 1.0
        began = machine.time
        clock.begin()
        clock.verified(1)
        clock.drafted(0, 0)
        assert machine.time - began == pytest.approx(0.010, abs=0.0003)


def test_work_that_takes_longer_is_counted_and_not_made_up_for() -> None:
    machine = Machine()
    clock = machine.pace()
    clock.begin()
    machine.time += 0.030  # for 10 ms of the table
    clock.verified(1)
    clock.drafted(1, 1)
    assert machine.time - 100.0 == pytest.approx(0.0321)
    assert clock.report() == {"steps": 1, "overran": 1, "behind": 0.02}


def test_a_real_clock_measures() -> None:
    clock = RealClock()
    clock.begin()
    clock.verified(10**9)
    clock.drafted(10**9, 10**9)
    assert 0 <= clock.elapsed() < 1
    assert clock.costs is None
