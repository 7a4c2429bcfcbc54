"""The JSON that vLLM (and the embedded engine) takes as `--speculative-config`."""

from __future__ import annotations

import json
import shlex
from typing import TypedDict

from avbench.errors import UsageError
from avbench.spec.arm import Arm
from avbench.spec.sweep import DraftSampling, Pair


class SpeculativeConfig(TypedDict, total=False):
    """vLLM's own key names, in the order in which people write them."""

    method: str
    model: str
    num_speculative_tokens: int
    draft_sample_method: DraftSampling
    enable_adaptive_verification: bool


def speculative_config(pair: Pair, arm: Arm, *, model: str | None = None) -> SpeculativeConfig | None:
    """What to pass as `--speculative-config` to run `arm` on `pair`; None for plain decoding (leave the flag away).

    `model` replaces the draft's name by a resolved path. Without a draft of its own (`mtp`) the key is left out.
    `enable_adaptive_verification` is written in fixed arms too: an arm must not turn into another one because a
    release changes a default. Raises UsageError if the pair has no draft but its method needs one.
    """
    if arm.kind == "none":
        return None
    draft = model or pair.draft
    if draft is None and pair.method in {"draft_model", "dspark"}:
        raise UsageError(
            f"arm `{arm.id}` speculates with method `{pair.method}`, but the pair `{pair.name}` names no draft",
            hint="add `draft:` to `pair:`",
        )
    config: SpeculativeConfig = {"method": pair.method}
    if draft is not None:
        config["model"] = draft
    config["num_speculative_tokens"] = arm.k
    config["draft_sample_method"] = pair.draft_sampling
    config["enable_adaptive_verification"] = arm.kind == "adaptive"
    return config


def choice_environment(arm: Arm) -> dict[str, str]:
    """What an adaptive arm tells the embedded engine beside its configuration, which has no keys for it."""
    return {"AVBENCH_CONFIDENCE_SOURCE": arm.source or "estimator", "AVBENCH_DEPTH": arm.depth or "full"}


def needed_environment(pair: Pair, arm: Arm) -> dict[str, str]:
    """The part of it that a person must set to get this arm: where the engine would choose something else by itself.

    It takes the head of a draft that carries one, as vLLM does; only `dspark` drafts do.
    """
    if arm.kind != "adaptive":
        return {}
    usual = {"AVBENCH_DEPTH": "full"} | ({} if pair.method == "dspark" else {"AVBENCH_CONFIDENCE_SOURCE": "estimator"})
    return {name: value for name, value in choice_environment(arm).items() if usual.get(name) != value}


def config_flag(config: SpeculativeConfig | None) -> str:
    """The flag as one types it in a POSIX shell; empty for plain decoding."""
    return "" if config is None else f"--speculative-config {shlex.quote(config_json(config))}"


def config_json(config: SpeculativeConfig) -> str:
    """Compact JSON without spaces."""
    return json.dumps(config, separators=(",", ":"), ensure_ascii=False)
