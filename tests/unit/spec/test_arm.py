"""Names of arms, and which of two equal ones is preferred."""

from __future__ import annotations

import pytest

from avbench.spec.arm import Arm

NONE = Arm(kind="none")
FIXED = Arm(kind="fixed", k=3)
ADAPTIVE = Arm(kind="adaptive", k=7, source="estimator")
HEAD = Arm(kind="adaptive", k=7, source="head")
NESTED = Arm(kind="adaptive", k=7, source="estimator", depth="nested")
REFIT = Arm(kind="adaptive", k=7, source="estimator", depth="nested", refit_interval=25)


@pytest.mark.parametrize(
    ("arm", "name", "label"),
    [
        (NONE, "none", "none"),
        (FIXED, "fixed-3", "K=3"),
        (ADAPTIVE, "adaptive-7", "AV 7"),
        (HEAD, "adaptive-7-head", "AV 7 head"),
        (NESTED, "adaptive-7-nested", "AV 7 nested"),
        (Arm(kind="adaptive", k=7, source="head", depth="nested"), "adaptive-7-head-nested", "AV 7 head nested"),
        (REFIT, "adaptive-7-nested-refit25", "AV 7 nested"),
    ],
)
def test_names(arm: Arm, name: str, label: str) -> None:
    assert (arm.id, arm.label) == (name, label)


def test_nested_depth_is_the_least_simple() -> None:
    shallow = Arm(kind="adaptive", k=1, source="estimator", depth="nested")
    arms = [shallow, Arm(kind="adaptive", k=64, source="head"), Arm(kind="fixed", k=64), NONE]
    assert sorted(arms, key=lambda arm: arm.simplicity) == arms[::-1]


@pytest.mark.parametrize(
    ("arm", "learns"),
    [
        (NONE, False),
        (FIXED, False),
        (ADAPTIVE, True),
        (HEAD, False),
        (NESTED, True),
        (Arm(kind="adaptive", k=7, source="head", depth="nested"), True),  # it corrects its costs
    ],
)
def test_who_carries_something_from_load_to_load(arm: Arm, learns: bool) -> None:
    assert arm.learns is learns
