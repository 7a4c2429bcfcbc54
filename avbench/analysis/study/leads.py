"""Head against estimator: who is ahead on which metric, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from avbench.analysis.study.bootstrap import Replicates
from avbench.analysis.study.metrics import Point
from avbench.analysis.study.values import Value, value_of

Metric = Literal["auc", "log_loss", "ece"]
# The sign that makes a larger figure better.
METRICS: dict[Metric, int] = {"auc": 1, "log_loss": -1, "ece": -1}


@dataclass(frozen=True, kw_only=True)
class Lead:
    """One metric of both. `leader` is None if the difference's interval holds 0 or is not known."""

    metric: Metric
    estimator: float
    head: float
    difference: Value  # estimator - head
    ahead: Literal["estimator", "head", "equal"]  # by the point values alone
    leader: Literal["estimator", "head"] | None


def leads(
    estimator: Point, head: Point, replicates: Replicates | None, head_replicates: Replicates | None
) -> Iterator[Lead]:
    """One a metric that both have. The replicates must be of the same draws."""
    for metric, sign in METRICS.items():
        own, other = getattr(estimator, metric), getattr(head, metric)
        if own is None or other is None:
            continue
        drawn = None
        if replicates is not None and head_replicates is not None:
            drawn = getattr(replicates, metric) - getattr(head_replicates, metric)
        difference = value_of(own - other, drawn)
        yield Lead(
            metric=metric,
            estimator=own,
            head=other,
            difference=difference,
            ahead="equal" if own == other else "estimator" if (own - other) * sign > 0 else "head",
            leader=_leader(difference, sign),
        )


def _leader(difference: Value, sign: int) -> Literal["estimator", "head"] | None:
    if difference.low is None or difference.high is None or difference.low <= 0 <= difference.high:
        return None
    return "estimator" if difference.low * sign > 0 else "head"
