"""A small sweep in a folder of its own, and plans made from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from avbench.plan import Plan, expand_plan
from avbench.spec.reader import read_sweep

SWEEP = """\
pair: {name: toy, target: target, draft: draft}
arms:
  - none
  - fixed: [1, 7]
  - adaptive: {k: 7, refit_interval: 25}
workloads:
  - {prompts: words.jsonl, max_tokens: 48, samples_per_prompt: 40}
  - {prompts: words.jsonl, name: greedy, max_tokens: 16, samples_per_prompt: 40, sampling: {temperature: 0}}
load: {concurrency: [1, 8, 4]}
passes: 2
cell: {seconds: 3s, warmup_seconds: 1s}
"""
COSTS = {
    "schema": 1,
    "name": "a table",
    "source": "made up",
    "unit": "ms",
    "verify": [[1, 5.0], [64, 8.0]],
    "draft_pass": [[1, 0.5], [8, 1.0]],
    "graph_limit": 0,
}
MakePlan = Callable[..., Plan]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three models, a cost table and a prompt file of 40 lines (34 of them measured)."""
    (tmp_path / "costs.json").write_text(json.dumps(COSTS))
    for name in ("target", "draft", "blocks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(f'{{"name": "{name}"}}')
        (tmp_path / name / "model.safetensors").write_bytes(name.encode())
    blocks = {"model_type": "avbench_dspark", "block_size": 7, "enable_confidence_head": True}
    (tmp_path / "blocks" / "config.json").write_text(json.dumps(blocks))
    (tmp_path / "words.jsonl").write_text("".join(f'{{"text": "word {number}"}}\n' for number in range(40)))
    return tmp_path


@pytest.fixture
def make_plan(folder: Path) -> MakePlan:
    """The plan of the sweep above, after replacing pieces of its text: `make_plan(("passes: 2", "passes: 3"))`."""

    def make(*replacements: tuple[str, str], name: str = "toy.yaml") -> Plan:
        text = SWEEP
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        (folder / name).write_text(text)
        return expand_plan(read_sweep(folder / name))

    return make


@pytest.fixture
def plan(make_plan: MakePlan) -> Plan:
    """4 arms x 2 workloads x 3 loads x 2 passes."""
    return make_plan()
