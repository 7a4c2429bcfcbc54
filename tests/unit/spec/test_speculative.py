"""The `--speculative-config` of each arm."""

from __future__ import annotations

import dataclasses
import json
import shlex

import pytest

from avbench.errors import UsageError
from avbench.spec.arm import Arm
from avbench.spec.speculative import config_flag, needed_environment, speculative_config
from avbench.spec.sweep import Pair

PAIR = Pair(name="p", target="t", draft="org/draft", method="draft_model")


def test_plain_decoding_has_no_configuration() -> None:
    assert speculative_config(PAIR, Arm(kind="none")) is None
    assert config_flag(None) == ""


@pytest.mark.parametrize(("kind", "adaptive"), [("fixed", False), ("adaptive", True)])
def test_both_kinds_say_whether_they_verify_adaptively(kind: str, adaptive: bool) -> None:
    config = speculative_config(PAIR, Arm(kind=kind, k=5))  # type: ignore[arg-type]
    assert config == {
        "method": "draft_model",
        "model": "org/draft",
        "num_speculative_tokens": 5,
        "draft_sample_method": "probabilistic",
        "enable_adaptive_verification": adaptive,
    }


def test_a_resolved_path_replaces_the_name() -> None:
    config = speculative_config(PAIR, Arm(kind="fixed", k=1), model="/weights/draft")
    assert config is not None
    assert config["model"] == "/weights/draft"


def test_a_method_without_a_draft_of_its_own_leaves_the_model_out() -> None:
    pair = Pair(name="p", target="t", draft=None, method="mtp", draft_sampling="greedy")
    assert speculative_config(pair, Arm(kind="fixed", k=2)) == {
        "method": "mtp",
        "num_speculative_tokens": 2,
        "draft_sample_method": "greedy",
        "enable_adaptive_verification": False,
    }


@pytest.mark.parametrize(
    ("method", "arm", "needed"),
    [
        ("draft_model", Arm(kind="none"), {}),
        ("dspark", Arm(kind="fixed", k=7), {}),
        ("draft_model", Arm(kind="adaptive", k=7, source="estimator"), {}),
        ("dspark", Arm(kind="adaptive", k=7, source="estimator"), {"AVBENCH_CONFIDENCE_SOURCE": "estimator"}),
        ("dspark", Arm(kind="adaptive", k=7, source="head"), {"AVBENCH_CONFIDENCE_SOURCE": "head"}),
        (
            "draft_model",
            Arm(kind="adaptive", k=7, source="estimator", depth="nested"),
            {"AVBENCH_DEPTH": "nested"},
        ),
    ],
)
def test_what_the_configuration_has_no_key_for(method: str, arm: Arm, needed: dict[str, str]) -> None:
    assert needed_environment(dataclasses.replace(PAIR, method=method), arm) == needed


@pytest.mark.parametrize("method", ["draft_model", "dspark"])
def test_a_missing_draft_is_an_error_that_names_arm_and_pair(method: str) -> None:
    pair = Pair(name="lonely", target="t", draft=None, method=method)
    with pytest.raises(UsageError, match=r"`fixed-2`.*`lonely` names no draft"):
        speculative_config(pair, Arm(kind="fixed", k=2))


def test_the_flag_survives_a_shell() -> None:
    pair = Pair(name="p", target="t", draft="it's here/ü", method="draft_model")
    config = speculative_config(pair, Arm(kind="adaptive", k=7))
    flag, value = shlex.split(config_flag(config))
    assert flag == "--speculative-config"
    assert json.loads(value) == config
