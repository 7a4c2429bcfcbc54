"""What the two models learn from: the text, and the target's distribution."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM

from avbench.reference.train.loop import LossFn


def cross_entropy(model: LlamaForCausalLM) -> LossFn:
    """Mean next-token cross-entropy in nats."""

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    return loss


def distillation(draft: LlamaForCausalLM, target: LlamaForCausalLM) -> LossFn:
    """Mean KL(target || draft) per position in nats."""

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            wanted = target(input_ids=tokens, use_cache=False).logits.log_softmax(-1).flatten(0, 1)
        got = draft(input_ids=tokens, use_cache=False).logits.log_softmax(-1).flatten(0, 1)
        return F.kl_div(got, wanted, log_target=True, reduction="batchmean")

    return loss
