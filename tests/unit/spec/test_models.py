"""Where models are and what identifies them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from avbench.errors import UsageError
from avbench.spec.draft_checks import SHIPPED_WITH_HEAD
from avbench.spec.model_limits import read_limits
from avbench.spec.models import model_fingerprint, resolve_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"hidden_size": 8}')
    (folder / "model.safetensors").write_bytes(bytes(64))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_relative_paths_start_at_base(model: Path) -> None:
    assert resolve_model("model", model.parent) == model.resolve()
    assert resolve_model(str(model), Path("/")) == model.resolve()


def test_shipped_name(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("avbench.spec.models.shipped_weights", lambda: model.parent)
    model.rename(model.parent / "target")
    assert resolve_model("avbench:target", Path("/nowhere")) == model.parent / "target"


def test_the_shipped_draft_that_is_said_to_have_a_head_has_one() -> None:
    for name in SHIPPED_WITH_HEAD:
        assert read_limits(resolve_model(name, Path("/nowhere"))).head


def test_a_hub_name_is_not_a_folder(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"model `meta-llama/Llama-3.2-1B`: there is no folder .*Llama-3.2-1B"
    ) as caught:
        resolve_model("meta-llama/Llama-3.2-1B", tmp_path)
    assert caught.value.hint is not None
    assert "`avbench:target`" in caught.value.hint


def test_fingerprint_is_of_the_content(model: Path) -> None:
    before = model_fingerprint(model)
    os.utime(model / "model.safetensors", ns=(1, 1))
    (model / "README.md").write_text("not decisive")
    moved = Path(shutil.copytree(model, model.parent / "moved"))
    assert model_fingerprint(model) == before == model_fingerprint(moved)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"])
def test_fingerprint_changes_with_each_decisive_file(name: str, model: Path) -> None:
    before = model_fingerprint(model)
    old = (model / name).read_bytes() if (model / name).exists() else b""
    (model / name).write_bytes(b"x" * max(1, len(old)))
    os.utime(model / name, ns=(5, 5))
    assert model_fingerprint(model) != before
