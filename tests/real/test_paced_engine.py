"""Both ways to give the engine another machine's speed agree: a real server over HTTP, held to the pace of a cost
table, and the same cells in virtual time."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

from avbench.engine.command import EngineCommand, engine_command
from avbench.engine.server import Server
from avbench.plan import Cell, Plan, expand_plan
from avbench.record.measurement import Measurement, RequestTrace
from avbench.record.store import ResultStore
from avbench.runner.cell import measure_cell
from avbench.runner.emulated import launch_emulation, measure_emulated
from avbench.spec.reader import read_sweep
from tests.unit.reference.tiny import write_pair

pytestmark = pytest.mark.timeout(300)
# Slow enough for a busy machine, where a millisecond of work may take many: it must fit into every step.
TABLE = {
    "schema": 1,
    "name": "slow",
    "source": "made up",
    "unit": "ms",
    "verify": [[1, 50.0], [8, 120.0], [2048, 20520.0]],
    "draft_pass": [[1, 20.0], [8, 20.0]],
    "graph_limit": 0,
}
SWEEP = {
    "pair": {"target": "target", "draft": "draft", "method": "draft_model"},
    "arms": [{"fixed": 3}, {"adaptive": {"k": 3, "refit_interval": 25}}],
    "workloads": [{"prompts": "prompts.jsonl", "max_tokens": 16, "chat": False, "ignore_eos": True}],
    "load": {"concurrency": [4]},
    "passes": 1,
    "cell": {"seconds": 14, "warmup_seconds": 1, "timeout": 100},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny pair, a tokenizer with one token a byte, prompts and a table."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=258, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([], trainer)
    write_pair(tmp_path, vocabulary=tokenizer.get_vocab_size())
    for model in ("target", "draft"):
        tokenizer.save(str(tmp_path / model / "tokenizer.json"))
    prompts = [{"id": f"p{number}", "prompt": f"prompt {number}"} for number in range(200)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
    (tmp_path / "slow.json").write_text(json.dumps(TABLE))
    return tmp_path


def plan_of(folder: Path, name: str, **engine: str) -> Plan:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**SWEEP, "engine": engine}))
    return expand_plan(read_sweep(path))


def paced(folder: Path, plan: Plan, cell: Cell) -> tuple[Measurement, Mapping[tuple[str, int], RequestTrace]]:
    """On a real server whose steps take as long as the table says."""

    def command(port: int, model: str) -> EngineCommand:
        usual = engine_command(plan.spec, cell.arm, port, served_name=model, trace_dir=folder / "server")
        return replace(usual, env={**usual.env, "AVBENCH_STEP_COSTS": str(folder / "slow.json")})

    with Server(command, folder / "server", start_timeout=120) as server:
        record, traces = measure_cell(plan, server, cell, lambda _: None)
    return record, {(trace.prompt_id, trace.seed): trace for trace in traces}


def emulated(folder: Path, plan: Plan, cell: Cell) -> tuple[Measurement, Mapping[tuple[str, int], RequestTrace]]:
    """In virtual time."""
    group = next(group for group in plan.groups if group.arm == cell.arm)
    launch = partial(launch_emulation, plan, ResultStore(folder), threading.Event())
    with launch(replace(group, cells=(cell,)), "virtual") as server:
        record, traces = measure_emulated(plan, server, cell, lambda _: None)
    return record, {(trace.prompt_id, trace.seed): trace for trace in traces}


@pytest.mark.parametrize("arm", ["fixed-3", "adaptive-3-refit25"])
def test_a_paced_server_and_the_virtual_clock_agree(folder: Path, arm: str) -> None:
    real = plan_of(folder, "real")
    virtual = plan_of(folder, "virtual", clock="emulated", costs="slow.json")
    (cell,) = (cell for cell in real.cells if cell.arm.id == arm)
    (twin,) = (cell for cell in virtual.cells if cell.arm.id == arm)
    record, requests = paced(folder, real, cell)
    other, twins = emulated(folder, virtual, twin)
    assert (record.status, other.status) == ("done", "done")
    assert record.summary is not None
    assert other.summary is not None

    events = [json.loads(line) for line in (folder / "server/trace.jsonl").read_text().splitlines()]
    pace = events[-1]
    assert pace["event"] == "pace"
    assert pace["steps"] > 50
    # On a machine too busy to keep the pace the comparison would say nothing about the two clocks.
    assert pace["overran"] <= pace["steps"] / 10, f"this machine cannot keep the pace: {pace}"
    assert not any(event["event"] == "costs" and "context" in event for event in events), "it profiled"

    # A window of 14 s holds about 55 steps: where it begins and ends moves up to one of them in or out, 2 % of its
    # tokens. A real client needs a few ms to send its next request, which costs a step when it misses the gap that
    # drafting leaves it. Five in a hundred hold all of this.
    for quantity in ("steady_throughput", "tokens_per_request_step"):
        assert getattr(record.summary, quantity) == pytest.approx(getattr(other.summary, quantity), rel=0.05), quantity
    assert record.summary.itl is not None
    assert other.summary.itl is not None
    assert record.summary.itl.mean == pytest.approx(other.summary.itl.mean, rel=0.05)
    # The same request has the same text both ways, and with fixed K the same steps.
    shared = [(trace, twins[key]) for key, trace in requests.items() if key in twins and trace.phase == "measured"]
    assert len(shared) > 10
    if arm == "fixed-3":
        same = [one.chunk_tokens == two.chunk_tokens for one, two in shared if one.ok and two.ok]
        assert sum(same) / len(same) > 0.9  # batches differ, so a float32 sum may round to another token
    else:
        assert record.summary.verified_per_request_step is not None
        assert record.summary.verified_per_request_step < 2  # the budget knows what the table says: it trims
