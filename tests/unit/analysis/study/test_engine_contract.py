"""What the embedded engine writes is what the study reads. They share no code: the engine is a program of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from avbench.analysis.study.load import load_labels
from avbench.analysis.study.schema import COLUMNS, METADATA_KEY, SCHEMA
from avbench.reference import label_parts
from tests.label_factories import INFO, make_labels


def test_columns_version_and_key_are_the_same() -> None:
    assert list(COLUMNS) == list(label_parts.COLUMNS)
    assert label_parts.SCHEMA == SCHEMA
    assert label_parts.METADATA_KEY.encode() == METADATA_KEY


def test_a_file_of_the_engine_is_read(tmp_path: Path) -> None:
    columns = make_labels(steps=40)
    kept = columns.pop("labelled")
    written = {name: values.astype(label_parts.COLUMNS[name]) for name, values in columns.items()}
    written["label"] = np.where(kept, columns["label"], label_parts.UNKNOWN).astype(np.int8)
    about = {key: value for key, value in INFO.items() if key != "schema"}
    path = tmp_path / "part-1-00000.parquet"
    path.write_bytes(label_parts.encode(written, about))
    labels = load_labels([path])
    (pool,) = labels.pools
    assert labels.notes == ()
    assert pool.drafts.label.tolist() == columns["label"][kept].tolist()
    assert pool.drafts.logit_q_max.tolist() == written["logit_q_max"][kept].tolist()
    assert pool.data_sets[0].drafts == len(kept)
