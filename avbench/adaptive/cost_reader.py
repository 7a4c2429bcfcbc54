"""From the text of a cost table to a `CostFile`. Everything that is wrong is a UsageError with file and key."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from avbench.adaptive.cost_file import CostFile, DraftKind, Points, capture_grid
from avbench.errors import UsageError

SCHEMA = 1
REQUIRED = ("schema", "name", "source", "unit", "verify", "graph_limit")
DRAFT_KEYS: dict[str, DraftKind] = {"draft_block": "block", "draft_pass": "pass"}
OPTIONAL = ("notes", *DRAFT_KEYS, "capture_tokens", "capture_requests")
SEE = "`docs/emulation.md` shows the format, `sweeps/costs/` has examples."
POINTS = "[[size, ms], ...] with whole sizes from 1 that rise and costs from 0"


def read_json_table(path: Path, text: str) -> CostFile:
    """The table in a JSON file."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path}: not a cost table: not JSON ({error})", hint=SEE) from error
    return _table(path, _keys(path, data))


def read_trace_table(path: Path, text: str) -> CostFile:
    """The table that a traced engine measured at its start.

    Its draft curve is the cost of a whole draft of `k` tokens with its own drafter: of `k` passes, or of one block.
    Engines older than the key `drafter` had only drafters that make one token in each pass.
    """
    events = _events(path, text)
    costs = events.get("costs")
    if costs is None:
        hint = "only servers of adaptive arms measure costs; give the trace of one of those, or a JSON table."
        raise UsageError(f"{path}: the trace has no `costs` event", hint=hint)
    kind = costs.get("drafter", "pass")
    if kind not in DRAFT_KEYS.values():
        _bad(path, "drafter", kind, "`block` or `pass`")
    k = _whole(path, "k", costs.get("k", events.get("start", {}).get("k")), least=1)
    draft = _points(path, "draft", costs.get("draft"))
    per_pass = tuple((size, cost / (k if kind == "pass" else 1)) for size, cost in draft)
    table = CostFile(
        path=path,
        name=f"measured by the engine of {path}",
        source=f"`costs` event of {path}, K={k}",
        notes=(f"drafting was measured with K={k} drafts, by a drafter of the kind `{kind}`",),
        verify=_points(path, "verify", costs.get("verify")),
        draft={kind: per_pass},
        **_capture(path, costs.get("graph_limit", 0), per_pass, costs),
    )
    return _with_limit_measured(table)


def _table(path: Path, data: Mapping[str, Any]) -> CostFile:
    if data["unit"] != "ms":
        _bad(path, "unit", data["unit"], '"ms"')
    verify = _points(path, "verify", data["verify"])
    draft = {kind: _points(path, key, data[key]) for key, kind in DRAFT_KEYS.items() if key in data}
    widest = max(draft.values(), key=lambda points: points[-1][0], default=())
    table = CostFile(
        path=path,
        name=_text(path, "name", data["name"]),
        source=_text(path, "source", data["source"]),
        notes=_notes(path, data.get("notes", [])),
        verify=verify,
        draft=draft,
        **_capture(path, data["graph_limit"], widest, data),
    )
    return _with_limit_measured(table)


def _with_limit_measured(table: CostFile) -> CostFile:
    if table.graph_limit and table.graph_limit not in dict(table.verify):
        _bad(table.path, "graph_limit", table.graph_limit, "a size that `verify` has a point for, or 0")
    return table


def _keys(path: Path, data: object) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise UsageError(f"{path}: not a cost table: expected a JSON object", hint=SEE)
    for key in data:
        if key not in (*REQUIRED, *OPTIONAL):
            raise UsageError(f"{path}: unknown key `{key}`", hint=f"known are {', '.join((*REQUIRED, *OPTIONAL))}.")
    for key in REQUIRED:
        if key not in data:
            raise UsageError(f"{path}: the key `{key}` is missing", hint=SEE)
    if data["schema"] != SCHEMA:
        _bad(path, "schema", data["schema"], f"{SCHEMA}, the one this avbench reads")
    return data


def _events(path: Path, text: str) -> dict[str, dict[str, Any]]:
    """The last `start` and `costs` event; a line that was torn when the engine died is no event."""
    found: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        if '"costs"' not in line and '"start"' not in line:
            continue
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") in ("costs", "start"):
            found[event["event"]] = event
    return found


def _points(path: Path, key: str, value: object) -> Points:
    if not isinstance(value, list) or not value:
        _bad(path, key, value, POINTS)
    points: list[tuple[int, float]] = []
    for index, point in enumerate(value):
        where = f"{key}[{index}]"
        if not isinstance(point, list) or len(point) != 2:
            _bad(path, where, point, "[size, ms]")
        size, cost = _whole(path, where, point[0], least=1), _cost(path, where, point[1])
        if points and size <= points[-1][0]:
            _bad(path, where, point, f"a size above the {points[-1][0]} before it")
        points.append((size, cost))
    return tuple(points)


def _cost(path: Path, where: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        _bad(path, where, value, "milliseconds, finite and not negative")
    return float(value)


def _whole(path: Path, where: str, value: object, *, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        _bad(path, where, value, f"a whole number from {least} on")
    return value


def _text(path: Path, key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        _bad(path, key, value, "a text")
    return value


def _notes(path: Path, value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        _bad(path, "notes", value, "a list of texts")
    return tuple(_text(path, f"notes[{index}]", note) for index, note in enumerate(value))


def _capture(path: Path, limit: object, draft: Points, data: Mapping[str, Any]) -> dict[str, Any]:
    """The graph limit and the captured sizes: those the file lists, or vLLM's."""
    tokens = _whole(path, "graph_limit", limit, least=0)
    keys = [key for key in ("capture_tokens", "capture_requests") if key in data]
    if not tokens:
        if keys:
            _bad(path, keys[0], data[keys[0]], "no captured sizes where `graph_limit` is 0: nothing is padded")
        return {"graph_limit": 0}
    requests = draft[-1][0] if draft else 0
    return {
        "graph_limit": tokens,
        "capture_tokens": _sizes(path, "capture_tokens", data, tokens),
        "capture_requests": _sizes(path, "capture_requests", data, requests) if requests else (),
    }


def _sizes(path: Path, key: str, data: Mapping[str, Any], last: int) -> tuple[int, ...]:
    value = data.get(key, "vllm")
    if value == "vllm":
        return capture_grid(last)
    if not isinstance(value, list) or not value:
        _bad(path, key, value, '"vllm" or a list of sizes')
    sizes = [_whole(path, f"{key}[{index}]", size, least=1) for index, size in enumerate(value)]
    if sizes != sorted(set(sizes)) or sizes[-1] != last:
        _bad(path, key, value, f"sizes that rise and end with {last}")
    return tuple(sizes)


def _bad(path: Path, key: str, value: object, expected: str) -> NoReturn:
    shown = json.dumps(value, default=str)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    raise UsageError(f"{path}: `{key}` is {shown}, expected {expected}", hint=SEE)
