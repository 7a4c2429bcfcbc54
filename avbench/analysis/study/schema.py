"""The file format of labelled drafts, schema 1: columns, metadata, and who made the labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from avbench.adaptive.estimator import REFIT_INTERVAL
from avbench.errors import UsageError

SCHEMA = 1
METADATA_KEY = b"avbench.labels"
Kind = Literal["float", "integer", "bool"]
COLUMNS: Mapping[str, Kind] = {
    "time": "float",
    "step": "integer",
    "request": "integer",
    "position": "integer",
    "temperature": "float",
    "q_max": "float",
    "logit_q_max": "float",
    "entropy": "float",
    "margin": "float",
    "q_sampled": "float",
    "head": "float",
    "prediction": "float",
    "admitted": "bool",
    "label": "bool",
}
# Without these nothing can be graded, placed or ordered; without any other one a part of the study is left out.
REQUIRED = ("step", "position", "label")
NULLABLE = frozenset({"label", "head", "prediction"})


@dataclass(frozen=True, kw_only=True)
class LabelInfo:
    """What the metadata of a file says about the engine that wrote it. None: not said."""

    target: str | None = None
    draft: str | None = None
    method: str | None = None
    draft_sampling: str | None = None  # `probabilistic` or `greedy`
    k: int | None = None
    source: str | None = None  # `estimator` or `head`; None: nothing was adaptive
    observe: bool = False
    refit_interval: int = REFIT_INTERVAL
    clock: Literal["real", "emulated"] = "real"
    engine: str | None = None

    @property
    def trimmed(self) -> bool:
        """Adaptive verification chose which drafts got a label."""
        return self.source is not None and not self.observe

    @property
    def emulated(self) -> bool:
        """The engine's clock was a cost table."""
        return self.clock == "emulated"

    @property
    def pair(self) -> str:
        """`target + draft (method)`, folders and files by their last name."""
        if self.target is None and self.draft is None and self.method is None:
            return "pair not named"
        names = " + ".join(_last(name) for name in (self.target, self.draft) if name is not None)
        return f"{names} ({self.method})" if self.method else names


def _last(name: str) -> str:
    """`/models/x` is `x`; a Hub id such as `org/x` stays whole."""
    return Path(name).name if name.startswith(("/", ".")) else name


def parse_info(text: bytes | None, path: Path) -> LabelInfo | None:
    """The metadata value of a file; None without one. Raises UsageError for another schema or no JSON object."""
    if text is None:
        return None
    try:
        data: Any = json.loads(text)
    except ValueError as error:
        raise _unreadable(path, f"`avbench.labels` in the metadata is not JSON ({error})") from error
    if not isinstance(data, dict):
        raise _unreadable(path, "`avbench.labels` in the metadata is not a JSON object")
    schema = data.get("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        raise UsageError(
            f"{path}: labelled drafts of schema {schema!r}, but this avbench reads schema {SCHEMA}",
            hint="read them with the avbench that wrote them, or write them anew.",
        )
    return _info(data, path)


def _info(data: Mapping[str, Any], path: Path) -> LabelInfo:
    def text(name: str) -> str | None:
        value: str | None = _typed(data.get(name), str, name, path)
        return value

    def count(name: str) -> int | None:
        value: int | None = _typed(data.get(name), int, name, path)
        if value is not None and value < 1:
            raise _unreadable(path, f"`{name}` in the metadata is {value}, expected at least 1")
        return value

    clock = text("clock") or "real"
    if clock not in ("real", "emulated"):
        raise _unreadable(path, f"`clock` in the metadata is `{clock}`, expected `real` or `emulated`")
    return LabelInfo(
        target=text("target"),
        draft=text("draft"),
        method=text("method"),
        draft_sampling=text("draft_sampling"),
        k=count("k"),
        source=text("source"),
        observe=bool(_typed(data.get("observe"), bool, "observe", path)),
        refit_interval=count("refit_interval") or REFIT_INTERVAL,
        clock="emulated" if clock == "emulated" else "real",
        engine=text("engine"),
    )


def _typed(value: Any, kind: type, name: str, path: Path) -> Any:
    fits = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    if value is not None and not fits:
        raise _unreadable(path, f"`{name}` in the metadata is {value!r:.60}, expected a {kind.__name__} or null")
    return value


def _unreadable(path: Path, what: str) -> UsageError:
    return UsageError(f"{path}: {what}", hint="docs/study.md lists the columns and the metadata of labelled drafts.")
