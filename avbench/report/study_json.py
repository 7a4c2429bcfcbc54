"""The study for programs: every value of every table, absent ones null."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from avbench import __version__
from avbench.analysis.study.features import FEATURES
from avbench.analysis.study.study import Study
from avbench.errors import UsageError
from avbench.record.codec import encode
from avbench.record.files import write_file

JSON_SCHEMA = 1


def study_json(study: Study) -> dict[str, Any]:
    """JSON-ready. Log-losses in nats per draft, entropies in nats; positions named `position N` count from 1."""
    features = [
        {
            "id": feature.id,
            "name": feature.name,
            "lossless": feature.lossless,
            "fitted": feature.fitted,
            "definition": feature.definition,
        }
        for feature in FEATURES
    ]
    return {"schema": JSON_SCHEMA, "avbench_version": __version__, "features": features, **encode(study)}


def write_json(study: Study, out: Path) -> Path:
    """Writes the file in one step. Raises UsageError if `out` cannot be written."""
    text = json.dumps(study_json(study), indent=1, allow_nan=False) + "\n"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_file(out, text)
    except OSError as error:
        raise UsageError(
            f"{out}: cannot write the figures: {os.strerror(error.errno) if error.errno else error}",
            hint="give a file in a folder that can be written to with `--json FILE`.",
        ) from error
    return out
