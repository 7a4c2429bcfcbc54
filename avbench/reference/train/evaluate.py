"""How good is the pair: cross-entropy on held-out text, acceptance by position, and what q_max knows about it.

The engine itself runs, with all drafts verified (an uncensored label for every draft up to the first rejection), on
the beginnings of held-out documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.stats import rankdata
from transformers import LlamaForCausalLM

from avbench.adaptive.confidence import Refit, Slots
from avbench.adaptive.costs import CostTables
from avbench.adaptive.features import Float32
from avbench.adaptive.verification import AdaptiveVerification
from avbench.reference.core import EngineCore
from avbench.reference.llama import Llama
from avbench.reference.load_drafter import load_drafter
from avbench.reference.messages import Submit
from avbench.reference.options import SpeculativeConfig
from avbench.reference.speculation import Adaptive, Speculation
from avbench.reference.trace import Trace
from avbench.reference.train.data import TokenStream

SLOTS, K, PROMPT, NEW, LENGTH = 32, 7, 48, 48, 256


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Graded drafts: `feature` logit(q_max), `position` from 0, `accepted`; one row each."""

    feature: NDArray[np.float32]
    position: NDArray[np.int64]
    accepted: NDArray[np.bool_]


class Recorder:
    """A confidence source that keeps every graded draft; its predictions do not matter."""

    def __init__(self) -> None:
        self._features = np.zeros((SLOTS, K), np.float32)
        self._rows: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []

    def predict(self, features: NDArray[Any], slots: Slots) -> Float32:
        """Keep the features; 0.9 for all."""
        self._features[slots] = features
        return np.full(features.shape, 0.9, np.float32)

    def step(self, slots: Slots, num_sampled: NDArray[Any], num_rejected: NDArray[Any]) -> Refit | None:
        """Keep the labels of av-reference: accepted drafts and the first rejected one."""
        accepted = np.maximum(num_sampled - 1, 0)[:, None]
        position = np.broadcast_to(np.arange(K), (len(slots), K))
        seen = (position <= accepted) & (position < accepted + num_rejected[:, None])
        self._rows.append((self._features[slots][seen], position[seen], (position < accepted)[seen]))
        return None

    def labels(self) -> Labels:
        """Everything graded so far."""
        feature, position, accepted = (np.concatenate(column) for column in zip(*self._rows, strict=True))
        return Labels(feature=feature, position=position, accepted=accepted)


def auc(score: NDArray[Any], label: NDArray[np.bool_]) -> float:
    """Chance that an accepted draft scores above a rejected one, ties counted half (Mann-Whitney)."""
    positive = int(label.sum())
    negative = len(label) - positive
    rank_sum = rankdata(score)[label].sum()
    return float((rank_sum - positive * (positive + 1) / 2) / (positive * negative))


def cross_entropy(model: LlamaForCausalLM, stream: TokenStream, *, length: int = 512) -> float:
    """Mean next-token cross-entropy in nats over windows of `length` tokens."""
    windows = len(stream.ids) // length
    tokens = torch.from_numpy(stream.ids[: windows * length].astype(np.int64)).view(windows, length)
    batches = torch.split(tokens, 8)
    losses = [
        F.cross_entropy(model(input_ids=rows[:, :-1], use_cache=False).logits.flatten(0, 1), rows[:, 1:].flatten())
        for rows in batches
    ]
    return float(np.average([loss.item() for loss in losses], weights=[len(rows) for rows in batches]))


def graded_drafts(pair: Path, prompts: list[list[int]], *, method: str, temperature: float) -> Labels:
    """Let the engine continue `prompts` with K = 7 and keep every label; the draft is in the folder of its method."""
    target = Llama(pair / "target", slots=SLOTS, length=LENGTH, dtype=torch.float32)
    spec = SpeculativeConfig(
        method=method,
        model=str(pair / {"draft_model": "draft", "dspark": "dspark"}[method]),
        num_speculative_tokens=K,
        draft_sample_method="probabilistic",
    )
    drafter = load_drafter(spec, target, slots=SLOTS, length=LENGTH)
    free = CostTables(draft=np.zeros(SLOTS + 1), verify=np.ones(SLOTS * LENGTH))  # drafts cost nothing: admit all
    recorder = Recorder()
    verification = AdaptiveVerification(costs=free, max_requests=SLOTS, positions=K)
    speculation = Speculation(drafter, Adaptive(recorder, verification, Trace(None)), slots=SLOTS)
    core = EngineCore(target, speculation, Trace(None), slots=SLOTS, length=LENGTH, seed=0)
    for i, prompt in enumerate(prompts):
        core.add(
            Submit(
                request_id=i,
                prompt=tuple(prompt),
                max_tokens=NEW,
                temperature=temperature,
                top_p=1.0,
                seed=i,
                ignore_eos=False,
            )
        )
    while not core.idle:
        core.step(lambda output: None)
    return recorder.labels()


def beginnings(stream: TokenStream, *, most: int = 200) -> list[list[int]]:
    """The first tokens of held-out documents that are longer than a prompt, and of later pieces of long ones."""
    starts = [
        start
        for begin, end in zip(stream.starts[:-1], stream.starts[1:], strict=True)
        for start in range(int(begin), int(end) - PROMPT - NEW, 4 * PROMPT)
    ]
    chosen = np.random.default_rng(0).permutation(starts)[:most]
    return [stream.ids[start : start + PROMPT].tolist() for start in chosen]


def describe(labels: Labels) -> str:
    """One line: AUC over all positions and at the first, acceptance by position, acceptance length."""
    first = labels.position == 0
    by_position = [float(labels.accepted[labels.position == k].mean()) for k in range(K)]
    length = 1 + np.cumprod(by_position).sum()
    return (
        f"AUC {auc(labels.feature, labels.accepted):.3f} (position 1: "
        f"{auc(labels.feature[first], labels.accepted[first]):.3f}), acceptance "
        f"{' '.join(f'{rate:.3f}' for rate in by_position)} (conditional), acceptance length {length:.2f}, "
        f"{len(first)} labels"
    )
