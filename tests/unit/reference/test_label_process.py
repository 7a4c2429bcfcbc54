"""Labelled drafts of an engine core in a process of its own: when it rests, when it ends, and when it is killed."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from tiny import write_pair

from avbench.reference.corelink import CORE_COMMAND, start_core
from avbench.reference.messages import Ready, Shutdown, StepOutput, Submit

SECONDS = 100.0
SLOTS, K = 64, 7
SMALL_FILES = (
    "import sys; from avbench.reference import label_parts; label_parts.PART_ROWS = 5_000\n"
    "from avbench.reference.core_process import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pair(tmp_path_factory.mktemp("pair"))


class Core:
    """A started core that writes labels to `folder`."""

    def __init__(self, pair: Path, folder: Path, command: Sequence[str]) -> None:
        config = {"method": "draft_model", "model": str(pair / "draft"), "num_speculative_tokens": K}
        argv = ["--model", str(pair / "target"), "--max-num-seqs", str(SLOTS)]
        self.folder = folder / "labels"
        changes = {"AVBENCH_TRACE_DIR": str(folder), "AVBENCH_LABELS": "1", "OMP_NUM_THREADS": "1"}
        before = dict(os.environ)
        os.environ.update(changes)
        try:
            self.process, self.link = start_core(command, [*argv, "--speculative-config", json.dumps(config)])
        finally:
            os.environ.clear()
            os.environ.update(before)
        assert isinstance(self.link.receive_all(block=True, seconds=SECONDS)[0], Ready)
        self.drafts = 0

    def submit(self, requests: range, *, max_tokens: int) -> None:
        for i in requests:
            values: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "seed": i, "ignore_eos": True}
            self.link.send(Submit(request_id=i, prompt=(0, 2, 3), max_tokens=max_tokens, **values))

    def take(self, *, seconds: float) -> int:
        """Read what has come; returns how many requests ended."""
        ended = 0
        for output in self.link.receive_all(block=True, seconds=seconds):
            assert isinstance(output, StepOutput)
            assert output.spec is not None
            self.drafts += output.spec.draft_tokens
            ended += sum(request.finish is not None for request in output.requests)
        return ended

    def finish(self, requests: int) -> None:
        deadline = time.monotonic() + SECONDS
        while requests > 0:
            assert time.monotonic() < deadline
            requests -= self.take(seconds=1)

    def rows(self) -> int:
        """Rows of all files; each of them must be whole."""
        return sum(pyarrow.parquet.read_table(path).num_rows for path in self.folder.glob("*.parquet"))


@pytest.fixture
def start(pair: Path, tmp_path: Path) -> Iterator[Callable[..., Core]]:
    started: list[Core] = []

    def core(command: Sequence[str] = CORE_COMMAND) -> Core:
        started.append(Core(pair, tmp_path, command))
        return started[-1]

    yield core
    for each in started:
        each.process.kill()
        each.process.wait()
        each.link.close()


def test_rows_are_written_at_rest_and_at_the_end(start: Callable[..., Core]) -> None:
    core = start()
    core.submit(range(2), max_tokens=30)
    core.finish(2)
    deadline = time.monotonic() + SECONDS
    while not list(core.folder.glob("*.parquet")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert core.rows() == core.drafts > 0
    core.submit(range(2, 4), max_tokens=30)
    core.finish(2)
    core.link.send(Shutdown())
    assert core.process.wait(SECONDS) == 0
    assert core.rows() == core.drafts
    assert [path.name for path in sorted(core.folder.iterdir())] == [
        f"part-{core.process.pid}-{number:05d}.parquet" for number in range(2)
    ]


def test_a_core_that_loses_its_parent_writes_what_it_has(start: Callable[..., Core]) -> None:
    core = start()
    core.submit(range(4), max_tokens=20)
    core.finish(4)
    core.link.close()
    assert core.process.wait(SECONDS) == 0
    assert core.rows() == core.drafts > 0


def test_every_file_of_a_killed_core_is_whole(start: Callable[..., Core]) -> None:
    """Killed while it writes one of its first thirty files, if it can be caught at it."""
    core = start([sys.executable, "-c", SMALL_FILES])
    core.submit(range(30 * SLOTS), max_tokens=50)
    deadline = time.monotonic() + SECONDS
    while True:
        files = list(core.folder.glob("*"))
        if len(files) > 30 or (len(files) > 3 and any(path.suffix == ".tmp" for path in files)):
            break
        assert time.monotonic() < deadline
        time.sleep(0.0002)
    core.process.kill()
    core.process.wait()
    rows = [pyarrow.parquet.read_table(path).num_rows for path in sorted(core.folder.glob("part-*.parquet"))]
    assert len(rows) >= 3
    assert all(5_000 - SLOTS * K < count <= 5_000 for count in rows), rows
