"""What changes a cell's identity and what must not."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from avbench.plan import Plan, expand_plan
from avbench.record.store import ResultStore
from avbench.spec.reader import read_sweep

ROOT = Path(__file__).parents[3]
MakePlan = Callable[..., Plan]


HEAD = ("  - adaptive: {k: 7, refit_interval: 25}\n", "  - adaptive: {k: 7, source: head}\n")
BLOCKS = ("draft: draft}", "draft: blocks, method: dspark}")
EMULATED = ("passes: 2", "engine: {clock: emulated, costs: costs.json}\npasses: 2")


def _identities(plan: Plan) -> dict[str, str]:
    return {cell.id: cell.identity for cell in plan.cells}


def _changed(before: Plan, after: Plan) -> set[str]:
    """Ids of arms of which some cell that both plans have got another identity."""
    old, new = _identities(before), _identities(after)
    return {cell_id.split("__")[0] for cell_id in old.keys() & new.keys() if old[cell_id] != new[cell_id]}


ALL = {"none", "fixed-1", "fixed-7", "adaptive-7-refit25"}
DRAFTING = ALL - {"none"}


def test_the_same_sweep_has_the_same_identities(make_plan: MakePlan) -> None:
    assert _identities(make_plan()) == _identities(make_plan())


def test_places_do_not_count(folder: Path, make_plan: MakePlan) -> None:
    before = make_plan()
    moved = Path(shutil.copytree(folder, folder.parent / "moved"))
    (moved / "words.jsonl").rename(moved / "renamed.jsonl")
    (moved / "target").rename(moved / "model")
    text = (
        (moved / "toy.yaml")
        .read_text()
        .replace("{prompts: words.jsonl, max", "{name: words, prompts: words.jsonl, max")
    )
    text = text.replace("words.jsonl", "renamed.jsonl").replace("target: target", "target: model")
    (moved / "other.yaml").write_text(text)
    assert _identities(expand_plan(read_sweep(moved / "other.yaml"))) == _identities(before)


def test_file_times_do_not_count(folder: Path, make_plan: MakePlan) -> None:
    before = make_plan()
    for path in folder.rglob("*"):
        os.utime(path, ns=(1, 1))
    assert _changed(before, make_plan()) == set()


@pytest.mark.parametrize(
    "replacement",
    [
        ("name: toy", "name: another label"),
        ("passes: 2", "passes: 4"),
        ("passes: 2", "engine: {start_timeout: 9m, env: {HF_HOME: /a, TRANSFORMERS_CACHE: /b, HF_TOKEN: secret}}"),
        ("warmup_seconds: 1s", "warmup_seconds: 1000ms, timeout: 5m"),
        ("  - none\n", ""),
        ("  - fixed: [1, 7]", "  - fixed: [7, 1, 3]"),
        ("load:", "sampling: {temperature: 1, top_p: 1.0}\nload:"),
        ("passes: 2", "engine: {args: {max-num-seqs: 8, dtype: float32}}"),  # what avbench sets anyway
    ],
)
def test_what_does_not_alter_numbers_does_not_count(replacement: tuple[str, str], make_plan: MakePlan) -> None:
    assert _changed(make_plan(), make_plan(replacement)) == set()


@pytest.mark.parametrize(
    ("replacement", "arms"),
    [
        (("passes: 2", "seed: 1"), ALL),
        (("load:", "sampling: {top_p: 0.9}\nload:"), ALL),
        (("load:", "sampling: {temperature: 0.5}\nload:"), ALL),
        (("max_tokens: 48", "max_tokens: 47"), ALL),
        (("max_tokens: 48", "max_tokens: 48, chat: false"), ALL),
        (("max_tokens: 48", "max_tokens: 48, ignore_eos: true"), ALL),
        (("samples_per_prompt: 40}", "samples_per_prompt: 41}"), ALL),
        (("seconds: 3s", "seconds: 3.5"), ALL),
        (("warmup_seconds: 1s", "warmup_seconds: 2s"), ALL),
        (("warmup_seconds: 1s", "warmup_seconds: 1s, min_requests: 5"), ALL),
        (("[1, 8, 4]", "[1, 4]"), ALL),  # the server takes 4 requests at one time instead of 8
        (("[1, 8, 4]", "[1, 8, 4, 16]"), ALL),
        (("passes: 2", "engine: {args: {max-num-seqs: 16}}"), ALL),
        (("passes: 2", "engine: {args: {dtype: bfloat16}}"), ALL),
        (("passes: 2", "engine: {args: {max-model-len: 300}}"), ALL),
        (("passes: 2", "engine: {env: {OMP_NUM_THREADS: 2}}"), ALL),
        (("draft: draft", "draft: draft, draft_sampling: greedy"), DRAFTING),
        (("draft: draft", "draft: target"), DRAFTING),
        (("passes: 2", "labels: true"), DRAFTING),
        (("passes: 2", "observe: true"), DRAFTING),
        (EMULATED, ALL),
        (("target: target", "target: draft"), ALL),
    ],
)
def test_what_alters_numbers_counts(replacement: tuple[str, str], arms: set[str], make_plan: MakePlan) -> None:
    assert _changed(make_plan(), make_plan(replacement)) == arms


@pytest.mark.parametrize(
    ("file", "arms"),
    [
        ("words.jsonl", ALL),
        ("target/config.json", ALL),
        ("target/model.safetensors", ALL),
        ("draft/model.safetensors", DRAFTING),
        ("draft/README.md", set()),
    ],
)
def test_contents_count(file: str, arms: set[str], folder: Path, make_plan: MakePlan) -> None:
    before = make_plan()
    if file.endswith("jsonl"):
        (folder / file).write_text((folder / file).read_text().replace("word 7", "word seven"))
    else:
        (folder / file).write_text("changed")
    assert _changed(before, make_plan()) == arms


def test_only_an_estimator_remembers_earlier_loads(make_plan: MakePlan) -> None:
    before, after = make_plan(), make_plan(("[1, 8, 4]", "[1, 2, 8, 4]"))
    assert _changed(before, after) == {"adaptive-7-refit25"}
    first = "adaptive-7-refit25__words__c1__p1"  # nothing ran before it in either plan
    assert _identities(before)[first] == _identities(after)[first]


def test_a_head_remembers_nothing(make_plan: MakePlan) -> None:
    seats = ("passes: 2", "engine: {args: {max-num-seqs: 16}}")
    before, after = make_plan(BLOCKS, HEAD, seats), make_plan(BLOCKS, HEAD, seats, ("[1, 8, 4]", "[1, 2, 8, 4]"))
    assert "adaptive-7-head" in {cell.arm.id for cell in before.cells}
    assert _changed(before, after) == set()


def test_confidence_source_and_depth_count(make_plan: MakePlan) -> None:
    options = ("", ", source: head", ", depth: nested", ", source: head, depth: nested")
    plans = [make_plan(BLOCKS, (HEAD[0], f"  - adaptive: {{k: 7{option}}}\n")) for option in options]
    identities = [plan.cells[18].identity for plan in plans]  # the first adaptive one
    assert len({plan.cells[18].id for plan in plans}) == len(set(identities)) == 4


def test_the_method_counts(make_plan: MakePlan) -> None:
    same = ("draft: draft}", "draft: draft, method: dspark}")
    assert _changed(make_plan(), make_plan(same)) == DRAFTING


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({"verify": [[1, 5.0], [64, 8.5]]}, True),
        ({"draft_pass": [[1, 0.5], [16, 1.0]]}, True),
        ({"graph_limit": 64}, True),
        ({"name": "renamed", "source": "elsewhere", "notes": ["a note"]}, False),
    ],
)
def test_the_content_of_the_cost_table_counts(
    change: dict[str, object], counts: bool, folder: Path, make_plan: MakePlan
) -> None:
    before = make_plan(EMULATED)
    table = json.loads((folder / "costs.json").read_text())
    (folder / "costs.json").write_text(json.dumps(table | change))
    assert _changed(before, make_plan(EMULATED)) == (ALL if counts else set())


def test_results_of_earlier_versions_stay_done() -> None:
    """The records of `results/example` were written before drafts had methods, labels and clocks to choose from."""
    plan = expand_plan(read_sweep(ROOT / "sweeps" / "quickstart.yaml"))
    done = {record.cell_id: record.identity for record in ResultStore(ROOT / "results/example").read_measurements()}
    assert len(done) == 60
    assert _identities(plan) == done


def test_a_fixed_number_of_seats_lets_loads_come_and_go(make_plan: MakePlan) -> None:
    seats = ("passes: 2", "engine: {args: {max-num-seqs: 16}}")
    assert _changed(make_plan(seats), make_plan(seats, ("[1, 8, 4]", "[1, 8, 4, 16]"))) == {"adaptive-7-refit25"}


def test_another_port_or_results_folder_cannot_count(plan: Plan) -> None:
    """Neither is part of what an identity is made from: a spec has no such field."""
    names = {field.name for part in (plan.spec, plan.spec.engine, plan.cells[0]) for field in dataclasses.fields(part)}
    assert not {name for name in names if "port" in name or "results" in name or "trace" in name}
