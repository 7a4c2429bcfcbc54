"""Nested depth: how deep to draft, chosen together with how much to verify. An extension of avbench; vLLM always
drafts K tokens and trims only their verification.

    S(r,i) = product over j <= i of p[r,j]                                                        survival
    d*, B* = first argmax over 0 <= d <= K, 0 <= B <= R d of
             (R + sum of the B largest S(r,i) with i <= d) / cost(d, R, B)

The cost is that of a decoding step: R requests, drafting d deep, verifying R + B tokens. Prompts that happen to share a
step are left out: they have to be read whatever is drafted. `avbench.adaptive.nested` says where the p come from and
why the output stays the target's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.costs import Float64
from avbench.errors import AvbenchError


class DepthCosts(Protocol):
    """What decoding steps cost, by how deep they draft and how much they verify."""

    def steps(self, requests: int) -> Float64:
        """Return the cost of drafting 0..K deep for `requests` and verifying 0..requests * K drafts beside one token
        of each: [K + 1, requests * K + 1], any one unit of time. Raises AvbenchError if that is not covered."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class DepthTables:
    """Costs that add up: `draft` [K + 1, max_requests + 1] by depth and requests, `verify` [max_tokens + 1]."""

    draft: Float64
    verify: Float64

    def steps(self, requests: int) -> Float64:
        """See `DepthCosts.steps`."""
        drafts = requests * (len(self.draft) - 1)
        if requests >= self.draft.shape[1] or requests + drafts >= len(self.verify):
            raise AvbenchError(
                f"a step of {requests} requests and up to {requests + drafts} tokens is larger than the cost tables "
                f"({self.draft.shape[1] - 1} requests, {len(self.verify) - 1} tokens)",
                hint="build the tables for the largest batch the engine may schedule",
            )
        return self.draft[:, requests, None] + self.verify[None, requests : requests + drafts + 1]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How deep to draft, and how many of those drafts to verify."""

    depth: int
    budget: int


def expected_drafts(survival: NDArray[Any]) -> Float64:
    """Return the drafts that will be accepted if the B best slots of the first d positions are verified.

    `survival` [G, R, K]: G samples of how confident R requests may be; the result [K + 1, R * K + 1], row d, column B,
    is their mean, and -inf where there are fewer than B drafts.
    """
    _, requests, positions = survival.shape
    accepted = np.full((positions + 1, requests * positions + 1), -np.inf)
    accepted[:, 0] = 0.0
    if requests == 1:  # survival falls along a request: it is sorted already
        gains = survival[:, 0].mean(axis=0).cumsum()
        for depth in range(1, positions + 1):
            accepted[depth, 1 : depth + 1] = gains[:depth]
        return accepted
    for depth in range(1, positions + 1):
        slots = np.sort(survival[:, :, :depth].reshape(len(survival), -1), axis=1)
        slots.mean(axis=0)[::-1].cumsum(out=accepted[depth, 1 : depth * requests + 1])
    return accepted


def choose_depth(survival: NDArray[Any], costs: DepthCosts, *, max_total_logits: int | None = None) -> Choice:
    """Return d* and B* for the R requests of `survival` [G, R, K]; the first maximum wins.

    `max_total_logits` bounds R + B as in `size_budget`.
    """
    requests = survival.shape[1]
    rate = (requests + expected_drafts(survival)) / costs.steps(requests)
    if max_total_logits is not None:
        rate = rate[:, : max(0, max_total_logits - requests) + 1]
    depth, budget = np.unravel_index(np.argmax(rate), rate.shape)
    return Choice(depth=int(depth), budget=int(budget))
