"""Small random models on disk, and ways to run an engine core in this process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from avbench.adaptive.confidence import ConfidenceSource
from avbench.adaptive.costs import CostTables
from avbench.adaptive.depth import DepthCosts
from avbench.adaptive.verification import AdaptiveVerification
from avbench.reference.clock import Clock
from avbench.reference.core import EngineCore
from avbench.reference.drafter import Drafter
from avbench.reference.dspark import DSparkDrafter
from avbench.reference.label_parts import LabelParts
from avbench.reference.labels import Labels
from avbench.reference.llama import Llama
from avbench.reference.messages import StepOutput, Submit
from avbench.reference.nested import NestedAdaptive
from avbench.reference.sequential import SequentialDrafter
from avbench.reference.speculation import Adaptive, PlainDecoding, Speculation, Speculator
from avbench.reference.trace import Trace

LENGTH = 64
torch.set_num_threads(1)  # two threads beside a busy neighbour are many times slower


def write_pair(
    folder: Path, *, vocabulary: int = 8, noise: float = 0.15, heads: int = 4, kv_heads: int = 2, layers: int = 1
) -> Path:
    """A target with peaky, varied logits and a draft that is the target plus noise: `folder/{target,draft}`."""
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=8,
        max_position_embeddings=LENGTH,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
    )
    target = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, p in target.named_parameters():
            p.copy_(1 + 0.2 * torch.randn_like(p) if "norm" in name else 6 * p)
        target.lm_head.weight.copy_(torch.randn_like(target.lm_head.weight) * 0.35)
    draft = copy.deepcopy(target)
    with torch.no_grad():
        for p in draft.parameters():
            p.add_(noise * p.std() * torch.randn_like(p))
    for name, model in (("target", target), ("draft", draft)):
        model.save_pretrained(folder / name)
    return folder


@dataclass(frozen=True, kw_only=True)
class Arm:
    """How a test engine speculates: K drafts, and what trims them if anything does."""

    k: int = 0
    sampling: str = "probabilistic"
    method: str = "draft_model"
    source: Callable[[int], ConfidenceSource] | None = None  # of the number of slots
    costs: CostTables | None = None
    depth_costs: DepthCosts | None = None  # choose the depth as well, beside `costs`
    max_logits: int | None = None  # rows of logits in one step
    observe: bool = False
    labels: Path | None = None  # folder
    speculation: type[Speculation] = Speculation


def build_core(
    pair: Path, arm: Arm, *, slots: int = 32, length: int = LENGTH, clock: Clock | None = None
) -> EngineCore:
    """An engine core without the process around it."""
    torch.set_grad_enabled(False)
    target = Llama(pair / "target", slots=slots, length=length, dtype=torch.float32)
    trace = Trace(None)
    speculation: Speculator = PlainDecoding(slots=slots)
    if arm.k:
        drafter: Drafter
        if arm.method == "dspark":
            drafter = DSparkDrafter(pair / "dspark", k=arm.k, slots=slots, dtype=torch.float32, sampling=arm.sampling)
            target.tap = drafter.shape.tap_layer
        else:
            drafter = SequentialDrafter(
                pair / "draft", k=arm.k, slots=slots, length=length, dtype=torch.float32, sampling=arm.sampling
            )
        adaptive = None
        if arm.source is not None and arm.costs is not None:
            verification = AdaptiveVerification(
                costs=arm.costs, max_requests=slots, positions=arm.k, max_total_logits=arm.max_logits
            )
            adaptive = Adaptive(arm.source(slots), verification, trace, observe=arm.observe)
            if arm.depth_costs is not None:
                adaptive = NestedAdaptive(
                    arm.source(slots), verification, trace, costs=arm.depth_costs, observe=arm.observe
                )
        labels = Labels(LabelParts(arm.labels, {"k": arm.k}), slots=slots, k=arm.k) if arm.labels else None
        speculation = arm.speculation(drafter, adaptive, slots=slots, labels=labels)
    return EngineCore(target, speculation, trace, slots=slots, length=length, seed=0, clock=clock)


def generate(
    core: EngineCore,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int | Sequence[int],
    temperature: float = 1.0,
    top_p: float = 1.0,
    first_seed: int = 0,
    outputs: list[StepOutput] | None = None,
) -> list[tuple[int, ...]]:
    """Run all prompts to their end (`ignore_eos`), request i with seed `first_seed + i`."""
    limits = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else max_tokens
    for i, prompt in enumerate(prompts):
        core.add(
            Submit(
                request_id=i,
                prompt=tuple(prompt),
                max_tokens=limits[i],
                temperature=temperature,
                top_p=top_p,
                seed=first_seed + i,
                ignore_eos=True,
            )
        )
    tokens: list[list[int]] = [[] for _ in prompts]

    def take(output: StepOutput) -> None:
        if outputs is not None:
            outputs.append(output)
        for request in output.requests:
            tokens[request.request_id].extend(request.tokens)

    while not core.idle:
        core.step(take)
    return [tuple(t) for t in tokens]


def exact_joint(pair: Path, prompt: Sequence[int], length: int, *, temperature: float = 1.0, top_p: float = 1.0):
    """Probabilities of every continuation of `length` tokens, [vocabulary ** length], from plain forward passes."""
    model = LlamaForCausalLM.from_pretrained(pair / "target", dtype=torch.float32).eval()
    vocabulary = model.config.vocab_size
    joint = np.ones(1)
    prefixes = [list(prompt)]
    for _ in range(length):
        logits = model(input_ids=torch.tensor(prefixes)).logits[:, -1].double().numpy() / temperature
        p = np.exp(logits - logits.max(1, keepdims=True))
        p = np.array([nucleus(row / row.sum(), top_p) for row in p])
        joint = (joint[:, None] * p).reshape(-1)
        prefixes = [[*prefix, token] for prefix in prefixes for token in range(vocabulary)]
    return joint


def nucleus(p: np.ndarray, top_p: float) -> np.ndarray:
    """Keep the smallest set of tokens whose probability reaches `top_p`, renormalised."""
    order = np.argsort(-p, kind="stable")
    before = np.cumsum(p[order]) - p[order]
    kept = np.where(before < top_p, p[order], 0.0) if top_p < 1 else p[order]
    out = np.zeros_like(p)
    out[order] = kept / kept.sum()
    return out
