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
    if draft is None and pair.method == "draft_model":
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


def config_flag(config: SpeculativeConfig | None) -> str:
    """The flag as one types it in a POSIX shell; empty for plain decoding."""
    return "" if config is None else f"--speculative-config {shlex.quote(config_json(config))}"


def config_json(config: SpeculativeConfig) -> str:
    """Compact JSON without spaces."""
    return json.dumps(config, separators=(",", ":"), ensure_ascii=False)
