"""Checkpoints of the parallel drafter: `config.json` and `model.safetensors`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from avbench.errors import UsageError

MODEL_TYPE = "avbench_dspark"


@dataclass(frozen=True, kw_only=True)
class DSparkShape:
    """The numbers of `config.json`."""

    block_size: int  # draft positions
    vocab_size: int
    target_hidden_size: int
    tap_layer: int  # index of the target's layer that is read beside the last one
    hidden_size: int
    intermediate_size: int
    num_blocks: int
    rank: int  # width of the output embedding
    markov_rank: int  # width of what a draft hands to the next one
    enable_confidence_head: bool


def read_dspark_shape(folder: Path) -> DSparkShape:
    """Parse `folder/config.json`. Raises UsageError, naming the key."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise UsageError(f"{path}: {error}", hint="give the folder of a parallel drafter") from None
    found = config.get("model_type") if isinstance(config, dict) else None
    if found != MODEL_TYPE:
        raise UsageError(
            f"{path}: `model_type` is {found!r}; method `dspark` runs {MODEL_TYPE!r} only",
            hint="the shipped one is `avbench:dspark`; a Llama-family draft runs with method `draft_model`",
        )
    values: dict[str, int] = {}
    for field in fields(DSparkShape):
        value = config.get(field.name)
        wanted = bool if field.name == "enable_confidence_head" else int
        if type(value) is not wanted or (wanted is int and value < (0 if field.name == "tap_layer" else 1)):
            expected = "true or false" if wanted is bool else "a whole number"
            raise UsageError(f"{path}: `{field.name}` is {value!r}, expected {expected}")
        values[field.name] = value
    return DSparkShape(**values)  # type: ignore[arg-type]


def expected_dspark_tensors(shape: DSparkShape) -> dict[str, tuple[int, ...]]:
    """Name and size of every tensor."""
    hidden, rank, markov = shape.hidden_size, shape.rank, shape.markov_rank
    tensors: dict[str, tuple[int, ...]] = {
        "state_proj.weight": (hidden, 2 * shape.target_hidden_size),
        "token_embed.weight": (shape.vocab_size, hidden),
        "block_proj.weight": (shape.block_size * rank, hidden),
        "block_bias": (shape.block_size, rank),
        "markov_in.weight": (markov, rank),
        "markov_embed.weight": (shape.vocab_size, markov),
        "markov_carry.weight": (markov, markov),
        "markov_out.weight": (rank, markov),
        "lm_head.weight": (shape.vocab_size, rank),
    }
    for i in range(shape.num_blocks):
        tensors[f"blocks.{i}.gate_up.weight"] = (2 * shape.intermediate_size, hidden)
        tensors[f"blocks.{i}.down.weight"] = (hidden, shape.intermediate_size)
    if shape.enable_confidence_head:
        tensors |= {"confidence.weight": (shape.block_size, rank), "confidence.bias": (shape.block_size,)}
    return tensors


def read_dspark_weights(folder: Path, shape: DSparkShape) -> dict[str, torch.Tensor]:
    """All tensors as float32. Raises UsageError for a file or tensor that is missing or not as `shape` says."""
    path = folder / "model.safetensors"
    try:
        weights = {name: value.float() for name, value in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        hint = "the file is missing, cut short or a pointer to a large file: fetch it again"
        raise UsageError(f"{path}: {error}", hint=hint) from None
    for name, size in expected_dspark_tensors(shape).items():
        found = tuple(weights[name].shape) if name in weights else None
        if found != size:
            what = "is missing" if found is None else f"has shape {list(found)}"
            raise UsageError(f"{folder}: the tensor `{name}` {what}, expected {list(size)} by `config.json`")
    return weights


def write_dspark(folder: Path, shape: DSparkShape, weights: Mapping[str, torch.Tensor]) -> None:
    """Write a checkpoint in float16."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.half().contiguous() for name, value in weights.items()}, folder / "model.safetensors")
    config = {"architectures": ["AvbenchDSpark"], "model_type": MODEL_TYPE, "dtype": "float16", **asdict(shape)}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
