"""What a checkpoint's `config.json` says about what it can do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

POSITIONS_KEY = "max_position_embeddings"
VOCABULARY_KEY = "vocab_size"
TYPE_KEY, HIDDEN_KEY = "model_type", "hidden_size"
# Of a drafter that drafts a block in one pass from the target's last hidden state.
DSPARK_TYPE = "avbench_dspark"
TARGET_HIDDEN_KEY, BLOCK_KEY, HEAD_KEY = "target_hidden_size", "block_size", "enable_confidence_head"


@dataclass(frozen=True, kw_only=True)
class ModelLimits:
    """None is what the file does not say, or not in the right type: the engine judges that."""

    positions: int | None = None  # tokens of prompt and answer together
    vocabulary: int | None = None  # tokens
    kind: str | None = None  # `llama`, `avbench_dspark`
    hidden: int | None = None  # width of its last hidden state
    target_hidden: int | None = None  # width that it expects of its target
    block: int | None = None  # tokens that one pass can draft
    head: bool = False  # it carries a confidence head


def read_limits(folder: Path) -> ModelLimits:
    """The limits of the checkpoint in `folder`; a file that cannot be read says nothing."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return ModelLimits()
    if not isinstance(config, dict):
        return ModelLimits()
    kind = config.get(TYPE_KEY)
    return ModelLimits(
        positions=_whole(config.get(POSITIONS_KEY)),
        vocabulary=_whole(config.get(VOCABULARY_KEY)),
        kind=kind if isinstance(kind, str) else None,
        hidden=_whole(config.get(HIDDEN_KEY)),
        target_hidden=_whole(config.get(TARGET_HIDDEN_KEY)),
        block=_whole(config.get(BLOCK_KEY)),
        head=config.get(HEAD_KEY) is True,
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
