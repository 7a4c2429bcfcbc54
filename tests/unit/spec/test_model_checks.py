"""What the checkpoints' `config.json` shows to be impossible is said before anything starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from avbench.errors import UsageError
from avbench.spec.model_limits import ModelLimits, read_limits
from avbench.spec.reader import read_sweep
from avbench.spec.sweep import SweepSpec

TARGET = {"max_position_embeddings": 1024, "vocab_size": 2048}
Read = Callable[..., SweepSpec]


@pytest.fixture
def read(valid: str, sweep_folder: Path) -> Read:
    """Reads the valid sweep after replacing pieces of its text, with these keys in the models' configurations."""

    def read_with(*replacements: tuple[str, str], **configs: dict[str, object]) -> SweepSpec:
        for name in ("target", "draft"):
            config = configs.get(name, TARGET)
            (sweep_folder / name / "config.json").write_text(json.dumps(config))
        text = valid
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        Path("x.yaml").write_text(text)
        return read_sweep(Path("x.yaml"))

    return read_with


def _length(tokens: int) -> tuple[str, str]:
    return "passes: 2", f"passes: 2\nengine: {{args: {{max-model-len: {tokens}}}}}"


ONLY_PLAIN = ("  - fixed: [1, 3]\n  - adaptive: 7\n", "")
SHORT = ("max_tokens: 48", "max_tokens: 1")
SHORT_DRAFT = {"draft": {**TARGET, "max_position_embeddings": 512}}


@pytest.mark.parametrize(
    ("replacements", "configs", "message", "hint"),
    [
        (
            [_length(1025)],
            {},
            "x.yaml:14: `engine.args.max-model-len`: got `1025`, expected at most 1024: `target` was made for no more "
            "(`max_position_embeddings` in config.json)",
            "write at most 1024.",
        ),
        (
            [_length(513)],
            SHORT_DRAFT,
            "x.yaml:14: `engine.args.max-model-len`: got `513`, expected at most 512: `draft` was made for no more "
            "(`max_position_embeddings` in config.json)",
            "write at most 512.",
        ),
        (
            [],
            SHORT_DRAFT,
            "x.yaml:3: `pair.draft`: got `draft`, made for 512 tokens, expected at least the target's 1024 "
            "(`max_position_embeddings` in config.json)",
            "write `max-model-len: 512` in `engine.args`, or use another draft.",
        ),
        (
            [],
            {"draft": {**TARGET, "vocab_size": 2047}},
            "x.yaml:3: `pair.draft`: got `draft` with a vocabulary of 2047 tokens, expected the target's 2048 "
            "(`vocab_size` in config.json)",
            "use a draft that shares the target's tokenizer.",
        ),
        (
            [("max_tokens: 48", "max_tokens: 1024")],
            {},
            "x.yaml:10: `workloads[0].max_tokens`: got `1024`, expected at most 1023: `target` was made for 1024 "
            "tokens (`max_position_embeddings` in config.json), no room for a prompt beside `max_tokens: 1024`",
            "lower `max_tokens`, or use a target with a longer context.",
        ),
        (
            [_length(48)],
            {},
            "x.yaml:14: `engine.args.max-model-len`: got `48`, expected at least 49: no room for a prompt beside "
            "`max_tokens: 48`",
            "raise it, or lower `max_tokens`.",
        ),
        (
            [_length(8), SHORT],
            {},
            "x.yaml:14: `engine.args.max-model-len`: got `8`, expected at least 9: no room for a step of arm "
            "`adaptive-7` (a token, K drafts, a token more)",
            "raise it, or lower K.",
        ),
        (
            [SHORT],
            {"target": {"max_position_embeddings": 8}},
            "x.yaml:7: `arms[2].adaptive`: got `7`, expected at most 6: `target` was made for 8 tokens "
            "(`max_position_embeddings` in config.json), no room for a step of arm `adaptive-7` (a token, K drafts, "
            "a token more)",
            "lower K, or use a target with a longer context.",
        ),
        (
            [SHORT, ("adaptive: 7", "adaptive:\n      k: 7")],
            {"target": {"max_position_embeddings": 8}},
            "x.yaml:8: `arms[2].adaptive.k`: got `7`, expected at most 6: `target` was made for 8 tokens "
            "(`max_position_embeddings` in config.json), no room for a step of arm `adaptive-7` (a token, K drafts, "
            "a token more)",
            "lower K, or use a target with a longer context.",
        ),
        (
            [SHORT],
            {"target": {"max_position_embeddings": 4}},
            "x.yaml:6: `arms[1].fixed[1]`: got `3`, expected at most 2: `target` was made for 4 tokens "
            "(`max_position_embeddings` in config.json), no room for a step of arm `fixed-3` (a token, K drafts, "
            "a token more) (and 1 more problem, line 7)",
            "lower K, or use a target with a longer context.",
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
        ([_length(1024)], {}),
        ([_length(512)], SHORT_DRAFT),
        ([_length(49)], {}),
        ([_length(9), SHORT], {}),
        ([("max_tokens: 48", "max_tokens: 1023")], {}),
        ([SHORT], {"target": {"max_position_embeddings": 9}}),
        ([], {"draft": {**TARGET, "max_position_embeddings": 4096}}),
        ([ONLY_PLAIN], {"draft": {"max_position_embeddings": 2, "vocab_size": 3}}),  # no arm drafts
        ([_length(8), SHORT, ONLY_PLAIN], {}),
        ([_length(99_999)], {"target": {}, "draft": {}}),
        ([("max_tokens: 48", "max_tokens: 99999")], {"target": {}}),
        ([], {"target": {"vocab_size": 5}, "draft": {}}),
        ([], {"target": {}, "draft": {"vocab_size": 5}}),
    ],
)
def test_possible_or_not_known(
    replacements: list[tuple[str, str]], configs: dict[str, dict[str, object]], read: Read
) -> None:
    assert read(*replacements, **configs).name == "x"


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ('{"max_position_embeddings": 8, "vocab_size": 5}', ModelLimits(positions=8, vocabulary=5)),
        ('{"max_position_embeddings": "8", "vocab_size": true}', ModelLimits()),
        ('{"max_position_embeddings": 0, "vocab_size": 5.5}', ModelLimits()),
        ("[1]", ModelLimits()),
        ("{", ModelLimits()),
        ("\udcff", ModelLimits()),
        ("[" * 100_000, ModelLimits()),
    ],
)
def test_a_file_that_says_nothing_is_left_to_the_engine(text: str, limits: ModelLimits, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    assert read_limits(tmp_path) == limits
