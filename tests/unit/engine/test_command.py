from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from avbench.engine.command import EngineCommand, engine_command, engine_environment, engine_flags
from avbench.errors import UsageError
from avbench.spec.arm import Arm
from avbench.spec.sweep import CellProtocol, EngineSpec, Pair, SweepSpec

NONE = Arm(kind="none")
FIXED = Arm(kind="fixed", k=3)
ADAPTIVE = Arm(kind="adaptive", k=7, source="estimator", refit_interval=25)


def make_spec(folder: Path, **engine: object) -> SweepSpec:
    for model in ("target", "draft"):
        (folder / model).mkdir()
        (folder / model / "config.json").write_text("{}")
    return SweepSpec(
        path=folder / "x.yaml",
        name="x",
        pair=Pair(name="p", target="target", draft="draft", method="draft_model"),
        engine=EngineSpec(**engine),  # type: ignore[arg-type]
        arms=(NONE, FIXED, ADAPTIVE),
        workloads=(),
        concurrency=(1, 8, 64),
        passes=2,
        cell=CellProtocol(),
        seed=5,
    )


def flags(command: EngineCommand, skip: int = 3) -> dict[str, str]:
    words = command.argv[skip:]
    return dict(zip(words[::2], words[1::2], strict=True))


@pytest.fixture(autouse=True)
def _usual_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AVBENCH_ENGINE_COMMAND", raising=False)


def test_plain_decoding(tmp_path: Path) -> None:
    command = engine_command(make_spec(tmp_path), NONE, 8123, served_name="me")
    assert command.argv[:3] == (sys.executable, "-m", "avbench.reference")
    assert flags(command) == {
        "--model": str(tmp_path / "target"),
        "--host": "127.0.0.1",
        "--port": "8123",
        "--served-model-name": "me",
        "--max-num-seqs": "64",
        "--dtype": "float32",
        "--seed": "5",
    }
    assert command.env == {"OMP_NUM_THREADS": "1", "AVBENCH_STEP_COSTS": ""}


