"""Distributions, draws, and lossless rejection sampling.

A distribution is kept as unnormalised float32 weights [N, vocabulary] and their totals [N].
Acceptance of draft d: with probability min(1, p(d) / q(d)); at the first rejection the token is drawn from
max(p - q, 0), after the last accepted draft from p (Leviathan et al. 2023; Chen et al. 2023). A request whose drafts
were trimmed ends after its admitted drafts, as if no more had been made: p is sampled there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from avbench.reference.ragged import Ints

Floats = NDArray[np.float32]
CDF_BLOCK = 64


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Rows of unnormalised probabilities."""

    values: torch.Tensor  # [N, vocabulary] float32, >= 0
    totals: torch.Tensor  # [N, 1]

    def probability(self, rows: Ints, tokens: Ints) -> NDArray[np.float64]:
        """Probability of one token in each of some rows, [len(rows)]."""
        index = torch.from_numpy(rows)
        chosen = self.values[index, torch.from_numpy(tokens)] / self.totals[index, 0]
        return chosen.numpy().astype(np.float64)

    def normalised(self, rows: Ints) -> torch.Tensor:
        """Probabilities of some rows, [len(rows), vocabulary]."""
        index = torch.from_numpy(rows)
        return self.values.index_select(0, index) / self.totals.index_select(0, index)


def scaled(logits: torch.Tensor, temperature: Floats) -> torch.Tensor:
    """logits / temperature, a temperature of 0 counting as 1; `logits` [N, vocabulary] float32 is overwritten and
    returned, `temperature` [N]."""
    if (temperature != 1).any():
        logits.div_(torch.from_numpy(np.where(temperature == 0, np.float32(1), temperature))[:, None])
    return logits


def softmax_weights(logits: torch.Tensor, temperature: Floats) -> Weights:
    """Weights exp(l - l_max) of l = `scaled` logits, which are overwritten."""
    logits = scaled(logits, temperature)
    values = exponentials(logits.sub_(logits.amax(-1, keepdim=True)), out=logits)
    return Weights(values=values, totals=values.sum(-1, keepdim=True))


def exponentials(exponents: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """exp, float32, written to `out`, which is returned: numpy's takes half of what torch's does on x86."""
    np.exp(exponents.numpy(), out=out.numpy())
    return out


def target_weights(logits: torch.Tensor, temperature: Floats, top_p: Floats) -> Weights:
    """What the target samples from: cut to the nucleus, and all on the argmax where temperature is 0. [N] each."""
    weights = softmax_weights(logits, temperature)
    if (top_p < 1).any():
        _cut_nucleus(weights, top_p)
    put_on_argmax(weights, np.flatnonzero(temperature == 0))
    return weights


def put_on_argmax(weights: Weights, rows: Ints) -> None:
    """Give the most likely token of `rows` all the weight, in place."""
    if len(rows) == 0:
        return
    index = torch.from_numpy(rows)
    best = weights.values[index].argmax(-1)
    weights.values[index] = 0.0
    weights.values[index, best] = 1.0
    weights.totals[index] = 1.0


def _cut_nucleus(weights: Weights, top_p: Floats) -> None:
    """Zero every token outside the smallest set whose probability reaches top_p, in place; the first one stays."""
    rows = torch.from_numpy(np.flatnonzero(top_p < 1))
    ordered, order = weights.values[rows].sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    outside = before >= torch.from_numpy(top_p)[rows, None] * ordered.sum(-1, keepdim=True)
    outside[:, 0] = False
    ordered[outside] = 0.0
    weights.values[rows] = torch.zeros_like(ordered).scatter_(-1, order, ordered)
    weights.totals[rows] = ordered.sum(-1, keepdim=True)


def draw(values: torch.Tensor, u: Floats) -> Ints:
    """One token per row of weights [rows, vocabulary] by inverse CDF; `u` [rows] in [0, 1).

    In two levels, and in numpy: the cumulative sum of a whole row costs as much as its exponentials, that of block
    totals nearly nothing, and for few rows a torch call costs more than what it computes.
    """
    rows, vocabulary = values.shape
    if vocabulary % CDF_BLOCK:
        values = torch.nn.functional.pad(values, (0, -vocabulary % CDF_BLOCK))
    blocks = values.numpy().reshape(rows, -1, CDF_BLOCK)
    outer = blocks.sum(-1).cumsum(-1)
    threshold = outer[:, -1] * u
    block = (outer <= threshold[:, None]).sum(-1)
    everyone = np.arange(rows)
    before = np.where(block > 0, outer[everyone, block - 1], np.float32(0))
    inner = blocks[everyone, block].cumsum(-1)
    # Two roundings of one block's total: without the limit the rest could lie past the last token with any weight.
    rest = np.minimum(threshold - before, np.nextafter(inner[:, -1], np.float32(0)))
    tokens: Ints = block * CDF_BLOCK + (inner <= rest[:, None]).sum(-1)
    return tokens


@dataclass(frozen=True, kw_only=True)
class Drafts:
    """Drafts under verification, rows as in the batch. `q_rows[:, j]` is the row of `q` that draft j was drawn from."""

    tokens: Ints  # [rows, K]
    admitted: Ints  # [rows] how many of them the target has seen
    q: Weights | None  # None: drafts were the draft's argmax, q is 1 on the draft
    q_rows: Ints  # [rows, K]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What came out of one verification."""

    accepted: Ints  # [rows]
    token: Ints  # [rows] the token after the accepted drafts


def verify(p: Weights, offsets: Ints, drafts: Drafts, u_accept: Floats, u_token: Floats) -> Verdict:
    """Accept drafts and draw each row's next token.

    `p` has admitted + 1 rows per request, request i from `offsets[i]` on; `u_accept` [rows, K], `u_token` [rows].
    """
    rows, k = drafts.tokens.shape
    accepted = _count_accepted(p, offsets, drafts, u_accept) if k else np.zeros(rows, np.int64)
    final = p.normalised(offsets + accepted)
    rejected = np.flatnonzero(accepted < drafts.admitted)
    if len(rejected):
        place = accepted[rejected]
        _subtract(final, rejected, drafts.tokens[rejected, place], drafts.q, drafts.q_rows[rejected, place])
    return Verdict(accepted=accepted, token=draw(final, u_token))


def _count_accepted(p: Weights, offsets: Ints, drafts: Drafts, u: Floats) -> Ints:
    k = drafts.tokens.shape[1]
    seen = np.arange(k) < drafts.admitted[:, None]
    tokens = drafts.tokens[seen]
    p_draft = p.probability((offsets[:, None] + np.arange(k))[seen], tokens)
    q_draft = 1.0 if drafts.q is None else drafts.q.probability(drafts.q_rows[seen], tokens)
    passed = np.zeros(seen.shape, bool)
    passed[seen] = u[seen] * q_draft < p_draft
    count: Ints = np.logical_and.accumulate(passed, axis=1).sum(1)
    return count


def _subtract(final: torch.Tensor, rows: Ints, tokens: Ints, q: Weights | None, q_rows: Ints) -> None:
    """Turn p into max(p - q, 0) in the rejected rows, in place."""
    index = torch.from_numpy(rows)
    if q is None:
        final[index, torch.from_numpy(tokens)] = 0.0
        return
    residual = (final.index_select(0, index) - q.normalised(q_rows)).clamp_(min=0.0)
    # p and q equal to the last bit leave no residual; a rejection there is itself a rounding error, so p stays.
    usable = residual.sum(-1) > 0
    final[index[usable]] = residual[usable]
