"""What belongs together: a pool is one pair, draft sampling method and K, a data set one workload or file in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avbench.analysis.study.drafts import NO_REQUEST, WARM_UP, Drafts
from avbench.analysis.study.schema import LabelInfo


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """One workload or file. Counts are over the drafts inside its cells' windows."""

    name: str
    drafts: int  # made and scheduled, with a label or not
    labels: int  # that can be used
    entropy: float | None  # mean over all its drafts, nats


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One engine process."""

    name: str
    refit_interval: int  # engine steps


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Labels that may be looked at together. `drafts` also hold its streams' warm-ups, which the online fit saw."""

    name: str
    info: LabelInfo  # of the first stream; what defines a pool is the same in all
    k: int
    drafts: Drafts
    data_sets: tuple[DataSet, ...]
    streams: tuple[Stream, ...]
    warm_up: int  # usable labels outside any cell's window

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Drafts inside a data set [n]."""
        return np.asarray(self.drafts.data_set != WARM_UP)

    @property
    def intervals(self) -> NDArray[np.int64]:
        """Refit interval of each stream [streams], engine steps."""
        return np.array([stream.refit_interval for stream in self.streams], dtype=np.int64)


def count_requests(request: NDArray[np.int32]) -> int:
    """Number of different requests in `request` [n]; drafts of unnamed ones do not count."""
    named = request[request != NO_REQUEST]
    return int(np.count_nonzero(np.bincount(named)))
