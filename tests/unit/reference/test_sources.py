"""Which confidence an engine goes by, and the environment variables that say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny import write_pair
from tiny_dspark import train_dspark

from avbench.errors import UsageError
from avbench.reference.core_process import build
from avbench.reference.options import EngineOptions, parse_options
from avbench.reference.trace import Trace


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_pair(tmp_path_factory.mktemp("pair"))
    train_dspark(folder, steps=1)
    return folder


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRACE_DIR", "LABELS", "OBSERVE", "CONFIDENCE_SOURCE"):
        monkeypatch.delenv(f"AVBENCH_{name}", raising=False)


def options(pair: Path, draft: str, *, adaptive: bool = True) -> EngineOptions:
    config = {
        "method": "dspark" if draft == "dspark" else "draft_model",
        "model": str(pair / draft),
        "num_speculative_tokens": 2,
        "enable_adaptive_verification": adaptive,
    }
    return parse_options(
        ["--model", str(pair / "target"), "--max-num-seqs", "2", "--speculative-config", json.dumps(config)]
    )


@pytest.mark.parametrize(
    ("draft", "asked", "used"),
    [
        ("draft", "", "estimator"),
        ("draft", "estimator", "estimator"),
        ("dspark", "", "head"),
        ("dspark", "head", "head"),
        ("dspark", "estimator", "estimator"),
    ],
)
def test_the_trace_says_which_source_is_used(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draft: str, asked: str, used: str
) -> None:
    monkeypatch.setenv("AVBENCH_CONFIDENCE_SOURCE", asked)
    monkeypatch.setenv("AVBENCH_OBSERVE", "1")
    build(options(pair, draft), Trace(tmp_path))
    events = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["start", "costs"]
    assert events[0]["source"] == used
    assert events[0]["observe"] is True


@pytest.mark.parametrize("draft", ["draft", "dspark"])
def test_nothing_adaptive_has_no_source(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draft: str
) -> None:
    monkeypatch.setenv("AVBENCH_CONFIDENCE_SOURCE", "head")
    build(options(pair, draft, adaptive=False), Trace(tmp_path))
    assert json.loads((tmp_path / "trace.jsonl").read_text())["source"] is None


def test_a_head_that_is_not_there_is_refused(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVBENCH_CONFIDENCE_SOURCE", "head")
    with pytest.raises(UsageError) as error:
        build(options(pair, "draft"), Trace(None))
    assert str(pair / "draft") in error.value.message
    assert error.value.hint is not None
    assert '"enable_confidence_head": true' in error.value.hint
    assert "avbench:dspark" in error.value.hint


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("AVBENCH_CONFIDENCE_SOURCE", "heads", "estimator, head"),
        ("AVBENCH_LABELS", "yes", "1 or 0"),
        ("AVBENCH_OBSERVE", "true", "1 or 0"),
        ("AVBENCH_LABELS", "1", "AVBENCH_TRACE_DIR"),
    ],
)
def test_values_that_cannot_work_are_named(
    pair: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError) as error:
        options(pair, "draft")
    text = f"{error.value.message} {error.value.hint}"
    assert name in text
    assert value in text
    assert expected in text


def test_switches_are_off_unless_set(pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = options(pair, "draft")
    assert (plain.labels, plain.observe, plain.source) == (False, False, None)
    for name in ("LABELS", "OBSERVE"):
        monkeypatch.setenv(f"AVBENCH_{name}", "0")
    assert options(pair, "draft") == plain
    monkeypatch.setenv("AVBENCH_TRACE_DIR", str(tmp_path))
    for name in ("LABELS", "OBSERVE"):
        monkeypatch.setenv(f"AVBENCH_{name}", "1")
    on = options(pair, "draft")
    assert (on.labels, on.observe) == (True, True)
