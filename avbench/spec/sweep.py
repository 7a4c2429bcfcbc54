"""A sweep as the program sees it: plain frozen values, already validated (see `reader.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from avbench.spec.arm import Arm

DraftSampling = Literal["greedy", "probabilistic"]
ArgValue = str | int | float | bool | None
Clock = Literal["real", "emulated"]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Target and draft model. `target` and `draft` are folders, hub names, or `avbench:NAME` for shipped weights."""

    name: str
    target: str
    draft: str | None
    method: str
    draft_sampling: DraftSampling = "probabilistic"


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """How the engine is launched. `args` are vLLM's own flag names without dashes in front; `env` is added to ours."""

    kind: Literal["reference"] = "reference"
    gpus: int = 1
    args: Mapping[str, ArgValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    start_timeout: float = 300.0  # s until /health must answer 200
    clock: Clock = "real"
    costs: str | None = None  # the cost table of the emulated clock, relative to the sweep file


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What every request asks for. Temperature 0 is greedy."""

    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Prompts, sampling, output limit. `name` is unique in a sweep and fit for a folder name."""

    name: str
    prompts: str  # a shipped set (`code`, `prose`) or the path of a JSONL file, relative to the sweep file
    max_tokens: int
    sampling: Sampling
    chat: bool = True  # chat endpoint with the model's template; False: /v1/completions on the raw text
    ignore_eos: bool = False
    samples_per_prompt: int = 1  # the set is walked this many times, with distinct seeds


@dataclass(frozen=True, kw_only=True)
class CellProtocol:
    """How long one cell is warmed up and measured. Part of a cell's identity."""

    seconds: float = 10.0  # least length of the steady window
    min_requests: int = 0  # least number of requests dispatched inside it
    warmup_seconds: float = 2.0  # least warm-up; never fewer requests than the concurrency
    timeout: float = 600.0  # a cell that takes longer fails


@dataclass(frozen=True, kw_only=True)
class SweepSpec:
    """One YAML file, validated."""

    path: Path
    name: str  # the file's stem
    pair: Pair
    engine: EngineSpec
    arms: tuple[Arm, ...]
    workloads: tuple[Workload, ...]
    concurrency: tuple[int, ...]
    passes: int
    cell: CellProtocol
    seed: int = 0
    labels: bool = False  # write every draft with its features and verdict
    observe: bool = False  # adaptive arms trim nothing

    @property
    def emulated(self) -> bool:
        """Time is virtual: steps last what a cost table says."""
        return self.engine.clock == "emulated"

    @property
    def engine_args(self) -> dict[str, ArgValue]:
        """`engine.args` and what avbench sets beside them, the same in every arm: part of every cell's identity."""
        return {"max-num-seqs": max(self.concurrency), "dtype": "float32", **self.engine.args}