def test_speculative_config_names_the_resolved_draft(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    config = json.loads(flags(engine_command(spec, ADAPTIVE, 1))["--speculative-config"])
    assert config == {
        "method": "draft_model",
        "model": str(tmp_path / "draft"),
        "num_speculative_tokens": 7,
        "draft_sample_method": "probabilistic",
        "enable_adaptive_verification": True,
    }
    fixed = json.loads(flags(engine_command(spec, FIXED, 1))["--speculative-config"])
    assert fixed == {**config, "num_speculative_tokens": 3, "enable_adaptive_verification": False}


def test_arms_differ_by_nothing_but_speculation(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, args={"max-model-len": 512, "dtype": "bfloat16"})
    rest = []
    for arm in spec.arms:
        found = flags(engine_command(spec, arm, 1))
        found.pop("--speculative-config", None)
        rest.append(found)
    assert rest[0] == rest[1] == rest[2]
    assert rest[0]["--max-model-len"] == "512"
    assert rest[0]["--dtype"] == "bfloat16"


def test_seats_that_the_sweep_sets_are_kept(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, args={"max-num-seqs": 100})
    assert flags(engine_command(spec, NONE, 1))["--max-num-seqs"] == "100"


def test_environment(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, env={"OMP_NUM_THREADS": "2", "X": "y"})
    command = engine_command(spec, ADAPTIVE, 1, trace_dir=tmp_path / "t")
    assert command.env == {
        "OMP_NUM_THREADS": "2",
        "X": "y",
        "AVBENCH_STEP_COSTS": "",
        "AVBENCH_TRACE_DIR": str(tmp_path / "t"),
        "AVBENCH_LABELS": "0",
        "AVBENCH_OBSERVE": "0",
        "AVBENCH_REFIT_INTERVAL": "25",
        "AVBENCH_CONFIDENCE_SOURCE": "estimator",
        "AVBENCH_DEPTH": "full",
    }
    fixed = engine_command(spec, FIXED, 1).env
    assert "AVBENCH_REFIT_INTERVAL" not in fixed
    assert (fixed["AVBENCH_LABELS"], fixed["AVBENCH_OBSERVE"]) == ("0", "0")


def test_environment_of_a_study(tmp_path: Path) -> None:
    spec = dataclasses.replace(make_spec(tmp_path), labels=True, observe=True)
    head = engine_command(spec, Arm(kind="adaptive", k=7, source="head", depth="nested"), 1).env
    assert {name: value for name, value in head.items() if name.startswith("AVBENCH_")} == {
        "AVBENCH_STEP_COSTS": "",
        "AVBENCH_LABELS": "1",
        "AVBENCH_OBSERVE": "1",
        "AVBENCH_REFIT_INTERVAL": "100",
        "AVBENCH_CONFIDENCE_SOURCE": "head",
        "AVBENCH_DEPTH": "nested",
    }
    assert engine_command(spec, FIXED, 1).env["AVBENCH_LABELS"] == "1"
    assert "AVBENCH_LABELS" not in engine_command(spec, NONE, 1).env


def test_a_block_drafter_is_named_like_any_draft(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    spec = dataclasses.replace(spec, pair=dataclasses.replace(spec.pair, method="dspark", draft_sampling="greedy"))
    assert json.loads(flags(engine_command(spec, ADAPTIVE, 1))["--speculative-config"]) == {
        "method": "dspark",
        "model": str(tmp_path / "draft"),
        "num_speculative_tokens": 7,
        "draft_sample_method": "greedy",
        "enable_adaptive_verification": True,
    }


def test_the_emulated_clock_starts_no_server(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, clock="emulated", costs="table.json")
    (tmp_path / "table.json").write_text("{}")
    command = engine_command(spec, FIXED, 8123, served_name="me", trace_dir=tmp_path / "t")
    assert command.argv[:3] == (sys.executable, "-m", "avbench.reference.emulate")
    assert command.argv[3:] == engine_flags(spec, FIXED)
    assert not {"--host", "--port", "--served-model-name"} & set(command.argv)
    assert flags(command)["--model"] == str(tmp_path / "target")
    assert flags(command)["--seed"] == "5"
    assert command.env == engine_environment(spec, FIXED, tmp_path / "t")
    assert command.env["AVBENCH_STEP_COSTS"] == str(tmp_path / "table.json")


def test_a_lost_cost_table_is_an_error(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, clock="emulated", costs="table.json")
    with pytest.raises(UsageError, match=r"cost table `table\.json`: there is no file"):
        engine_command(spec, NONE, 1)


def test_another_engine_cannot_be_emulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec(tmp_path, clock="emulated", costs="table.json")
    monkeypatch.setenv("AVBENCH_ENGINE_COMMAND", "run it")
    with pytest.raises(UsageError) as caught:
        engine_command(spec, NONE, 1)
    assert caught.value.message == (
        "AVBENCH_ENGINE_COMMAND replaces the command of a server, but `clock: emulated` starts none: `run it`"
    )
    assert "unset AVBENCH_ENGINE_COMMAND" in (caught.value.hint or "")


def test_switches_follow_vllm(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, args={"enforce-eager": True, "enable-prefix-caching": False, "dtype": None})
    argv = engine_command(spec, NONE, 1).argv
    assert "--enforce-eager" in argv
    assert "--no-enable-prefix-caching" in argv
    assert "--dtype" not in argv


def test_override_replaces_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVBENCH_ENGINE_COMMAND", "/opt/run 'my engine.py' -v")
    assert engine_command(make_spec(tmp_path), NONE, 1).argv[:4] == ("/opt/run", "my engine.py", "-v", "--model")


def test_missing_model_is_an_error(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    (tmp_path / "draft" / "config.json").unlink()
    engine_command(spec, NONE, 1)
    with pytest.raises(UsageError, match="draft"):
        engine_command(spec, FIXED, 1)


def test_secrets_are_redacted() -> None:
    command = EngineCommand(
        argv=(
            *("serve", "--api-key", "abc", "def", "--port", "1", "--hf-token=xyz", "-e", "HF_TOKEN=q"),
            *("--max-num-batched-tokens", "8192", "--tokenizer", "t", "--seed", "3"),
        ),
        env={"HF_TOKEN": "s3", "MY_PASSWORD": "s3", "aws_secret": "s3", "OMP_NUM_THREADS": "1"},
    )
    safe = command.redacted()
    assert safe.argv == (
        *("serve", "--api-key", "[redacted]", "[redacted]", "--port", "1", "--hf-token=[redacted]", "-e"),
        *("HF_TOKEN=[redacted]", "--max-num-batched-tokens", "8192", "--tokenizer", "t", "--seed", "3"),
    )
    assert set(safe.env.values()) == {"[redacted]", "1"}
    assert "s3" not in command.shell()
    assert "xyz" not in command.shell()


def test_shell_line_can_be_pasted(tmp_path: Path) -> None:
    line = EngineCommand(argv=("run", '{"a": 1}'), env={"A": "b c"}).shell()
    assert line == """A='b c' run '{"a": 1}'"""
