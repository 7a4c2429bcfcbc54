"""The files of labelled drafts: what is in them, when they appear, and what happens if they cannot."""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from avbench.adaptive.estimator import OnlineAcceptanceEstimator
from avbench.reference import label_parts
from avbench.reference.drafter import DraftBlock, DraftDetail
from avbench.reference.label_parts import COLUMNS, PART_ROWS, UNKNOWN, LabelParts
from avbench.reference.labels import Labels

TYPES = {
    "time": "double",
    "step": "int64",
    "request": "int64",
    "position": "int16",
    "temperature": "float",
    "q_max": "float",
    "logit_q_max": "float",
    "entropy": "float",
    "margin": "float",
    "q_sampled": "float",
    "head": "float",
    "prediction": "float",
    "admitted": "bool",
    "label": "bool",
}


def rows(step: int, **changes: Any) -> dict[str, Any]:
    return dict.fromkeys(COLUMNS, 0) | {"step": step} | changes


def steps_of(path: Path) -> list[int]:
    return pyarrow.parquet.read_table(path)["step"].to_pylist()


def test_a_file_says_what_it_is(tmp_path: Path) -> None:
    parts = LabelParts(tmp_path / "labels", {"k": 7, "source": None, "observe": False})
    parts.append(3, rows(4, head=np.nan, prediction=np.float32([0.5, np.nan, 1]), label=np.int8([1, UNKNOWN, 0])))
    assert not (tmp_path / "labels").exists()
    parts.flush()
    (path,) = (tmp_path / "labels").iterdir()
    assert path.name == f"part-{os.getpid()}-00000.parquet"
    table = pyarrow.parquet.read_table(path)
    assert {field.name: str(field.type) for field in table.schema} == TYPES
    assert json.loads(table.schema.metadata[b"avbench.labels"]) == {
        "schema": 1,
        "k": 7,
        "source": None,
        "observe": False,
    }
    assert table["head"].to_pylist() == [None] * 3
    assert table["prediction"].to_pylist() == [0.5, None, 1.0]
    assert table["label"].to_pylist() == [True, None, False]
    assert table["admitted"].to_pylist() == [False] * 3
    parts.flush()
    assert len(list((tmp_path / "labels").iterdir())) == 1, "nothing new, no new file"


def test_a_full_buffer_is_a_file_and_a_step_stays_whole(tmp_path: Path) -> None:
    parts = LabelParts(tmp_path, {})
    for step in range(3):
        parts.append(30_000, rows(step))
    assert [path.name[-13:] for path in tmp_path.iterdir()] == ["00000.parquet"]
    parts.append(PART_ROWS, rows(3))
    parts.flush()
    written = [steps_of(path) for path in sorted(tmp_path.iterdir())]
    assert [len(steps) for steps in written] == [60_000, 30_000, PART_ROWS]
    assert [sorted(set(steps)) for steps in written] == [[0, 1], [2], [3]]


def test_a_step_larger_than_a_file_is_several(tmp_path: Path) -> None:
    requests, k = 1500, 64
    labels = Labels(LabelParts(tmp_path, {}), slots=requests, k=k)
    everyone, all_of_them = np.arange(requests), np.full(requests, k)
    for slot in range(requests):
        labels.enter(slot, request=slot, temperature=1.0)
    labels.verdict(
        0,
        everyone,
        scheduled=all_of_them,
        admitted=all_of_them,
        verified=all_of_them,
        accepted=all_of_them,
        predictions=None,
    )
    labels.flush()
    tables = [pyarrow.parquet.read_table(path) for path in sorted(tmp_path.iterdir())]
    assert [table.num_rows for table in tables] == [PART_ROWS, requests * k - PART_ROWS]
    both = pyarrow.concat_tables(tables)
    assert both["request"].to_pylist() == np.repeat(everyone, k).tolist()
    assert both["position"].to_pylist() == np.tile(np.arange(k), requests).tolist()


def test_rows_do_not_wait_longer_than_agreed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(label_parts.time, "monotonic", lambda: now[0])
    parts = LabelParts(tmp_path, {})
    for now[0] in (100.0, 129.0):
        parts.append(1, rows(0))
    assert not list(tmp_path.iterdir())
    now[0] = 130.5
    parts.append(1, rows(0))
    assert len(list(tmp_path.iterdir())) == 1
    assert parts.rows == 0


def test_files_of_an_earlier_process_with_the_same_number_stay(tmp_path: Path) -> None:
    for step in range(2):
        parts = LabelParts(tmp_path, {})
        parts.append(1, rows(step))
        parts.flush()
    assert [steps_of(path) for path in sorted(tmp_path.iterdir())] == [[0], [1]]


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file may grow beyond `limit` bytes: the kernel's own refusal in the middle of a write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_ends_the_labels_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = LabelParts(tmp_path, {})
    parts.append(1, rows(0))
    parts.flush()
    parts.append(1000, rows(1))
    with full_disk(500):
        parts.flush()
    parts.append(1000, rows(2))
    parts.flush()
    assert parts.ended
    assert capsys.readouterr().err.count("labelled drafts end here") == 1
    assert [steps_of(path) for path in tmp_path.iterdir()] == [[0]], "no remains of the file that did not fit"


def test_memory_does_not_grow_with_the_number_of_steps(tmp_path: Path) -> None:
    """Labels and the online estimator, through three files and three hundred refits."""
    slots, k = 64, 7
    labels = Labels(LabelParts(tmp_path, {}), slots=slots, k=k)
    estimator = OnlineAcceptanceEstimator(max_requests=slots, positions=k, refit_interval=1)
    rng, everyone, all_of_them = np.random.default_rng(0), np.arange(slots), np.full(slots, k)

    def steps(count: int) -> None:
        for step in range(count):
            complement = rng.random((slots, k), np.float32)
            detail = DraftDetail(entropy=complement, margin=complement, sampled=complement)
            tokens = np.zeros((slots, k), np.int64)
            labels.drafted(everyone, DraftBlock(tokens=tokens, complement=complement, head=None, detail=detail))
            accepted = rng.integers(0, k + 1, slots)
            predictions = estimator.predict(complement, everyone)
            estimator.step(everyone, accepted + 1, all_of_them - accepted)
            counts = {"scheduled": all_of_them, "admitted": all_of_them, "verified": all_of_them}
            labels.verdict(step, everyone, **counts, accepted=accepted, predictions=predictions)

    def memory() -> int:
        gc.collect()  # also empties the interpreter's own lists of spare objects
        return tracemalloc.get_traced_memory()[0]

    steps(150)  # the first file, and what numpy and pyarrow keep for good
    tracemalloc.start()
    try:
        before = memory()
        steps(300)
        after = memory()
    finally:
        tracemalloc.stop()
    assert len(list(tmp_path.iterdir())) >= 3
    assert after - before < 20_000  # one float more per draft would be half a megabyte


def test_pyarrow_is_loaded_only_for_labels() -> None:
    code = (
        "import sys; import avbench.reference.core_process\n"
        "assert 'pyarrow' not in sys.modules\n"
        "from pathlib import Path; from avbench.reference.label_parts import LabelParts\n"
        "LabelParts(Path('unused'), {}); assert 'pyarrow.parquet' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
