"""Nested depth inside the engine: what is drafted, what is timed, what the options say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import LENGTH, Arm, build_core, generate, write_pair
from tiny_dspark import train_dspark

from avbench.adaptive.costs import CostTables
from avbench.adaptive.depth import DepthTables
from avbench.adaptive.estimator import OnlineAcceptanceEstimator
from avbench.adaptive.learned_costs import LearnedCosts
from avbench.errors import UsageError
from avbench.reference.core import EngineCore
from avbench.reference.core_process import build
from avbench.reference.costs import CostCurves, profile
from avbench.reference.drafter import DraftJob
from avbench.reference.llama import Llama
from avbench.reference.messages import StepOutput, Submit
from avbench.reference.nested import NestedAdaptive, Stopwatch
from avbench.reference.options import parse_options
from avbench.reference.sequential import SequentialDrafter
from avbench.reference.trace import Trace

K, SLOTS = 3, 8
PROMPTS = [(0, i % 8, 3) for i in range(24)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_pair(tmp_path_factory.mktemp("pair"))
    train_dspark(folder, steps=1)
    return folder


def tables(*, draft: float, token: float) -> DepthTables:
    """A pass costs `draft`, a step 1 + `token` for each token."""
    passes = draft * np.arange(K + 1)[:, None] * np.ones(SLOTS + 1)
    return DepthTables(draft=passes, verify=1 + token * np.arange(SLOTS * (LENGTH + K)))


def nested_core(pair: Path, costs: DepthTables, **changes: object) -> EngineCore:
    def source(slots: int) -> OnlineAcceptanceEstimator:
        return OnlineAcceptanceEstimator(max_requests=slots, positions=K, refit_interval=20)

    published = CostTables(draft=costs.draft[K], verify=costs.verify)
    arm = Arm(k=K, source=source, costs=published, depth_costs=costs, **changes)  # type: ignore[arg-type]
    return build_core(pair, arm, slots=SLOTS)


def drafted(outputs: list[StepOutput]) -> list[float]:
    """Drafts per request of each step that could have any."""
    return [o.spec.draft_tokens / len(o.requests) for o in outputs if o.spec and not o.prompt_tokens]


@pytest.mark.parametrize("method", ["draft_model", "dspark"])
def test_drafts_that_do_not_pay_are_not_made(pair: Path, method: str) -> None:
    """The first steps draft everything, for nothing is known yet; then a pass at ten times a step is not worth it."""
    outputs: list[StepOutput] = []
    core = nested_core(pair, tables(draft=10, token=0.01), method=method)
    generate(core, PROMPTS, max_tokens=40, outputs=outputs)
    depths = drafted(outputs)
    assert len(depths) > 60
    assert np.mean(np.array(depths) == 0) > 0.9


def test_the_drafter_catches_up_after_steps_without_drafts(pair: Path) -> None:
    """What was generated meanwhile is read before the next draft: q is what a drafter that never paused would say."""
    costs = tables(draft=1e9, token=0)
    core = nested_core(pair, costs)
    for i in range(4):
        core.add(
            Submit(request_id=i, prompt=PROMPTS[i], max_tokens=50, temperature=1.0, top_p=1.0, seed=i, ignore_eos=True)
        )
    for _ in range(15):
        core.step(lambda _: None)
    running = sorted(core._scheduler.running.values(), key=lambda sequence: sequence.slot)
    drafter = core._speculation._drafter  # type: ignore[attr-defined]
    assert (drafter._depth[:4] == 0).all()
    fresh = SequentialDrafter(
        pair / "draft", k=K, slots=SLOTS, length=LENGTH, dtype=torch.float32, sampling="probabilistic"
    )
    ones, slots = np.ones(4, np.float32), np.arange(4)
    job = DraftJob(
        known=[sequence.known for sequence in running],
        slots=slots,
        states=torch.zeros(4, 0),
        temperature=ones,
        u=np.full((4, K), 0.3, np.float32),
        depth=K,
    )
    blocks = [drafter.draft(job), fresh.draft(job)]
    assert (blocks[0].tokens == blocks[1].tokens).all()
    assert blocks[0].complement == pytest.approx(blocks[1].complement, rel=1e-3)


def test_while_observing_everything_is_drafted_and_verified(pair: Path) -> None:
    outputs: list[StepOutput] = []
    generate(nested_core(pair, tables(draft=10, token=0.01), observe=True), PROMPTS, max_tokens=30, outputs=outputs)
    specs = [o.spec for o in outputs if o.spec and o.spec.drafts]
    assert all(spec.verified == spec.draft_tokens == K * spec.drafts for spec in specs)


def learned() -> LearnedCosts:
    return LearnedCosts(tables(draft=1, token=0.1), sizes=(1, 2, 4, 8, 16, 32))


class Watch:
    """Seconds that move when told to."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def timed_steps(
    stopwatch: Stopwatch, watch: Watch, *, verify: float, draft: float, steps: int, prompt: int = 1
) -> None:
    """Two requests, two drafts each, all verified; milliseconds."""
    for _ in range(steps):
        stopwatch.begin(np.array([1, 1]), np.array([2, 2]))
        watch.seconds += verify / 1000
        stopwatch.verified()
        stopwatch.teach()
        stopwatch.drafting(2)
        watch.seconds += draft / 1000
        stopwatch.drafted(2)


