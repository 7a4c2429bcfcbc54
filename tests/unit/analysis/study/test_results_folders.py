"""Labels of a sweep: workloads come from the windows of the cells."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from avbench.analysis.study.drafts import WARM_UP
from avbench.analysis.study.load import load_labels
from avbench.errors import UsageError
from tests.factories import ADAPTIVE, FIXED_7, failed_cell, make_manifest, make_measurement
from tests.folders import write_results
from tests.label_factories import INFO, Columns, make_labels, write_parts

START = 1_700_000_000.0


def labels_at(second: float, *, first_step: int, steps: int = 100, seed: int = 0) -> Columns:
    """10 ms steps from `second` on."""
    return make_labels(steps=steps, first_step=first_step, start=START + second, seed=seed)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A server with three cells: windows at 2 to 12 s, 102 to 112 s, and one that failed at 200 s."""
    cells = [
        make_measurement(FIXED_7, "code", 8, started=START),
        make_measurement(FIXED_7, "prose", 64, started=START + 100),
        failed_cell(make_measurement(FIXED_7, "maths", 8, started=START + 200)),
    ]
    root = write_results(tmp_path / "toy", cells, make_manifest(arms=(FIXED_7,), workloads=("code", "prose", "maths")))
    parts = [
        labels_at(1.0, first_step=0),  # until 1.99 s: warm-up of the first cell
        labels_at(2.5, first_step=100, steps=200),
        labels_at(50.0, first_step=300),
        labels_at(102.0, first_step=400, steps=150),
        labels_at(203.0, first_step=550),
    ]
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    write_parts(root / "servers" / "fixed-7-p1" / "labels", whole, rows=4000)
    return root


def test_workloads_are_joined_by_the_cells_windows(root: Path) -> None:
    labels = load_labels([root])
    (pool,) = labels.pools
    assert [data_set.name for data_set in pool.data_sets] == ["code", "prose"]
    drafts = pool.drafts
    assert set(drafts.step[drafts.data_set == 0].tolist()) == set(range(100, 300))
    assert set(drafts.step[drafts.data_set == 1].tolist()) == set(range(400, 550))
    assert set(drafts.load[drafts.data_set == 0].tolist()) == {8}
    assert set(drafts.load[drafts.data_set == 1].tolist()) == {64}
    assert set(drafts.load[drafts.data_set == WARM_UP].tolist()) == {0}
    assert pool.warm_up == (drafts.data_set == WARM_UP).sum() > 0
    assert [data_set.drafts for data_set in pool.data_sets] == [200 * 16 * 7, 150 * 16 * 7]
    assert labels.notes == ()


def test_a_servers_folder_and_its_labels_folder_know_their_sweep(root: Path) -> None:
    server = root / "servers" / "fixed-7-p1"
    for place in (server, server / "labels"):
        (pool,) = load_labels([place]).pools
        assert [data_set.name for data_set in pool.data_sets] == ["code", "prose"]


def test_labels_outside_every_window_are_scored_if_nothing_else_is_there(root: Path) -> None:
    cells = [make_measurement(FIXED_7, "code", 8, started=START + 10_000)]
    write_results(root, cells, make_manifest(arms=(FIXED_7,)))
    for leftover in (root / "cells").iterdir():
        if "code" not in leftover.name:
            for file in leftover.iterdir():
                file.unlink()
            leftover.rmdir()
    labels = load_labels([root])
    (pool,) = labels.pools
    assert [data_set.name for data_set in pool.data_sets] == ["toy"]
    assert pool.warm_up == 0
    assert "no label lies in the steady window of a finished cell" in labels.notes[0]


def test_servers_that_trim_are_a_pool_of_their_own(root: Path) -> None:
    cell = make_measurement(ADAPTIVE, "code", 8, started=START + 300)
    write_results(root, [cell], make_manifest(arms=(FIXED_7, ADAPTIVE)))
    folder = root / "servers" / cell.server / "labels"
    write_parts(folder, labels_at(303.0, first_step=0), {**INFO, "source": "estimator"}, rows=5000)
    adaptive, fixed = load_labels([root]).pools
    assert (fixed.info.trimmed, adaptive.info.trimmed) == (False, True)
    assert [data_set.name for data_set in adaptive.data_sets] == ["code"]


def test_two_sweeps_keep_their_workloads_apart(root: Path, tmp_path: Path) -> None:
    other = make_measurement(FIXED_7, "code", 8, started=START)
    second = write_results(tmp_path / "other", [other], make_manifest(arms=(FIXED_7,), name="other"))
    write_parts(second / "servers" / other.server / "labels", labels_at(3.0, first_step=0), rows=5000)
    (pool,) = load_labels([root, second]).pools
    assert [data_set.name for data_set in pool.data_sets] == ["toy: code", "prose", "other: code"]


def test_a_sweep_without_labels_says_how_to_get_some(tmp_path: Path) -> None:
    root = write_results(tmp_path / "toy", [make_measurement(FIXED_7)], make_manifest(arms=(FIXED_7,)))
    with pytest.raises(UsageError, match="no labelled drafts in this results folder") as caught:
        load_labels([root])
    assert caught.value.hint is not None
    assert "labels: true" in caught.value.hint


def test_windows_are_closed_at_their_ends(root: Path) -> None:
    """A row at the very border of a window belongs to it."""
    cell = make_measurement(FIXED_7, "code", 8, started=START)
    edge = labels_at(0.0, first_step=0, steps=1)
    edge["time"] = np.where(edge["position"] == 0, START + 2.0, START + 12.0)
    place = write_results(root.parent / "edge", [cell], make_manifest(arms=(FIXED_7,)))
    write_parts(place / "servers" / cell.server / "labels", edge, rows=5000)
    (pool,) = load_labels([place]).pools
    assert pool.warm_up == 0
    assert dataclasses.asdict(pool.data_sets[0])["labels"] == edge["labelled"].sum()
