"""Replays against vLLM's own numbers, kept in files so that vLLM need not be installed.

The files are written by `AVBENCH_WRITE_GOLDEN=1 pytest tests/real/test_adaptive_against_vllm.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from avbench.adaptive.__main__ import main
from tests.adaptive_agreement import assert_agreement, replay

FILES = sorted((Path(__file__).parents[2] / "fixtures" / "adaptive").glob("*.npz"))


def read(path: Path) -> tuple[str, dict[str, NDArray], dict[str, NDArray]]:
    with np.load(path) as file:
        parts = {side: {n.removeprefix(side): file[n] for n in file.files if n.startswith(side)} for side in SIDES}
    return path.stem.split("-")[0], parts["given_"], parts["wanted_"]


SIDES = ("given_", "wanted_")


def test_every_command_has_golden_files() -> None:
    assert {path.stem.split("-")[0] for path in FILES} == {"estimate", "budget", "cost", "manager"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_replay_agrees_with_vllm(path: Path) -> None:
    command, given, wanted = read(path)
    assert_agreement(command, given, wanted, replay(command, given))


@pytest.mark.parametrize("command", ["estimate", "budget", "cost", "manager"])
def test_the_command_line_writes_what_the_replay_says(command: str, tmp_path: Path) -> None:
    path = next(path for path in FILES if path.stem.startswith(command))
    _, given, wanted = read(path)
    np.savez(tmp_path / "in.npz", **given)
    assert main([command, str(tmp_path / "in.npz"), str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as file:
        assert_agreement(command, given, wanted, {name: file[name] for name in file.files})


def test_a_wrong_answer_is_noticed() -> None:
    """The comparison itself: one count, one budget, one cost off, and it speaks up."""
    for name, changed in (
        ("estimate", "counts"),
        ("manager", "budget"),
        ("cost", "verify_table"),
        ("budget", "admitted"),
    ):
        path = next(path for path in FILES if path.stem.startswith(name))
        command, given, wanted = read(path)
        got = dict(replay(command, given))
        got[changed] = got[changed] + 1
        with pytest.raises(AssertionError):
            assert_agreement(command, given, wanted, got)
