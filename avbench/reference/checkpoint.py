"""Llama-family checkpoints in Hugging Face format: `config.json` and safetensors, one file or sharded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from avbench.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class LlamaShape:
    """The numbers of `config.json` that the forward pass needs."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    rope_theta: float
    norm_eps: float
    max_position: int
    eos_token_ids: tuple[int, ...]
    rope_stretch: RopeStretch | None


@dataclass(frozen=True, kw_only=True)
class RopeStretch:
    """Llama 3.1's rotary scaling (`rope_type: llama3`), with the key names of `config.json`."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


def read_shape(folder: Path) -> LlamaShape:
    """Parse `folder/config.json`. Raises UsageError for what this engine cannot run, naming the key."""
    path = folder / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise UsageError(f"{path}: {error}", hint="give a Llama-family checkpoint in Hugging Face format") from None
    _check_supported(path, config)
    rope = _rope(config)
    try:
        return LlamaShape(
            vocabulary=config["vocab_size"],
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            kv_heads=config.get("num_key_value_heads") or config["num_attention_heads"],
            head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
            ffn=config["intermediate_size"],
            rope_theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0),
            norm_eps=config.get("rms_norm_eps", 1e-6),
            max_position=config["max_position_embeddings"],
            eos_token_ids=_end_tokens(folder, config),
            rope_stretch=RopeStretch(**{f.name: rope[f.name] for f in fields(RopeStretch)})
            if _rope_type(rope) == "llama3"
            else None,
        )
    except KeyError as error:
        raise UsageError(f"{path}: the key {error} is missing") from None


def read_weights(folder: Path, shape: LlamaShape) -> dict[str, torch.Tensor]:
    """All tensors as float32. Raises UsageError for a file or tensor that is missing or not as `shape` says."""
    index = folder / "model.safetensors.index.json"
    names = (
        sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else ["model.safetensors"]
    )
    weights: dict[str, torch.Tensor] = {}
    for name in names:
        if not (folder / name).is_file():
            raise UsageError(f"{folder}: `{name}` is missing", hint="this engine reads safetensors only")
        try:
            weights |= {key: value.float() for key, value in load_file(folder / name).items()}
        except SafetensorError as error:
            hint = "the file is cut short or a pointer to a large file: fetch it again"
            raise UsageError(f"{folder / name}: {error}", hint=hint) from None
    _check_tensors(folder, weights, shape)
    return weights


def expected_tensors(shape: LlamaShape) -> dict[str, tuple[int, ...]]:
    """Name and size of every tensor the forward pass needs; `lm_head.weight` may be absent (tied)."""
    hidden, queries, keys = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (shape.ffn, hidden),
        "mlp.up_proj": (shape.ffn, hidden),
        "mlp.down_proj": (hidden, shape.ffn),
    }
    tensors = {f"model.layers.{i}.{name}.weight": size for i in range(shape.layers) for name, size in layer.items()}
    return tensors | {"model.embed_tokens.weight": (shape.vocabulary, hidden), "model.norm.weight": (hidden,)}


def _check_tensors(folder: Path, weights: Mapping[str, torch.Tensor], shape: LlamaShape) -> None:
    for name, size in expected_tensors(shape).items():
        found = tuple(weights[name].shape) if name in weights else None
        if found != size:
            what = "is missing" if found is None else f"has shape {list(found)}"
            raise UsageError(f"{folder}: the tensor `{name}` {what}, expected {list(size)} by `config.json`")


def _check_supported(path: Path, config: Mapping[str, Any]) -> None:
    wanted: list[tuple[str, object, tuple[object, ...]]] = [
        ("model_type", config.get("model_type"), ("llama",)),
        ("hidden_act", config.get("hidden_act", "silu"), ("silu",)),
        ("attention_bias", config.get("attention_bias", False), (False,)),
        ("mlp_bias", config.get("mlp_bias", False), (False,)),
        ("rope type", _rope_type(_rope(config)), ("default", "llama3")),
    ]
    for key, value, supported in wanted:
        if value not in supported:
            only = " and ".join(repr(name) for name in supported)
            raise UsageError(f"{path}: `{key}` is {value!r}; this engine runs {only} only")


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _rope_type(rope: Mapping[str, Any]) -> object:
    return rope.get("rope_type") or rope.get("type") or "default"


def _end_tokens(folder: Path, config: Mapping[str, Any]) -> tuple[int, ...]:
    """End tokens of both files, as in vLLM: a chat model's end of turn often stands in the second one only."""
    found: list[int] = []
    path = folder / "generation_config.json"
    second = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for value in (config.get("eos_token_id"), second.get("eos_token_id")):
        found += value if isinstance(value, list) else [] if value is None else [value]
    return tuple(dict.fromkeys(found))
