from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fake_engine.sweeps import environment, run_avbench, write_sweep


@pytest.fixture(scope="session")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    write_sweep(folder)
    found = run_avbench(folder, "sweep", "mini.yaml", env=environment(journal=str(folder / "journal")))
    assert found.returncode == 0, found.stderr
    (folder / "stdout").write_text(found.stdout)
    (folder / "stderr").write_text(found.stderr)
    return folder


@pytest.fixture
def finished(_finished: Path, tmp_path: Path) -> Path:
    """A folder with `mini.yaml` and its finished results, to be read and changed."""
    return shutil.copytree(_finished, tmp_path / "finished")
