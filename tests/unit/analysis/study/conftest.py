"""Pools without files: what the analysis computes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from avbench.analysis.study.drafts import Drafts, concatenate
from avbench.analysis.study.pool import DataSet, Pool, Stream
from avbench.analysis.study.schema import LabelInfo
from tests.label_factories import Columns

PoolOf = Callable[..., Pool]


def drafts_of(columns: Mapping[str, NDArray[Any]], data_set: int = 0, stream: int = 0, load: int = 0) -> Drafts:
    """Labelled rows only."""
    kept = columns["labelled"] if "labelled" in columns else np.ones(len(columns["step"]), dtype=np.bool_)
    own = {name: values[kept] for name, values in columns.items()}
    n = len(own["step"])
    floats = ("q_max", "logit_q_max", "entropy", "margin", "q_sampled", "head")
    return Drafts(
        stream=np.full(n, stream, dtype=np.int32),
        data_set=np.full(n, data_set, dtype=np.int16),
        load=np.full(n, load, dtype=np.int32),
        step=own["step"],
        request=(own["request"] + 100_000 * stream).astype(np.int32),
        position=own["position"].astype(np.int16),
        label=own["label"],
        admitted=own["admitted"],
        **{name: own[name].astype(np.float32) for name in floats},
    )


@pytest.fixture(scope="session")
def pool_of() -> PoolOf:
    """A pool of data sets by name, each from a process of its own. Other keywords are the metadata's."""

    def make(*, interval: int = 100, loads: Mapping[str, int] | None = None, **sets: Any) -> Pool:
        info = {name: sets.pop(name) for name in ("source", "observe", "draft_sampling") if name in sets}
        named: dict[str, Columns] = sets
        parts = [
            drafts_of(columns, number, number, (loads or {}).get(name, 0))
            for number, (name, columns) in enumerate(named.items())
        ]
        data_sets = tuple(
            DataSet(
                name=name,
                drafts=len(columns["step"]),
                labels=len(part),
                entropy=float(columns["entropy"].mean()),
            )
            for (name, columns), part in zip(named.items(), parts, strict=True)
        )
        streams = tuple(Stream(name=name, refit_interval=interval) for name in named)
        k = max(int(part.position.max()) for part in parts) + 1
        return Pool(
            name="toy",
            info=LabelInfo(k=k, refit_interval=interval, **info),
            k=k,
            drafts=concatenate(parts),
            data_sets=data_sets,
            streams=streams,
            warm_up=0,
        )

    return make
