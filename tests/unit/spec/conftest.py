"""A folder in which the valid sweep of the tests is at home."""

from __future__ import annotations

from pathlib import Path

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


@pytest.fixture
def valid() -> str:
    """The text of a valid sweep; `sweep_folder` holds what it refers to."""
    return VALID


@pytest.fixture
def sweep_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two models and a prompt file."""
    for name in ("target", "draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "emptyfolder").mkdir()
    (tmp_path / "words.jsonl").write_text("".join(f'{{"text": "word {number}"}}\n' for number in range(9)))
    monkeypatch.chdir(tmp_path)
    return tmp_path
