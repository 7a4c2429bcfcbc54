"""Which cells there are and in which order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from avbench.errors import UsageError
from avbench.plan import Plan, estimate_seconds, expand_plan, plan_warnings
from avbench.spec.reader import read_sweep

ROOT = Path(__file__).parents[3]
FORWARD = ["words@1", "words@8", "words@4", "greedy@1", "greedy@8", "greedy@4"]


def test_arms_run_forward_then_reversed(plan: Plan) -> None:
    arms = ["none", "fixed-1", "fixed-7", "adaptive-7-refit25"]
    assert [group.id for group in plan.groups] == [f"{arm}-p1" for arm in arms] + [f"{arm}-p2" for arm in arms[::-1]]


def test_loads_run_forward_then_reversed(plan: Plan) -> None:
    for group in plan.groups:
        expected = FORWARD if group.pass_number == 1 else FORWARD[::-1]
        assert [cell.load for cell in group.cells] == expected
        for index, cell in enumerate(group.cells):
            assert cell.loads_before == tuple(expected[:index])
            assert (cell.arm, cell.pass_number, cell.replayed) == (group.arm, group.pass_number, False)


def test_ids_and_identities_are_unique(plan: Plan) -> None:
    assert len(plan.cells) == len(plan.measured_cells) == 48
    assert len({cell.id for cell in plan.cells}) == 48
    assert len({cell.identity for cell in plan.cells}) == 48
    assert plan.cells[0].id == "none__words__c1__p1"


def test_prompt_sets_come_with_the_plan(plan: Plan) -> None:
    assert {name: len(prompts.prompts) for name, prompts in plan.prompt_sets.items()} == {"words": 40, "greedy": 40}


def test_a_drafter_of_blocks_has_neither_tokenizer_nor_length(folder: Path, make_plan: Callable[..., Plan]) -> None:
    blocks = {path.name for path in (folder / "blocks").iterdir()}
    assert blocks == {"config.json", "model.safetensors"}
    arms = "  - adaptive: {k: 7, source: head}\n  - adaptive: {k: 7, depth: nested, refit_interval: 25}\n"
    plan = make_plan(
        ("draft: draft}", "draft: blocks, method: dspark}"), ("  - adaptive: {k: 7, refit_interval: 25}\n", arms)
    )
    assert [group.id for group in plan.groups[3:5]] == ["adaptive-7-head-p1", "adaptive-7-nested-refit25-p1"]
    assert plan.costs is None


def test_the_cost_table_comes_with_the_plan(folder: Path, make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(("passes: 2", "engine: {clock: emulated, costs: costs.json}\npasses: 2"))
    assert plan.costs is not None
    assert (plan.costs.name, plan.costs.path) == ("a table", (folder / "costs.json").resolve())


def test_conversations_need_the_chat_endpoint(folder: Path, make_plan: Callable[..., Plan]) -> None:
    line = '{"id": "talk", "messages": [{"role": "user", "content": "u"}]}\n'
    (folder / "words.jsonl").write_text(line + '{"text": "plain"}\n')
    assert make_plan().cells
    with pytest.raises(UsageError) as caught:
        make_plan(("max_tokens: 16", "chat: false, max_tokens: 16"))
    assert caught.value.message == (
        f"{folder / 'toy.yaml'}: workload `greedy`: `chat: false` needs plain text, but prompt `talk` of `words.jsonl` "
        "is a list of messages"
    )


def test_a_model_that_vanished_is_said(folder: Path, make_plan: Callable[..., Plan]) -> None:
    spec = make_plan().spec
    (folder / "draft" / "config.json").unlink()
    with pytest.raises(UsageError, match=r"model `draft`: the folder .* has no config\.json"):
        expand_plan(spec)


@pytest.mark.parametrize("path", sorted((ROOT / "sweeps").rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_sweep_can_be_planned(path: Path) -> None:
    plan = expand_plan(read_sweep(path))
    assert len({cell.identity for cell in plan.cells}) == len(plan.cells) > 0
    assert (plan.costs is not None) == plan.spec.emulated


@pytest.fixture
def shipped_models(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the shipped weights: a plan only asks what they are, not what they do."""
    monkeypatch.setattr("avbench.spec.models.shipped_weights", lambda: folder)


@pytest.mark.parametrize(("name", "starts", "cells", "longest"), [("quickstart", 10, 60, 8), ("laptop", 28, 392, 180)])
@pytest.mark.usefixtures("shipped_models")
def test_shipped_sweeps(name: str, starts: int, cells: int, longest: int) -> None:
    """`longest`: minutes."""
    plan = expand_plan(read_sweep(ROOT / "sweeps" / f"{name}.yaml"))
    assert (len(plan.groups), len(plan.cells)) == (starts, cells)
    assert estimate_seconds(plan).total <= longest * 60
    assert {warning.kind for warning in plan_warnings(plan)} == {"repeated_prompts"}
