"""What lies beside the cells: traces and commands of the servers, outputs of the requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from avbench.errors import UsageError
from avbench.trace.reader import Trace, read_trace


@dataclass(frozen=True, kw_only=True)
class ServerTraces:
    """Traces of the processes that ran in one server folder, oldest first; `damage` says why one could not be read."""

    traces: tuple[Trace, ...]
    damage: tuple[str, ...]


def read_traces(folder: Path) -> ServerTraces:
    """`trace.jsonl` and its forerunners `trace.jsonl.1`, `.2`, ... (a restart numbers what was there)."""
    traces, damage = [], []
    for path in _by_age(folder, "trace.jsonl"):
        try:
            trace = read_trace(path)
        except (UsageError, OSError) as error:
            damage.append(str(error))
            continue
        if trace.start or trace.refits or trace.steps:
            traces.append(trace)
    return ServerTraces(traces=tuple(traces), damage=tuple(damage))


def _by_age(folder: Path, name: str) -> list[Path]:
    older = [path for path in folder.glob(f"{name}.*") if path.suffix[1:].isdigit()]
    newest = [folder / name] if (folder / name).is_file() else []
    return sorted(older, key=lambda path: int(path.suffix[1:])) + newest


@dataclass(frozen=True, kw_only=True)
class ServerCommand:
    """How a server was started; secrets were redacted when it was written."""

    argv: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def draft_model(self) -> str | None:
        """The draft's path as the engine got it in `--speculative-config`."""
        if "--speculative-config" not in self.argv[:-1]:
            return None
        try:
            config = json.loads(self.argv[self.argv.index("--speculative-config") + 1])
        except ValueError:
            return None
        model = config.get("model") if isinstance(config, dict) else None
        return model if isinstance(model, str) else None


def read_command(folder: Path) -> ServerCommand | None:
    """`command.json` of a server folder; None if it is missing or is none."""
    try:
        note: Any = json.loads((folder / "command.json").read_text(encoding="utf-8"))
        return ServerCommand(
            argv=tuple(str(word) for word in note["argv"]),
            env={str(name): str(value) for name, value in note["env"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@dataclass(frozen=True, kw_only=True)
class PromptOutputs:
    """Sums over the good measured requests of one prompt in one cell."""

    requests: int
    tokens: int
    cut: int  # ended by `length`


def read_outputs(path: Path) -> Mapping[str, PromptOutputs] | None:
    """By prompt id, from `requests.parquet`; None if that is missing or damaged. Reads only the columns it needs."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    columns = ["prompt_id", "phase", "error", "output_tokens", "finish_reason"]
    try:
        with pq.ParquetFile(path) as file:  # `read_table` would import pandas: 1 s
            rows = file.read(columns=columns).to_pylist()
    except (OSError, ArrowException, KeyError):
        return None
    sums: dict[str, list[int]] = {}
    for row in rows:
        if row["phase"] == "measured" and row["error"] is None and row["output_tokens"] is not None:
            total = sums.setdefault(row["prompt_id"], [0, 0, 0])
            total[0] += 1
            total[1] += row["output_tokens"]
            total[2] += row["finish_reason"] == "length"
    return {prompt: PromptOutputs(requests=n, tokens=tokens, cut=cut) for prompt, (n, tokens, cut) in sums.items()}
