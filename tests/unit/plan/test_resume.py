"""What is left of a plan, and why some cells are run again without a record."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from avbench.errors import UsageError
from avbench.plan import Cell, Plan, parse_only, remaining_group, remaining_plan
from avbench.spec.arm import Arm

ADAPTIVE = "adaptive-7-refit25"


def _done(plan: Plan, *ids: str) -> set[str]:
    identities = {cell.id: cell.identity for cell in plan.cells}
    return {identities[cell_id] for cell_id in ids}


def test_nothing_done(plan: Plan) -> None:
    assert remaining_plan(plan, set()) == plan


def test_all_done(plan: Plan) -> None:
    assert remaining_plan(plan, {cell.identity for cell in plan.cells}).groups == ()


def test_what_is_done_elsewhere_does_not_matter(plan: Plan) -> None:
    assert remaining_plan(plan, {"of another sweep"}) == plan


def test_cells_without_an_estimator_are_simply_left_out(plan: Plan) -> None:
    group = plan.groups[1]
    done = {group.cells[0].identity, group.cells[2].identity}
    rest = remaining_group(group, done)
    assert rest is not None
    assert [cell.load for cell in rest.cells] == ["words@8", "greedy@1", "greedy@8", "greedy@4"]
    assert [cell.loads_before for cell in rest.cells][:2] == [(), ("words@8",)]  # as it is on the new server
    assert not any(cell.replayed for cell in rest.cells)


def test_an_estimator_is_brought_back_to_its_state(plan: Plan) -> None:
    group = next(group for group in plan.groups if group.id == f"{ADAPTIVE}-p1")
    rest = remaining_group(group, _done(plan, f"{ADAPTIVE}__words__c1__p1", f"{ADAPTIVE}__words__c4__p1"))
    assert rest is not None
    assert [(cell.load, cell.replayed) for cell in rest.cells] == [
        ("words@1", True),
        ("words@8", False),
        ("words@4", True),
        ("greedy@1", False),
        ("greedy@8", False),
        ("greedy@4", False),
    ]
    assert [cell.loads_before for cell in rest.cells] == [cell.loads_before for cell in group.cells]


def test_a_head_has_no_state_to_be_brought_back_to(plan: Plan) -> None:
    group = next(group for group in plan.groups if group.id == f"{ADAPTIVE}-p1")
    head = dataclasses.replace(group, arm=Arm(kind="adaptive", k=7, source="head"))
    rest = remaining_group(head, {cell.identity for cell in group.cells[:2]})
    assert rest is not None
    assert [cell.load for cell in rest.cells] == ["words@4", "greedy@1", "greedy@8", "greedy@4"]
    assert not any(cell.replayed for cell in rest.cells)


def test_nothing_is_replayed_behind_the_last_open_cell(plan: Plan) -> None:
    group = next(group for group in plan.groups if group.id == f"{ADAPTIVE}-p1")
    rest = remaining_group(group, {cell.identity for cell in group.cells[1:]})
    assert rest is not None
    assert [(cell.load, cell.replayed) for cell in rest.cells] == [("words@1", False)]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_done_cell_is_lost_or_repeated(data: st.DataObject, plan: Plan) -> None:
    done = data.draw(st.sets(st.sampled_from([cell.identity for cell in plan.cells])))
    rest = remaining_plan(plan, done)
    open_cells = [cell.identity for cell in plan.cells if cell.identity not in done]
    assert [cell.identity for cell in rest.measured_cells] == open_cells
    for group in rest.groups:
        assert not group.cells[-1].replayed
        if group.arm.kind == "adaptive":
            for index, cell in enumerate(group.cells):
                assert cell.loads_before == tuple(before.load for before in group.cells[:index])
        else:
            assert not any(cell.replayed for cell in group.cells)
    assert remaining_plan(rest, set(open_cells)).groups == ()


def _kept(plan: Plan, *options: str) -> list[Cell]:
    return list(remaining_plan(plan, set(), parse_only(options, plan)).measured_cells)


def test_only_some_cells(plan: Plan) -> None:
    assert parse_only([], plan) is None
    assert {cell.arm.id for cell in _kept(plan, "arm=none", "arm=fixed-7")} == {"none", "fixed-7"}
    assert {cell.arm.id for cell in _kept(plan, "arm=none,fixed-7")} == {"none", "fixed-7"}
    (cell,) = _kept(plan, "arm=fixed-1", "workload=greedy", "concurrency=8", "pass=2")
    assert cell.id == "fixed-1__greedy__c8__p2"


def test_only_one_load_of_an_estimator_keeps_its_identity(plan: Plan) -> None:
    rest = remaining_plan(
        plan, set(), parse_only([f"arm={ADAPTIVE}", "concurrency=8", "workload=words", "pass=1"], plan)
    )
    assert [(cell.load, cell.replayed) for cell in rest.cells] == [("words@1", True), ("words@8", False)]
    assert rest.cells[1].identity in {cell.identity for cell in plan.cells}


@pytest.mark.parametrize(
    ("option", "message", "hint"),
    [
        ("fixed-1", "`--only fixed-1`: expected KEY=VALUE", "write `--only KEY=VALUE` with a key of arm, workload, "
         "concurrency, pass, such as `--only arm=none`."),
        ("arms=none", "`--only arms=none`: expected KEY=VALUE", "write `--only KEY=VALUE` with a key of arm, workload, "
         "concurrency, pass, such as `--only arm=none`."),
        ("arm=fixd-1", "`--only arm=fixd-1`: no cell has arm `fixd-1`", "did you mean `fixed-1`? It can be: none, "
         "fixed-1, fixed-7, adaptive-7-refit25."),
        ("concurrency=2", "`--only concurrency=2`: no cell has concurrency `2`", "It can be: 1, 8, 4."),
        ("workload=", "`--only workload=`: no cell has workload ``", "It can be: words, greedy."),
    ],
)  # fmt: skip
def test_unknown_choices(option: str, message: str, hint: str, plan: Plan) -> None:
    with pytest.raises(UsageError) as caught:
        parse_only([option], plan)
    assert caught.value.message == message
    assert caught.value.hint == hint
