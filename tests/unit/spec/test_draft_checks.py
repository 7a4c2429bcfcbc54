"""A drafter of blocks belongs to one target, drafts so far and no farther, and has a head or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from avbench.errors import UsageError
from avbench.spec.model_limits import ModelLimits, read_limits
from avbench.spec.reader import read_sweep
from avbench.spec.sweep import SweepSpec

TARGET = {"model_type": "llama", "max_position_embeddings": 1024, "vocab_size": 2048, "hidden_size": 384}
DRAFT = {
    "model_type": "avbench_dspark",
    "vocab_size": 2048,
    "target_hidden_size": 384,
    "block_size": 7,
    "enable_confidence_head": True,
}
Read = Callable[..., SweepSpec]
HEAD = ("adaptive: 7", "adaptive: {k: 7, source: head}")


@pytest.fixture
def read(valid: str, sweep_folder: Path) -> Read:
    """Reads the valid sweep with `method: dspark`, after replacing pieces of its text, with these configurations."""

    def read_with(*replacements: tuple[str, str], **configs: dict[str, object]) -> SweepSpec:
        for name, config in {"target": TARGET, "draft": DRAFT, **configs}.items():
            (sweep_folder / name / "config.json").write_text(json.dumps(config))
        text = valid.replace("draft: draft", "draft: draft\n  method: dspark")
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        Path("x.yaml").write_text(text)
        return read_sweep(Path("x.yaml"))

    return read_with


@pytest.mark.parametrize(
    ("replacements", "configs", "message", "hint"),
    [
        (
            [],
            {"draft": {**DRAFT, "target_hidden_size": 256}},
            "x.yaml:3: `pair.draft`: got `draft`, made for a target with hidden states of 256 (`target_hidden_size` in "
            "config.json), expected the target's 384 (`hidden_size`)",
            "use the draft that was trained for this target.",
        ),
        (
            [],
            {"draft": {**DRAFT, "vocab_size": 2049}},
            "x.yaml:3: `pair.draft`: got `draft` with a vocabulary of 2049 tokens, expected the target's 2048 "
            "(`vocab_size` in config.json)",
            "use a draft that shares the target's tokenizer.",
        ),
        (
            [("adaptive: 7", "adaptive: {k: 8}")],
            {},
            "x.yaml:8: `arms[2].adaptive.k`: got `8`, expected at most 7: `draft` drafts blocks of 7 tokens "
            "(`block_size` in config.json)",
            "lower K, or use a draft with longer blocks.",
        ),
        (
            [("[1, 3]", "[1, 3, 9]")],
            {},
            "x.yaml:7: `arms[1].fixed[2]`: got `9`, expected at most 7: `draft` drafts blocks of 7 tokens "
            "(`block_size` in config.json)",
            "lower K, or use a draft with longer blocks.",
        ),
        (
            [HEAD],
            {"draft": {**DRAFT, "enable_confidence_head": False}},
            "x.yaml:8: `arms[2].adaptive.source`: got `head`, but `draft` has no confidence head: its config.json does "
            "not say `enable_confidence_head: true`",
            "use `source: estimator`, or `method: dspark` with a draft that has one: `avbench:dspark`.",
        ),
        (
            [HEAD, ("  method: dspark\n", "")],
            {"draft": {}},
            "x.yaml:7: `arms[2].adaptive.source`: got `head`, but drafts of `method: draft_model` have no confidence "
            "head",
            "use `source: estimator`, or `method: dspark` with a draft that has one: `avbench:dspark`.",
        ),
        (
            [],
            {"draft": {**TARGET, "hidden_size": 64, "max_position_embeddings": 8}},
            "x.yaml:3: `pair.draft`: got `draft`, a model of its own (`model_type: llama` in config.json); "
            "`method: dspark` needs `avbench_dspark`",
            "use `avbench:dspark`, or `method: draft_model`.",
        ),
        (
            [("  method: dspark\n", "")],
            {},
            "x.yaml:3: `pair.draft`: got `draft`, which drafts blocks from the target's hidden state "
            "(`model_type: avbench_dspark` in config.json)",
            "write `method: dspark`, or use another draft.",
        ),
    ],
)
def test_impossible(
    replacements: list[tuple[str, str]], configs: dict[str, dict[str, object]], message: str, hint: str, read: Read
) -> None:
    with pytest.raises(UsageError) as caught:
        read(*replacements, **configs)
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("replacements", "configs"),
    [
        ([], {}),
        ([HEAD], {}),
        ([("adaptive: 7", "adaptive: {k: 7, depth: nested, refit_interval: 25}")], {}),
        ([], {"draft": {**DRAFT, "max_position_embeddings": 16}}),  # it reads hidden states: no length of its own
        ([], {"draft": {}}),  # what a file does not say is left to the engine
        ([], {"target": {}}),
        ([("[1, 3]", "[64]")], {"draft": {"model_type": "avbench_dspark"}}),
        ([("  - fixed: [1, 3]\n  - adaptive: 7\n", "")], {"draft": TARGET}),  # no arm drafts
    ],
)
def test_possible_or_not_known(
    replacements: list[tuple[str, str]], configs: dict[str, dict[str, object]], read: Read
) -> None:
    assert read(*replacements, **configs).pair.method == "dspark"


def test_every_key_of_the_configuration_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**DRAFT, "hidden_size": 128}))
    assert read_limits(tmp_path) == ModelLimits(
        vocabulary=2048, kind="avbench_dspark", hidden=128, target_hidden=384, block=7, head=True
    )
    odd = {"model_type": 3, "hidden_size": "x", "target_hidden_size": 0, "block_size": 7.5, "enable_confidence_head": 1}
    (tmp_path / "config.json").write_text(json.dumps(odd))
    assert read_limits(tmp_path) == ModelLimits()
