"""What a good sweep file becomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from avbench.spec.arm import Arm
from avbench.spec.reader import read_sweep
from avbench.spec.sweep import CellProtocol, EngineSpec, Pair, Sampling, SweepSpec, Workload

FULL = """\
pair:
  name: a pair
  target: target
  draft: draft
  method: draft_model
  draft_sampling: greedy
engine:
  kind: reference
  args: {dtype: bfloat16, max-model-len: 512, max-num-seqs: 0x40}
  env: {OMP_NUM_THREADS: 1, MODE: fast}
  start_timeout: 2m
arms:
  - none
  - fixed: 3
  - fixed: [1, 7]
  - adaptive: {k: 7, source: estimator, refit_interval: 25}
  - adaptive: 5
workloads:
  - {prompts: words.jsonl, max_tokens: 48}
  - prompts: words.jsonl
    name: greedy.words
    max_tokens: 16
    chat: false
    ignore_eos: true
    samples_per_prompt: 3
    sampling: {temperature: 0}
sampling: {temperature: 0.6, top_p: 0.95}
load: {concurrency: [8, 1]}
passes: 3
cell: {seconds: 2500ms, min_requests: 20, warmup_seconds: 0, timeout: 1h30m}
seed: 7
"""


def test_every_key_arrives(sweep_folder: Path) -> None:
    Path("full.yaml").write_text(FULL)
    spec = read_sweep(Path("full.yaml"))
    first = Workload(name="words", prompts="words.jsonl", max_tokens=48, sampling=Sampling(temperature=0.6, top_p=0.95))
    second = Workload(
        name="greedy.words",
        prompts="words.jsonl",
        max_tokens=16,
        sampling=Sampling(temperature=0.0, top_p=0.95),
        chat=False,
        ignore_eos=True,
        samples_per_prompt=3,
    )
    assert spec == SweepSpec(
        path=Path("full.yaml"),
        name="full",
        pair=Pair(name="a pair", target="target", draft="draft", method="draft_model", draft_sampling="greedy"),
        engine=EngineSpec(
            args={"dtype": "bfloat16", "max-model-len": 512, "max-num-seqs": 64},
            env={"OMP_NUM_THREADS": "1", "MODE": "fast"},
            start_timeout=120.0,
        ),
        arms=(
            Arm(kind="none"),
            Arm(kind="fixed", k=3),
            Arm(kind="fixed", k=1),
            Arm(kind="fixed", k=7),
            Arm(kind="adaptive", k=7, source="estimator", refit_interval=25),
            Arm(kind="adaptive", k=5, source="estimator"),
        ),
        workloads=(first, second),
        concurrency=(8, 1),
        passes=3,
        cell=CellProtocol(seconds=2.5, min_requests=20, warmup_seconds=0.0, timeout=5400.0),
        seed=7,
    )


def test_every_key_of_a_study_arrives(valid: str, sweep_folder: Path) -> None:
    arms = "- adaptive: {k: 7, source: head}\n  - adaptive: {k: 5, refit_interval: 25}"
    text = valid.replace("draft: draft", "draft: dspark\n  method: dspark").replace("- adaptive: 7", arms)
    Path("x.yaml").write_text(text + "labels: true\nobserve: true\n")
    spec = read_sweep(Path("x.yaml"))
    assert spec.pair == Pair(name="target + dspark", target="target", draft="dspark", method="dspark")
    assert spec.arms[-2:] == (
        Arm(kind="adaptive", k=7, source="head"),
        Arm(kind="adaptive", k=5, source="estimator", refit_interval=25),
    )
    assert (spec.labels, spec.observe, spec.emulated) == (True, True, False)


def test_nested_depth_and_the_emulated_clock_arrive(valid: str, sweep_folder: Path) -> None:
    text = valid.replace("- adaptive: 7", "- adaptive: {k: 7, depth: nested}")
    Path("x.yaml").write_text(text + "engine: {clock: emulated, costs: costs.json}\n")
    spec = read_sweep(Path("x.yaml"))
    assert spec.arms[-1] == Arm(kind="adaptive", k=7, source="estimator", depth="nested")
    assert spec.engine == EngineSpec(clock="emulated", costs="costs.json")
    assert spec.emulated


def test_plain_decoding_asks_a_cost_table_for_verification_only(valid: str, sweep_folder: Path) -> None:
    text = valid.replace("  - fixed: [1, 3]\n  - adaptive: 7\n", "")
    Path("x.yaml").write_text(text + "engine: {clock: emulated, costs: blocks.json}\n")
    assert read_sweep(Path("x.yaml")).emulated


def test_a_trace_is_a_cost_table(valid: str, sweep_folder: Path) -> None:
    costs = {"event": "costs", "k": 7, "draft": [[1, 7.0], [8, 14.0]], "verify": [[1, 3.0], [64, 9.0]]}
    (sweep_folder / "emptyfolder" / "trace.jsonl").write_text(json.dumps(costs) + "\n")
    Path("x.yaml").write_text(valid + "engine: {clock: emulated, costs: emptyfolder}\n")
    assert read_sweep(Path("x.yaml")).engine.costs == "emptyfolder"


def test_defaults(valid: str, sweep_folder: Path) -> None:
    Path("x.yaml").write_text(valid.replace("passes: 2\n", ""))
    spec = read_sweep(Path("x.yaml"))
    assert spec.pair == Pair(name="target + draft", target="target", draft="draft", method="draft_model")
    assert spec.engine == EngineSpec()
    assert spec.cell == CellProtocol()
    assert spec.workloads[0].sampling == Sampling()
    assert (spec.passes, spec.seed) == (2, 0)
    assert (spec.labels, spec.observe, spec.emulated) == (False, False, False)


def test_plain_decoding_needs_no_draft(valid: str, sweep_folder: Path) -> None:
    text = valid.replace("  draft: draft\n", "").replace("  - fixed: [1, 3]\n  - adaptive: 7\n", "")
    Path("x.yaml").write_text(text)
    assert read_sweep(Path("x.yaml")).pair.draft is None


def test_anchors_and_merge_keys(valid: str, sweep_folder: Path) -> None:
    workloads = (
        "  - &first {prompts: words.jsonl, max_tokens: 48, chat: false}\n  - {<<: *first, name: more, max_tokens: 8}\n"
    )
    Path("x.yaml").write_text(valid.replace("  - prompts: words.jsonl\n    max_tokens: 48\n", workloads))
    first, second = read_sweep(Path("x.yaml")).workloads
    assert (first.name, first.max_tokens, first.chat) == ("words", 48, False)
    assert (second.name, second.max_tokens, second.chat) == ("more", 8, False)


@pytest.mark.parametrize(
    ("yaml_text", "value"),
    [("010", 10), ("+3", 3), ("0o10", 8), ("0x10", 16)],
)
def test_whole_numbers_are_those_of_yaml_1_2(yaml_text: str, value: int, valid: str, sweep_folder: Path) -> None:
    Path("x.yaml").write_text(valid.replace("passes: 2", f"passes: {yaml_text}"))
    assert read_sweep(Path("x.yaml")).passes == value


def test_words_that_yaml_1_1_takes_for_booleans_are_text(valid: str, sweep_folder: Path) -> None:
    Path("x.yaml").write_text(valid.replace("pair:\n", "pair:\n  name: on\n"))
    assert read_sweep(Path("x.yaml")).pair.name == "on"


def test_byte_order_mark_and_windows_lines(valid: str, sweep_folder: Path) -> None:
    Path("x.yaml").write_bytes(b"\xef\xbb\xbf" + valid.replace("\n", "\r\n").encode())
    assert read_sweep(Path("x.yaml")).concurrency == (1, 8)


def test_references_start_at_the_sweep_files_folder(
    valid: str, sweep_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sweep_folder / "x.yaml").write_text(valid)
    (sweep_folder / "elsewhere").mkdir()
    monkeypatch.chdir(sweep_folder / "elsewhere")
    assert read_sweep(Path("../x.yaml")).pair.target == "target"


def test_workload_names_from_files(valid: str, sweep_folder: Path) -> None:
    names = {"HumanEval.jsonl.gz": "HumanEval", "a.b.jsonl": "a.b", "plain": "plain", "notes.txt": "notes"}
    for file, name in names.items():
        (sweep_folder / file).write_text("")
        Path("x.yaml").write_text(valid.replace("words.jsonl", file))
        assert read_sweep(Path("x.yaml")).workloads[0].name == name
