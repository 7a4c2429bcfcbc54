"""Files and folders: what is read, what is refused and in which words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from avbench.analysis.study.load import Labels, load_labels
from avbench.analysis.study.parquet import read_label_file
from avbench.errors import NotComparableError, UsageError
from tests.label_factories import INFO, Columns, Truth, arrow_table, make_labels, write_labels, write_parts


@pytest.fixture
def columns() -> Columns:
    return make_labels(steps=60)


def notes(labels: Labels) -> str:
    return "\n".join(labels.notes)


def test_a_file_is_read_as_it_was_written(tmp_path: Path, columns: Columns) -> None:
    (pool,) = load_labels([write_labels(tmp_path / "code.parquet", columns)]).pools
    kept = columns["labelled"]
    drafts = pool.drafts
    assert len(drafts) == kept.sum()
    assert drafts.label.tolist() == columns["label"][kept].tolist()
    assert drafts.step.tolist() == columns["step"][kept].tolist()
    assert drafts.logit_q_max == pytest.approx(columns["logit_q_max"][kept])
    assert drafts.head is not None
    assert drafts.head == pytest.approx(columns["head"][kept], rel=1e-6)
    assert drafts.prediction is None  # null throughout
    assert len(set(drafts.request.tolist())) == len(set(columns["request"][kept].tolist()))
    assert (pool.k, pool.streams[0].refit_interval, pool.warm_up) == (7, 100, 0)
    (data_set,) = pool.data_sets
    assert (data_set.name, data_set.drafts, data_set.labels) == ("code", len(kept), kept.sum())
    assert data_set.entropy == pytest.approx(columns["entropy"].mean(), rel=1e-6)  # of all drafts, labelled or not
    assert pool.name == "toy + toy-draft (draft_model) · probabilistic"


def test_parts_of_a_process_are_one_stream_in_their_order(tmp_path: Path, columns: Columns) -> None:
    whole = write_labels(tmp_path / "whole.parquet", columns)
    folder = write_parts(tmp_path / "server" / "labels", columns, rows=1000)
    assert len(list(folder.iterdir())) > 5
    (folder / ".part-42-00099.parquet.unfinished").write_bytes(b"PAR1")
    for place in (folder, folder.parent):
        labels = load_labels([place])
        (pool,) = labels.pools
        assert pool.data_sets[0].name == "server"
        assert len(pool.streams) == 1
        (one,) = load_labels([whole]).pools
        assert pool.drafts.step.tolist() == one.drafts.step.tolist()
        assert labels.notes == ()


def test_each_process_is_a_stream_with_requests_of_its_own(tmp_path: Path, columns: Columns) -> None:
    for pid in (7, 8):
        write_parts(tmp_path / "labels", columns, rows=3000, pid=pid)
    (pool,) = load_labels([tmp_path / "labels"]).pools
    assert [stream.name.rpartition("/")[2] for stream in pool.streams] == ["part-7", "part-8"]
    first, second = (set(pool.drafts.request[pool.drafts.stream == number].tolist()) for number in (0, 1))
    assert not first & second


def test_several_arguments_are_several_data_sets(tmp_path: Path) -> None:
    paths = [write_labels(tmp_path / f"{name}.parquet", make_labels(steps=40, seed=3)) for name in ("code", "prose")]
    (pool,) = load_labels([*paths, paths[0]]).pools  # the same one twice is one
    assert [data_set.name for data_set in pool.data_sets] == ["code", "prose"]
    assert np.bincount(pool.drafts.data_set).tolist() == [data_set.labels for data_set in pool.data_sets]


def test_files_of_one_name_are_told_apart_by_their_paths(tmp_path: Path, columns: Columns) -> None:
    paths = [write_labels(tmp_path / folder / "code.parquet", columns) for folder in ("a", "b")]
    (pool,) = load_labels(paths).pools
    assert [data_set.name for data_set in pool.data_sets] == ["code", str(paths[1])]


def test_pairs_samplings_and_trimming_are_pools_of_their_own(tmp_path: Path, columns: Columns) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"draft_sampling": "greedy"},
        {"draft": "/models/other"},
        {"source": "head", "observe": True},  # nothing trimmed: belongs to the first
        {"source": "head"},
    ]
    paths = [
        write_labels(tmp_path / f"{index}.parquet", columns, {**INFO, **change}) for index, change in enumerate(changes)
    ]
    labels = load_labels(paths)
    assert [pool.name for pool in labels.pools] == [
        "toy + toy-draft (draft_model) · probabilistic",
        "toy + toy-draft (draft_model) · greedy",
        "toy + other (draft_model) · probabilistic",
        "toy + toy-draft (draft_model) · probabilistic · trimmed by the head",
    ]
    assert [len(pool.data_sets) for pool in labels.pools] == [2, 1, 1, 1]
    assert [pool.info.trimmed for pool in labels.pools] == [False, False, False, True]


def test_drafts_of_one_name_in_different_folders_are_named_in_full(tmp_path: Path, columns: Columns) -> None:
    paths = [
        write_labels(tmp_path / f"{index}.parquet", columns, {**INFO, "draft": draft})
        for index, draft in enumerate(("/a/draft", "/b/draft"))
    ]
    names = [pool.name for pool in load_labels(paths).pools]
    assert "/a/draft" in names[0]
    assert "/b/draft" in names[1]


def test_mixed_depths_are_studied_apart(tmp_path: Path, columns: Columns) -> None:
    shallow = make_labels(Truth(intercepts=(0.5, 0.2, 0.0)), steps=50)
    labels = load_labels(
        [
            write_labels(tmp_path / "deep.parquet", columns),
            write_labels(tmp_path / "shallow.parquet", shallow, {**INFO, "k": 3}),
        ]
    )
    assert [(pool.k, pool.name.rpartition("· ")[2]) for pool in labels.pools] == [(7, "K=7"), (3, "K=3")]
    assert "K=3, K=7" in notes(labels)


def test_a_restart_is_a_life_of_its_own(tmp_path: Path, columns: Columns) -> None:
    later = make_labels(steps=60, seed=9, start=1_700_000_100.0)
    both = {name: np.concatenate([values, later[name]]) for name, values in columns.items()}
    labels = load_labels([write_labels(tmp_path / "code.parquet", both)])
    assert len(labels.pools[0].streams) == 2
    assert "read as engine restarts" in notes(labels)
    assert labels.pools[0].data_sets[0].drafts == 2 * len(columns["step"])


def test_rows_out_of_order_are_sorted(tmp_path: Path, columns: Columns) -> None:
    order = np.lexsort((columns["position"], columns["step"], columns["request"]))
    labels = load_labels([write_labels(tmp_path / "code.parquet", {n: v[order] for n, v in columns.items()})])
    drafts = labels.pools[0].drafts
    assert np.all(np.diff(drafts.step) >= 0)
    assert len(labels.pools[0].streams) == 1
    assert "not come in the order of engine steps" in notes(labels)


def test_emulated_and_real_ones_cannot_share_a_study(tmp_path: Path, columns: Columns) -> None:
    real = write_labels(tmp_path / "real.parquet", columns)
    emulated = write_labels(tmp_path / "emulated.parquet", columns, {**INFO, "clock": "emulated"})
    assert load_labels([emulated]).emulated
    with pytest.raises(NotComparableError, match=r"emulated labels \(emulated\.parquet\) and real ones"):
        load_labels([real, emulated])


# What is wrong with a file.


def refused(path: Path) -> UsageError:
    with pytest.raises(UsageError) as caught:
        load_labels([path])
    assert caught.value.exit_code == 2
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value


Spoil = Callable[[Path, Columns], Any]


def _missing(path: Path, columns: Columns) -> None:
    pq.write_table(arrow_table(columns).drop(["label", "step", "margin"]), path)


def _no_feature(path: Path, columns: Columns) -> None:
    pq.write_table(arrow_table(columns).drop(["q_max", "logit_q_max"]), path)


def _cut(path: Path, columns: Columns) -> None:
    write_labels(path, columns)
    path.write_bytes(path.read_bytes()[:-100])


def _broken_inside(path: Path, columns: Columns) -> None:
    write_labels(path, columns)
    content = bytearray(path.read_bytes())
    content[-200:-8] = bytes(192)
    path.write_bytes(bytes(content))


def _text_position(path: Path, columns: Columns) -> None:
    table = arrow_table(columns)
    words = pa.array([str(value) for value in columns["position"]])
    pq.write_table(table.set_column(table.schema.get_field_index("position"), "position", words), path)


def _unlabelled(path: Path, columns: Columns) -> None:
    write_labels(path, {**columns, "labelled": np.zeros_like(columns["labelled"])})


BAD: list[tuple[Spoil, list[str]]] = [
    (_missing, ["required columns are missing: `step`, `label`"]),
    (_no_feature, ["`q_max` and `logit_q_max` are both missing"]),
    (lambda path, columns: write_labels(path, columns, {**INFO, "schema": 2}), ["schema 2", "reads schema 1"]),
    (lambda path, columns: write_labels(path, columns, {"k": 7}), ["schema None", "reads schema 1"]),
    (lambda path, columns: write_labels(path, columns, {**INFO, "k": "seven"}), ["`k` in the metadata is 'seven'"]),
    (lambda path, columns: write_labels(path, columns, {**INFO, "refit_interval": 0}), ["is 0, expected at least 1"]),
    (lambda path, columns: write_labels(path, columns, {**INFO, "clock": "fast"}), ["`fast`", "`emulated`"]),
    (lambda path, _: path.write_text("time,step\n1,2\n"), ["not a Parquet file"]),
    (lambda path, _: path.write_bytes(b""), ["empty (0 bytes)"]),
    (_cut, ["cut off after"]),
    (_broken_inside, ["cannot be read"]),
    (_text_position, ["column `position` is of type string, expected an integer type"]),
    (_unlabelled, ["no draft with a label that can be used"]),
    (lambda path, columns: write_labels(path, {n: v[:0] for n, v in columns.items()}), ["no draft with a label"]),
]


@pytest.mark.parametrize(("spoil", "words"), BAD)
def test_a_bad_file_is_refused_with_its_reason(
    tmp_path: Path, columns: Columns, spoil: Spoil, words: list[str]
) -> None:
    path = tmp_path / "code.parquet"
    spoil(path, columns)
    message = refused(path).message
    for word in words:
        assert word in message


def test_metadata_that_is_no_json_is_refused(tmp_path: Path, columns: Columns) -> None:
    for text in ("{", "[1]"):
        path = tmp_path / "code.parquet"
        pq.write_table(arrow_table(columns, None).replace_schema_metadata({"avbench.labels": text}), path)
        assert "JSON" in refused(path).message


@pytest.mark.parametrize(("spoil", "word"), [(_cut, "cut off after"), (_missing, "required columns are missing")])
def test_one_bad_part_is_left_out_with_a_note(tmp_path: Path, columns: Columns, spoil: Spoil, word: str) -> None:
    folder = write_parts(tmp_path / "labels", columns, rows=3000)
    spoil(sorted(folder.iterdir())[0], columns)
    labels = load_labels([folder])
    assert word in notes(labels)
    assert notes(labels).startswith("Left out: ")
    assert 0 < len(labels.pools[0].drafts) < columns["labelled"].sum()


def test_places_without_labels_are_refused(tmp_path: Path) -> None:
    assert "no such file or folder" in refused(tmp_path / "nowhere").message
    assert "no Parquet files here" in refused(tmp_path).message


# What is odd, but leaves a study.


def test_without_metadata_the_defaults_are_said(tmp_path: Path, columns: Columns) -> None:
    labels = load_labels([write_labels(tmp_path / "code.parquet", columns, None)])
    (pool,) = labels.pools
    assert (pool.k, pool.streams[0].refit_interval) == (7, 100)
    assert pool.name == "pair not named · draft sampling not named"
    assert "no `avbench.labels` metadata" in notes(labels)


def test_unknown_metadata_and_columns_are_ignored(tmp_path: Path, columns: Columns) -> None:
    path = tmp_path / "code.parquet"
    table = arrow_table(columns, {**INFO, "later": [1]}).append_column("later", pa.array(columns["step"]))
    pq.write_table(table, path)
    labels = load_labels([path])
    assert labels.notes == ()


def test_optional_columns_may_be_absent(tmp_path: Path, columns: Columns) -> None:
    absent = ["time", "request", "temperature", "entropy", "margin", "q_sampled", "head", "prediction", "admitted"]
    path = tmp_path / "code.parquet"
    pq.write_table(arrow_table(columns).drop([*absent, "logit_q_max"]), path)
    labels = load_labels([path])
    (pool,) = labels.pools
    kept = columns["labelled"]
    assert pool.drafts.logit_q_max == pytest.approx(columns["logit_q_max"][kept], abs=0.05)  # 1 - q in float32
    assert pool.drafts.entropy is pool.drafts.head is None
    assert pool.drafts.admitted.all()
    assert pool.data_sets[0].entropy is None
    assert "no column `entropy`, `margin`, `q_sampled`, `head`, `prediction`, `request`, `time`" in notes(labels)
    assert "without a request" in notes(labels)


def test_values_that_cannot_be_are_left_out_and_counted(tmp_path: Path, columns: Columns) -> None:
    rows = np.flatnonzero(columns["labelled"])
    columns["q_max"][rows[0]] = np.nan
    columns["entropy"][rows[1]] = np.inf
    columns["q_sampled"][rows[2]] = 1.5
    columns["position"][rows[3]] = -1
    columns["entropy"][rows[4]] = -2.0
    unlabelled = np.flatnonzero(~columns["labelled"])[0]
    columns["margin"][unlabelled] = np.nan  # has no label: nobody minds
    labels = load_labels([write_labels(tmp_path / "code.parquet", columns)])
    assert len(labels.pools[0].drafts) == len(rows) - 5
    for word in (
        "1 label left out: `q_max` is NaN or infinite",
        "1 label left out: `entropy` is NaN or infinite",
        "1 label left out: `q_sampled` outside 0 to 1",
        "1 label left out: `position` null or outside 0 to 255",
        "1 label left out: `entropy` below 0",
    ):
        assert word in notes(labels)
    assert "margin" not in notes(labels)


def test_a_head_that_scored_only_some_drafts_is_left_out(tmp_path: Path, columns: Columns) -> None:
    columns["head"][np.flatnonzero(columns["labelled"])[:3]] = np.nan
    labels = load_labels([write_labels(tmp_path / "code.parquet", columns)])
    assert labels.pools[0].drafts.head is None
    assert "the head's score is missing at 3 of" in notes(labels)


def test_labels_without_a_request_are_kept_and_said(tmp_path: Path, columns: Columns) -> None:
    path = tmp_path / "code.parquet"
    table = arrow_table(columns)
    first = np.arange(len(columns["step"])) < 700
    nulls = pa.array(columns["request"], mask=first)
    pq.write_table(table.set_column(table.schema.get_field_index("request"), "request", nulls), path)
    labels = load_labels([path])
    drafts = labels.pools[0].drafts
    nameless = int((columns["labelled"] & first).sum())
    assert (drafts.request == -1).sum() == nameless
    assert f"{nameless} labels without a request" in notes(labels)


def test_labels_behind_a_rejection_are_said(tmp_path: Path, columns: Columns) -> None:
    columns["labelled"] = np.ones_like(columns["labelled"])
    assert "behind a rejection" in notes(load_labels([write_labels(tmp_path / "code.parquet", columns)]))


def test_float64_and_small_integers_from_elsewhere_are_read(tmp_path: Path, columns: Columns) -> None:
    table = arrow_table(columns)
    schema = pa.schema(
        [
            pa.field(field.name, pa.float64() if field.type == pa.float32() else field.type)
            if field.name != "step"
            else pa.field("step", pa.int32())
            for field in table.schema
        ],
        metadata={"avbench.labels": json.dumps(INFO)},
    )
    path = tmp_path / "code.parquet"
    pq.write_table(table.cast(schema), path)
    found = read_label_file(path)
    assert found.columns["q_max"].dtype == np.float32
    assert found.columns["step"].dtype == np.int64
    assert load_labels([path]).notes == ()
