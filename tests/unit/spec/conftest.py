"""A folder in which the valid sweep of the tests is at home."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

VALID = """\
pair:
  target: target
  draft: draft
arms:
  - none
  - fixed: [1, 3]
  - adaptive: 7
workloads:
  - prompts: words.jsonl
    max_tokens: 48
load:
  concurrency: [1, 8]
passes: 2
"""
BLOCKS = {"model_type": "avbench_dspark", "block_size": 7}
CONFIGS = {
    "target": {},
    "draft": {},
    "dspark": {**BLOCKS, "enable_confidence_head": True},
    "headless": {**BLOCKS, "enable_confidence_head": False},
}
COSTS: dict[str, Any] = {
    "schema": 1,
    "name": "a table",
    "source": "made up",
    "unit": "ms",
    "verify": [[1, 5.0], [64, 8.0]],
    "draft_pass": [[1, 0.5], [8, 1.0]],
    "graph_limit": 0,
}
TABLES = {
    "costs.json": COSTS,
    "shallow.json": {**COSTS, "verify": [[1, 5.0], [63, 8.0]]},
    "narrow.json": {**COSTS, "draft_pass": [[1, 0.5], [7, 1.0]]},
    "blocks.json": {**{k: v for k, v in COSTS.items() if k != "draft_pass"}, "draft_block": [[1, 0.5], [8, 1.0]]},
    "seconds.json": {**COSTS, "unit": "s"},
}


@pytest.fixture
def valid() -> str:
    """The text of a valid sweep; `sweep_folder` holds what it refers to."""
    return VALID


@pytest.fixture
def sweep_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two models, two drafters of blocks, cost tables and a prompt file."""
    for name, config in CONFIGS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    for name, table in TABLES.items():
        (tmp_path / name).write_text(json.dumps(table))
    (tmp_path / "emptyfolder").mkdir()
    (tmp_path / "words.jsonl").write_text("".join(f'{{"text": "word {number}"}}\n' for number in range(9)))
    monkeypatch.chdir(tmp_path)
    return tmp_path
