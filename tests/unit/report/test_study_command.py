"""`avbench study` as people run it: data on stdout, talk on stderr, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.label_factories import INFO, make_labels, write_labels, write_parts


def study(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "avbench", "study", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=170, env=ENVIRONMENT)


ENVIRONMENT = {"COLUMNS": "80", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}


def test_it_prints_tables_and_writes_page_and_figures(tmp_path: Path) -> None:
    code = write_parts(tmp_path / "code" / "labels", make_labels(steps=150, seed=1), rows=5000)
    prose = write_labels(tmp_path / "prose.parquet", make_labels(steps=150, seed=2))
    page, figures = tmp_path / "out" / "study.html", tmp_path / "study.json"
    done = study(code, prose, "-o", page, "--json", figures)
    assert done.returncode == 0, done.stderr
    assert "all data sets: all positions" in done.stdout
    assert "prose: all positions" in done.stdout
    assert str(page) not in done.stdout
    assert f"page:    {page}" in done.stderr
    assert f"figures: {figures}" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [each["name"] for each in json.loads(figures.read_text())["pools"][0]["data_sets"]] == ["code", "prose"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code", "out", "prose.parquet", "study.json"]


@pytest.mark.parametrize(
    ("name", "content", "code", "words"),
    [
        ("labels.csv", b"time,step\n", 2, "not a Parquet file"),
        ("nothing.parquet", b"", 2, "empty (0 bytes)"),
        (None, b"", 2, "no such file or folder"),
    ],
)
def test_unusable_input_ends_with_its_exit_code(
    tmp_path: Path, name: str | None, content: bytes, code: int, words: str
) -> None:
    path = tmp_path / (name or "nowhere")
    if name is not None:
        path.write_bytes(content)
    done = study(path)
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert words in done.stderr
    assert "\nhint: " in done.stderr


def test_both_clocks_are_not_comparable(tmp_path: Path) -> None:
    columns = make_labels(steps=20)
    real = write_labels(tmp_path / "real.parquet", columns)
    emulated = write_labels(tmp_path / "emulated.parquet", columns, {**INFO, "clock": "emulated"})
    done = study(real, emulated)
    assert done.returncode == 3
    assert "cannot share a study" in done.stderr