def test_step_times_are_taught_half_by_half() -> None:
    """By the tables verification takes 1.6 ms and drafting 2. It takes 20 % longer, and drafting 20 % less."""
    costs, watch = learned(), Watch()
    timed_steps(Stopwatch(costs, watch), watch, verify=1.92, draft=1.6, steps=400)
    entries = len(costs._sizes)
    assert costs._weights[6] @ costs.corrections[:entries] == pytest.approx(np.log(1.2), abs=0.03)
    assert costs.corrections[entries + 1] == pytest.approx(np.log(0.8), abs=0.03)


def test_the_first_step_and_drafts_after_a_pause_teach_nothing() -> None:
    costs, watch = learned(), Watch()
    stopwatch = Stopwatch(costs, watch)
    timed_steps(stopwatch, watch, verify=50, draft=50, steps=1)
    stopwatch.teach()
    assert not costs.corrections.any()
    timed_steps(stopwatch, watch, verify=1.6, draft=2, steps=3)
    stopwatch.pause()
    watch.seconds += 0.005  # another prompt's first step, from which nothing went on
    before = costs.corrections.copy()
    timed_steps(stopwatch, watch, verify=1.6, draft=2, steps=1)
    assert costs.corrections == pytest.approx(before, abs=0.01)


def test_profile_times_the_depths_that_are_asked_for(pair: Path) -> None:
    torch.set_grad_enabled(False)
    target = Llama(pair / "target", slots=SLOTS, length=LENGTH, dtype=torch.float32)
    drafter = SequentialDrafter(
        pair / "draft", k=K, slots=SLOTS, length=LENGTH, dtype=torch.float32, sampling="probabilistic"
    )
    curves = profile(target, drafter, slots=SLOTS, length=LENGTH, shallow=(1, 2))
    assert list(curves.shallow) == [1, 2]
    assert [size for size, _ in curves.shallow[1]] == [size for size, _ in curves.draft]
    costs = curves.by_depth(SLOTS, SLOTS * (LENGTH + K), k=K)._tables
    assert costs.draft.shape == (K + 1, SLOTS + 1)
    assert (costs.draft[0] == 0).all()
    assert (costs.draft[1:] > 0).all()
    assert costs.draft[3].sum() > costs.draft[1].sum()
    assert costs.draft[K] == pytest.approx(curves.tables(SLOTS, 10).draft)


def test_depths_between_profiled_ones_are_interpolated() -> None:
    curves = CostCurves(draft=[(1, 7.0), (2, 14.0)], verify=[(1, 1.0)], context=1, shallow={1: [(1, 1.0), (2, 2.0)]})
    draft = curves.by_depth(2, 20, k=7)._tables.draft
    assert draft[:, 1] == pytest.approx(np.arange(8.0))
    assert draft[:, 2] == pytest.approx(2 * np.arange(8.0))


def options(pair: Path, *, adaptive: bool = True) -> list[str]:
    config = {
        "method": "draft_model",
        "model": str(pair / "draft"),
        "num_speculative_tokens": K,
        "enable_adaptive_verification": adaptive,
    }
    return ["--model", str(pair / "target"), "--max-num-seqs", "2", "--speculative-config", json.dumps(config)]


def adaptive_of(core: EngineCore) -> object:
    return core._speculation._adaptive  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value", "depth", "nested"), [("nested", "nested", True), ("full", "full", False), ("", "full", False)]
)
def test_the_environment_asks_for_it_and_the_trace_says_so(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, depth: str, nested: bool
) -> None:
    monkeypatch.setenv("AVBENCH_DEPTH", value)
    core, _ = build(parse_options(options(pair)), Trace(tmp_path))
    assert isinstance(adaptive_of(core), NestedAdaptive) == nested
    start = json.loads((tmp_path / "trace.jsonl").read_text().splitlines()[0])
    assert start["depth"] == depth


def test_without_adaptive_verification_there_is_no_depth_to_choose(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AVBENCH_DEPTH", "nested")
    core, _ = build(parse_options(options(pair, adaptive=False)), Trace(tmp_path))
    assert adaptive_of(core) is None
    assert json.loads((tmp_path / "trace.jsonl").read_text().splitlines()[0])["depth"] is None


def test_another_value_is_named(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVBENCH_DEPTH", "deep")
    with pytest.raises(UsageError, match="AVBENCH_DEPTH is 'deep', expected one of full, nested"):
        parse_options(options(pair))


def test_a_real_engine_serves_with_costs_that_it_corrects(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVBENCH_DEPTH", "nested")
    core, _ = build(parse_options(options(pair)), Trace(None))
    texts = generate(core, PROMPTS, max_tokens=20)
    assert [len(text) for text in texts] == [20] * len(PROMPTS)
    adaptive = adaptive_of(core)
    assert isinstance(adaptive, NestedAdaptive)
    assert adaptive._stopwatch is not None
    assert adaptive._stopwatch._costs.corrections.any()
