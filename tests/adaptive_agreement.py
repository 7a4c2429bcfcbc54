"""How closely a replay must agree with what vLLM made of the same arrays; shared by the golden and the live
comparison."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.budget import survival
from avbench.adaptive.recording import Recording
from avbench.adaptive.replay_fit import replay_estimate
from avbench.adaptive.replay_steps import replay_budget, replay_cost, replay_manager

Arrays = Mapping[str, NDArray]

REPLAYS = {
    "estimate": replay_estimate,
    "budget": replay_budget,
    "cost": replay_cost,
    "manager": replay_manager,
}


def replay(command: str, given: Arrays) -> Arrays:
    """What avbench makes of the arrays."""
    with np.errstate(all="ignore"):
        return REPLAYS[command](Recording(given, name=command))


def assert_agreement(command: str, given: Arrays, wanted: Arrays, got: Arrays) -> None:
    """Coefficients within 1e-5 from features, 1e-4 from logits, 2e-3 where most rows have f > 10 (their complement is a
    few float32 units). Counts, budgets, tables exactly; admissions up to ties."""
    assert wanted.keys() <= got.keys()
    for name in wanted:
        assert got[name].shape == wanted[name].shape, name
    if command == "estimate":
        _assert_fits_agree(given, wanted, got)
    elif command == "budget":
        _assert_same_survivals(given["conf"], wanted["admitted"], got["admitted"])
    else:
        for name in wanted.keys() - {"admitted"}:
            np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)
    if command == "manager":
        _assert_same_ranking(given, wanted, got)


def _assert_fits_agree(given: Arrays, wanted: Arrays, got: Arrays) -> None:
    for name in ("refit_row", "counts"):
        np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)
    drafted = ~np.isnan(wanted["features"])
    confident = np.mean(wanted["features"][drafted] > 10) > 0.5 if drafted.any() else False
    tolerance = 2e-3 if confident else 1e-4 if "logits" in given else 1e-5
    for name in ("slope", "intercepts", "predictions"):
        np.testing.assert_allclose(got[name], wanted[name], rtol=0, atol=tolerance, err_msg=name)
    plain = drafted & (wanted["features"] < 5)
    np.testing.assert_array_equal(drafted, ~np.isnan(got["features"]))
    np.testing.assert_allclose(got["features"][plain], wanted["features"][plain], rtol=0, atol=1e-4)


def _assert_same_ranking(given: Arrays, wanted: Arrays, got: Arrays) -> None:
    present = given["nondraft"] >= 0
    joins = given.get("new", present & (np.cumsum(present, axis=0) == 1)).astype(bool)
    latest = np.ones(given["conf"].shape[1:], dtype=np.float32)
    for step in range(len(latest) and len(present)):
        latest[joins[step]] = 1.0
        _assert_same_survivals(latest, wanted["admitted"][step], got["admitted"][step])
        latest[present[step]] = given["conf"][step, present[step]]


def _assert_same_survivals(confidences: NDArray, wanted: NDArray, got: NDArray) -> None:
    """Both admit slots of the same survivals: exchanging ties is all that may differ."""
    np.testing.assert_array_equal(wanted < 0, got < 0)
    scores = survival(confidences.astype(np.float32)).astype(np.float32)
    chosen = [np.sort(scores[np.arange(scores.shape[1]) < admitted[:, None]]) for admitted in (wanted, got)]
    np.testing.assert_array_equal(*chosen)
