"""How many drafts to verify in a step, and which.

    S(r,i) = product over j <= i of p[r,j]                                            survival
    B*     = first argmax over 0 <= B <= B_max of
             (sampling requests + sum of the B largest S) / (draft cost[R] + verify cost[T + B])

`size_budget` must get the confidences of the PREVIOUS step's drafts, `admit` those of the drafts at hand. Ranking
with the current ones is safe: whether slot k is in the best B depends on the confidences of slots 1..k of its
request and those of other requests, never on what was drawn at k. Sizing from them is not: with step-shaped costs
the confidence of slot k+1, which depends on the token drawn at k, can decide whether B reaches slot k at all, so the
drawn token decides whether it is verified, and the output is biased (`tests/unit/adaptive/test_losslessness.py`
counts a total variation of 0.25). A budget that was fixed before the drafts were drawn cannot do that, whatever the
cost table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.costs import CostTables, Float64
from avbench.errors import AvbenchError

Int = NDArray[np.intp]

# vLLM verifies in one piece of at most 2^30 bytes of float32 logits.
_LOGITS_BYTES = 2**30


def max_logits_rows(vocabulary: int) -> int:
    """Return how many rows of logits vLLM verifies in one piece: R + B may not exceed it."""
    return max(1, _LOGITS_BYTES // (4 * vocabulary))


def survival(confidences: NDArray[Any]) -> Float64:
    """Return S [R, K] of confidences [R, K]: the chance that a draft and all before it are accepted. float64."""
    return np.cumprod(confidences, axis=1, dtype=np.float64)


def size_budget(
    stale_confidences: NDArray[Any],
    scheduled: NDArray[Any],
    *,
    other_tokens: int,
    sampling_requests: int,
    costs: CostTables,
    max_total_logits: int | None = None,
) -> int:
    """Return B*, the number of drafts to verify in this step; the first maximum wins.

    `stale_confidences` [R, K] of the step before (1.0 for new requests), `scheduled` [R] drafts at hand (0..K),
    `other_tokens` scheduled tokens that are not drafts, `sampling_requests` how many of the R requests sample a token.
    Raises AvbenchError if the batch is larger than the cost tables.
    """
    requests, positions = stale_confidences.shape
    limit = int(scheduled.sum())
    if max_total_logits is not None:
        limit = min(limit, max(0, max_total_logits - requests))
    _check_size(costs, requests, other_tokens + limit)
    eligible = survival(stale_confidences)[np.arange(positions) < scheduled[:, None]]
    eligible.sort()
    expected = np.empty(limit + 1)
    expected[0] = 0.0
    np.cumsum(eligible[::-1][:limit], out=expected[1:])
    expected += sampling_requests
    return int(np.argmax(expected / (costs.draft[requests] + costs.verify[other_tokens : other_tokens + limit + 1])))


def admit(confidences: NDArray[Any], scheduled: NDArray[Any], budget: int) -> Int:
    """Return how many drafts of each request to verify [R]: the `budget` slots of largest survival.

    `confidences` [R, K] of the drafts at hand, `scheduled` [R] drafts at hand (0..K). Survival falls along a
    request, so the winners are a prefix of each. Ties (vLLM leaves them open) go to the lower position, then to the
    earlier request. Survival is compared in float32, as in vLLM, so that ties are the same ones.
    """
    if budget >= scheduled.sum():
        return np.asarray(scheduled, dtype=np.intp)
    if budget <= 0:
        return np.zeros(len(scheduled), dtype=np.intp)
    scores = survival(confidences).astype(np.float32)
    scores[np.arange(scores.shape[1]) >= scheduled[:, None]] = -1.0
    by_position = scores.T.ravel()
    worst = np.partition(by_position, by_position.size - budget)[by_position.size - budget]
    winners = by_position > worst
    ties = np.flatnonzero(by_position == worst)
    winners[ties[: budget - np.count_nonzero(winners)]] = True
    return np.asarray(winners.reshape(scores.shape[1], -1).sum(axis=0), dtype=np.intp)


def spread_evenly(scheduled: NDArray[Any], budget: int) -> Int:
    """Return the split of `budget` [R] that vLLM's host assumes before the device has ranked: even over the requests
    with drafts, the remainder to the first of them. It may give a request more than it scheduled."""
    if budget >= scheduled.sum():
        return np.asarray(scheduled, dtype=np.intp)
    split = np.zeros(len(scheduled), dtype=np.intp)
    drafting = np.flatnonzero(scheduled > 0)
    each, left = divmod(budget, len(drafting))
    split[drafting] = each
    split[drafting[:left]] += 1
    return split


def _check_size(costs: CostTables, requests: int, tokens: int) -> None:
    if requests >= len(costs.draft) or tokens >= len(costs.verify):
        raise AvbenchError(
            f"a step of {requests} requests and up to {tokens} tokens is larger than the cost tables "
            f"({len(costs.draft) - 1} requests, {len(costs.verify) - 1} tokens)",
            hint="build the tables for the largest batch the engine may schedule",
        )
