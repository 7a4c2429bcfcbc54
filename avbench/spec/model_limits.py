"""What a checkpoint's `config.json` says about the requests it can take."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

POSITIONS_KEY = "max_position_embeddings"
VOCABULARY_KEY = "vocab_size"


@dataclass(frozen=True, kw_only=True)
class ModelLimits:
    """None is what the file does not say, or not as a whole number: the engine judges that."""

    positions: int | None = None  # tokens of prompt and answer together
    vocabulary: int | None = None  # tokens


def read_limits(folder: Path) -> ModelLimits:
    """The limits of the checkpoint in `folder`; a file that cannot be read says nothing."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return ModelLimits()
    if not isinstance(config, dict):
        return ModelLimits()
    return ModelLimits(positions=_whole(config.get(POSITIONS_KEY)), vocabulary=_whole(config.get(VOCABULARY_KEY)))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
