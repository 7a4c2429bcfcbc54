"""Cost tables in files: values on the capture grid by hand, and every way to write one wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from avbench.adaptive.cost_file import CostFile, capture_grid, read_cost_table
from avbench.errors import UsageError

B300 = Path(__file__).parents[3] / "sweeps/costs/dsv4-flash-tp4-b300.json"
SMALL: dict[str, Any] = {
    "schema": 1,
    "name": "small",
    "source": "made up",
    "notes": ["for a test"],
    "unit": "ms",
    "verify": [[1, 2.0], [8, 9.0], [32, 33.0], [64, 100.0], [128, 164.0]],
    "draft_block": [[1, 1.0], [16, 4.0]],
    "draft_pass": [[1, 0.5], [16, 0.8]],
    "graph_limit": 32,
}


def write(folder: Path, **changes: Any) -> Path:
    """`SMALL` with changes; None removes a key."""
    data = {key: value for key, value in {**SMALL, **changes}.items() if value is not None}
    path = folder / "table.json"
    path.write_text(json.dumps(data))
    return path


def test_capture_grid_is_vllms() -> None:
    assert capture_grid(40) == (1, 2, 4, 8, 16, 24, 32, 40)
    assert capture_grid(288)[-4:] == (248, 256, 272, 288)
    assert capture_grid(6) == (1, 2, 4, 6)
    assert capture_grid(1) == (1,)


def test_points_are_interpolated_onto_the_grid_before_they_become_a_staircase(tmp_path: Path) -> None:
    tables = read_cost_table(write(tmp_path)).tables(kind="block", depth=3, max_requests=16, max_tokens=140)
    # grid 1, 2, 4, 8: 2, 3, 5, 9 on the line from (1, 2) to (8, 9); then (16, 17), (24, 25), (32, 33)
    assert tables.verify[:10] == pytest.approx([2, 2, 3, 5, 5, 9, 9, 9, 9, 17])
    assert tables.verify[[16, 17, 24, 25, 32]] == pytest.approx([17, 25, 25, 33, 33])
    # beyond the limit: the first eager point, then linear, then the last slope; never blended with (32, 33)
    assert tables.verify[[33, 64, 96, 128, 132]] == pytest.approx([100, 100, 132, 164, 168])
    # draft: 1 + 3/15 (r - 1) at 1, 2, 4, 8, 16 requests
    assert tables.draft == pytest.approx([1, 1, 1.2, 1.6, 1.6, *[2.4] * 4, *[4.0] * 8])


def test_a_sequential_drafter_pays_each_pass_and_a_block_is_paid_once(tmp_path: Path) -> None:
    table = read_cost_table(write(tmp_path))

    def draft(kind: Any, depth: int) -> list[float]:
        return table.tables(kind=kind, depth=depth, max_requests=16, max_tokens=1).draft[[1, 16]].tolist()

    assert draft("pass", 1) == pytest.approx([0.5, 0.8])
    assert draft("pass", 7) == pytest.approx([3.5, 5.6])
    assert draft("block", 1) == draft("block", 7) == pytest.approx([1.0, 4.0])
    assert draft("pass", 0) == draft("block", 0) == [0.0, 0.0]


def test_without_a_graph_limit_nothing_is_padded(tmp_path: Path) -> None:
    table = read_cost_table(write(tmp_path, graph_limit=0))
    tables = table.tables(kind="pass", depth=2, max_requests=16, max_tokens=64)
    assert tables.verify[[1, 2, 3, 20, 48]] == pytest.approx([2, 3, 4, 21, 66.5])
    assert tables.draft[[1, 2, 16]] == pytest.approx([1.0, 1.04, 1.6])


def test_captured_sizes_may_be_listed(tmp_path: Path) -> None:
    table = read_cost_table(write(tmp_path, capture_tokens=[8, 32], capture_requests=[4, 16]))
    tables = table.tables(kind="block", depth=1, max_requests=16, max_tokens=32)
    assert tables.verify[[1, 8, 9, 32]] == pytest.approx([9, 9, 33, 33])
    assert tables.draft[[1, 4, 5]] == pytest.approx([1.6, 1.6, 4.0])


def test_the_shipped_table_holds_the_published_figures() -> None:
    table = read_cost_table(B300)
    block = table.tables(kind="block", depth=7, max_requests=256, max_tokens=4096)
    assert block.verify[[1, 32, 80, 128, 224, 384, 576, 768, 960, 1024]] == pytest.approx(
        [5.1, 6.3, 8.5, 9.4, 11.0, 13.8, 15.9, 17.2, 19.6, 20.6]
    )
    assert block.verify[3] == pytest.approx(5.1 + 3 / 31 * 1.2)  # padded to 4
    assert block.verify[33] == pytest.approx(6.3 + 8 / 48 * 2.2)  # padded to 40
    assert block.verify[[1025, 1536, 4096]] == pytest.approx([104, 104, 133])
    assert block.draft[[1, 2, 256]] == pytest.approx([0.9, 0.9 + 4.5 / 255, 5.4])
    passes = table.tables(kind="pass", depth=7, max_requests=256, max_tokens=1)
    assert passes.draft[[1, 256]] == pytest.approx([6.3, 7 * (0.9 + 4.5 / 7)], abs=1e-3)
    assert any("assumption" in note for note in table.notes)


def test_loads_beyond_the_table_are_refused_with_the_range(tmp_path: Path) -> None:
    table = read_cost_table(write(tmp_path))
    table.check_covers(16, k=7, kind="pass")
    with pytest.raises(UsageError, match=r"17 requests, but `draft_block` covers 1 to 16 requests"):
        table.check_covers(17)
    with pytest.raises(
        UsageError, match=r"16 requests with 8 drafts each are 144 tokens, but `verify` covers 1 to 128"
    ):
        table.check_covers(16, k=8)
    with pytest.raises(UsageError, match="200 requests are 200 tokens"):
        table.check_covers(200)


def test_a_missing_kind_of_drafting_is_named(tmp_path: Path) -> None:
    table = read_cost_table(write(tmp_path, draft_pass=None))
    with pytest.raises(UsageError, match=r"`draft_pass`.* is missing") as caught:
        table.tables(kind="pass", depth=1, max_requests=1, max_tokens=1)
    assert caught.value.hint is not None
    assert "the file has `draft_block`" in caught.value.hint
    with pytest.raises(UsageError, match="`draft_pass`"):
        table.check_covers(1, k=1, kind="pass")
    bare = read_cost_table(write(tmp_path, draft_pass=None, draft_block=None))
    assert bare.tables(kind="pass", depth=0, max_requests=2, max_tokens=2).draft.tolist() == [0, 0, 0]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"source": None}, "the key `source` is missing"),
    "unknown": ({"drafts": [[1, 1]]}, "unknown key `drafts`"),
    "schema": ({"schema": 2}, "`schema` is 2, expected 1"),
    "unit": ({"unit": "s"}, '`unit` is "s", expected "ms"'),
    "empty": ({"verify": []}, r"`verify` is \[\]"),
    "no list": ({"verify": {"1": 2}}, "`verify` is"),
    "no pair": ({"verify": [[1, 2.0, 3]]}, r"`verify\[0\]` is \[1, 2.0, 3\], expected \[size, ms\]"),
    "falling size": ({"verify": [[4, 1.0], [2, 2.0]]}, r"`verify\[1\]` is \[2, 2.0\], expected a size above the 4"),
    "same size": ({"draft_block": [[4, 1.0], [4, 2.0]]}, r"`draft_block\[1\]`"),
    "size 0": ({"draft_pass": [[0, 1.0]]}, r"`draft_pass\[0\]` is 0, expected a whole number from 1"),
    "half a size": ({"verify": [[1.5, 1.0]]}, r"`verify\[0\]` is 1.5"),
    "true": ({"verify": [[True, 1.0]]}, r"`verify\[0\]` is true"),
    "negative": ({"verify": [[1, -1.0]]}, r"`verify\[0\]` is -1.0, expected milliseconds, finite and not negative"),
    "infinite": ({"verify": [[1, float("inf")]]}, r"`verify\[0\]` is Infinity"),
    "not a number": ({"verify": [[1, float("nan")]]}, r"`verify\[0\]` is NaN"),
    "text": ({"verify": [[1, "5"]]}, r'`verify\[0\]` is "5"'),
    "limit": ({"graph_limit": 40}, "`graph_limit` is 40, expected a size that `verify` has a point for"),
    "negative limit": ({"graph_limit": -1}, "`graph_limit` is -1"),
    "name": ({"name": " "}, '`name` is " ", expected a text'),
    "notes": ({"notes": "x"}, '`notes` is "x", expected a list'),
    "note": ({"notes": [1]}, r"`notes\[0\]` is 1"),
    "grid word": ({"capture_tokens": "all"}, '`capture_tokens` is "all", expected "vllm" or a list'),
    "grid end": ({"capture_tokens": [8, 16]}, "expected sizes that rise and end with 32"),
    "grid order": ({"capture_requests": [8, 4, 16]}, "expected sizes that rise and end with 16"),
    "grid for nothing": ({"graph_limit": 0, "capture_tokens": [8]}, "where `graph_limit` is 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_everything_wrong_is_named_with_file_and_key(tmp_path: Path, case: str) -> None:
    changes, message = BAD[case]
    path = write(tmp_path, **changes)
    with pytest.raises(UsageError, match=message) as caught:
        read_cost_table(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ("[1]", "expected a JSON object")])
def test_a_file_that_is_no_table(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_cost_table(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_cost_table(tmp_path / "none.json")
    with pytest.raises(UsageError, match=r"trace\.jsonl: the cost table cannot be read"):
        read_cost_table(tmp_path)


START = {"event": "start", "time": 0.0, "k": 4}
COSTS = {"event": "costs", "time": 1.0, "draft": [[1, 4.0], [8, 8.0]], "verify": [[1, 3.0], [16, 6.0]], "context": 256}


def trace(folder: Path, *events: dict[str, Any], tail: str = "") -> Path:
    (folder / "trace.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + tail)
    return folder


def test_the_costs_event_of_a_trace_is_a_table(tmp_path: Path) -> None:
    """Its draft curve is that of 4 drafts: a pass is a quarter of it."""
    event = {**COSTS, "drafter": "pass", "k": 4}
    for place in (trace(tmp_path, START, event), tmp_path / "trace.jsonl"):
        table = read_cost_table(place)
        assert table.graph_limit == 0
        tables = table.tables(kind="pass", depth=2, max_requests=8, max_tokens=16)
        assert tables.draft[[1, 8]] == pytest.approx([2.0, 4.0])
        assert tables.verify[[1, 16]] == pytest.approx([3.0, 6.0])
    with pytest.raises(UsageError, match=r"`draft_block`.* is missing"):
        table.tables(kind="block", depth=4, max_requests=8, max_tokens=16)


def test_a_block_of_a_trace_is_taken_whole(tmp_path: Path) -> None:
    table = read_cost_table(trace(tmp_path, {**COSTS, "drafter": "block", "k": 7}))
    assert table.tables(kind="block", depth=3, max_requests=8, max_tokens=1).draft[[1, 8]] == pytest.approx([4.0, 8.0])
    with pytest.raises(UsageError, match=r"`draft_pass`.* is missing"):
        table.check_covers(1, k=1, kind="pass")


def test_an_older_trace_says_k_at_its_start(tmp_path: Path) -> None:
    table = read_cost_table(trace(tmp_path, START, COSTS, tail='{"event": "costs", "dra'))
    assert table.draft == {"pass": ((1, 1.0), (8, 2.0))}


def test_a_padding_engine_says_so_in_its_trace(tmp_path: Path) -> None:
    event = {**COSTS, "drafter": "block", "k": 7, "graph_limit": 16}
    table = read_cost_table(trace(tmp_path, event))
    verify = table.tables(kind="block", depth=7, max_requests=8, max_tokens=16).verify
    assert verify[[3, 4, 9, 16]] == pytest.approx([3.6, 3.6, 6.0, 6.0])


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([START], "the trace has no `costs` event"),
        ([{**COSTS, "drafter": "oracle", "k": 4}], '`drafter` is "oracle"'),
        ([COSTS], "`k` is null, expected a whole number from 1"),
        ([START, {**COSTS, "verify": [[2, 1.0], [1, 2.0]]}], r"`verify\[1\]`"),
        ([START, {key: value for key, value in COSTS.items() if key != "draft"}], "`draft` is null"),
    ],
)
def test_a_trace_that_is_no_table(tmp_path: Path, events: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_cost_table(trace(tmp_path, *events))


def test_the_same_table_twice_is_equal(tmp_path: Path) -> None:
    read: Callable[[], CostFile] = lambda: read_cost_table(write(tmp_path))  # noqa: E731
    assert read() == read()
