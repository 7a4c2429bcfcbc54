"""The engine core as a machine: lengths, ends, aborts, counters, reproducibility."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import LENGTH, Arm, build_core, generate, write_pair

from avbench.adaptive.costs import CostTables
from avbench.adaptive.estimator import OnlineAcceptanceEstimator
from avbench.reference.costs import profile
from avbench.reference.llama import Llama
from avbench.reference.messages import StepOutput, Submit
from avbench.reference.scheduler import MAX_PREFILL_TOKENS, Scheduler
from avbench.reference.sequence import Sequence
from avbench.reference.sequential import SequentialDrafter
from avbench.reference.trace import Trace
from avbench.reference.uniforms import request_key, uniforms

K = 3


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pair(tmp_path_factory.mktemp("pair"))


def submit(request_id: int, *, prompt: tuple[int, ...] = (0, 2, 3), max_tokens: int = 8, **changes: object) -> Submit:
    values = {"temperature": 1.0, "top_p": 1.0, "seed": request_id, "ignore_eos": True} | changes
    return Submit(request_id=request_id, prompt=prompt, max_tokens=max_tokens, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [0, 1, K, 7])
def test_every_request_gets_exactly_its_tokens(pair: Path, k: int) -> None:
    limits = [1, 2, 5, 9, 30, 61]
    outputs: list[StepOutput] = []
    texts = generate(build_core(pair, Arm(k=k), slots=4), [(0, 2, 3)] * 6, max_tokens=limits, outputs=outputs)
    assert [len(text) for text in texts] == limits
    finished = [(r.request_id, r.finish) for o in outputs for r in o.requests if r.finish]
    assert sorted(finished) == [(i, "length") for i in range(6)]
    assert sum(o.prompt_tokens for o in outputs) == 18
    assert outputs[-1].running == 0


def test_the_context_may_be_filled_to_the_last_token(pair: Path) -> None:
    prompt = tuple(np.random.default_rng(0).integers(0, 8, LENGTH - 5).tolist())
    (text,) = generate(build_core(pair, Arm(k=7)), [prompt], max_tokens=5)
    assert len(text) == 5


def test_end_token_ends_a_request_unless_ignored(pair: Path) -> None:
    core = build_core(pair, Arm(k=K))
    tokens: dict[int, list[int]] = {i: [] for i in range(60)}
    ends: dict[int, str | None] = {}

    def take(output: StepOutput) -> None:
        for request in output.requests:
            tokens[request.request_id] += request.tokens
            ends[request.request_id] = request.finish

    for i in range(60):
        core.add(submit(i, max_tokens=40, ignore_eos=False))
    while not core.idle:
        core.step(take)
    stopped = [i for i in tokens if ends[i] == "stop"]
    assert stopped, "the case is of no use if no request ends by itself"
    for i, ids in tokens.items():
        assert 1 not in ids[:-1]
        assert (ids[-1] == 1) == (i in stopped)


def test_seeded_requests_do_not_depend_on_their_neighbours(pair: Path) -> None:
    prompts = [(0, i % 8, 4) for i in range(20)]
    together = generate(build_core(pair, Arm(k=K), slots=16), prompts, max_tokens=15)
    alone = generate(build_core(pair, Arm(k=K), slots=1), prompts, max_tokens=15)
    assert together == alone


def test_unseeded_requests_differ_and_follow_the_engine_seed(pair: Path) -> None:
    def run() -> list[tuple[int, ...]]:
        core = build_core(pair, Arm())
        got: dict[int, list[int]] = {0: [], 1: []}
        for i in got:
            core.add(submit(i, max_tokens=30, seed=None))
        while not core.idle:
            core.step(lambda o: [got[r.request_id].extend(r.tokens) for r in o.requests] and None)
        return [tuple(ids) for ids in got.values()]

    first, second = run()
    assert first != second
    assert run() == [first, second]


def test_an_aborted_request_frees_its_slot_and_says_nothing_more(pair: Path) -> None:
    core = build_core(pair, Arm(k=K), slots=1)
    seen: list[int] = []
    core.add(submit(0, max_tokens=50))
    core.add(submit(1, max_tokens=2))
    core.add(submit(2, max_tokens=2))
    core.step(lambda o: seen.extend(r.request_id for r in o.requests))
    core.abort(0)
    core.abort(1)  # still waiting
    core.abort(99)  # unknown: it may just have ended
    while not core.idle:
        core.step(lambda o: seen.extend(r.request_id for r in o.requests))
    assert seen[0] == 0
    assert set(seen[1:]) == {2}


def test_counters_add_up(pair: Path) -> None:
    costs = CostTables(draft=np.zeros(33), verify=1.0 + np.ceil(np.arange(33 * 12) / 8))
    arm = Arm(k=K, source=lambda n: OnlineAcceptanceEstimator(max_requests=n, positions=K), costs=costs)
    outputs: list[StepOutput] = []
    texts = generate(build_core(pair, arm), [(0, 5)] * 50, max_tokens=20, outputs=outputs)
    specs = [o.spec for o in outputs if o.spec]
    accepted, verified = sum(s.accepted for s in specs), sum(s.verified for s in specs)
    drafts, draft_tokens = sum(s.drafts for s in specs), sum(s.draft_tokens for s in specs)
    assert accepted == sum(sum(s.accepted_per_position) for s in specs)
    assert accepted <= verified < draft_tokens == drafts * K
    # Every request-step gives its accepted drafts and one token more; what overshoots the limit is cut.
    made = 50 + drafts + accepted
    assert sum(map(len, texts)) <= made <= sum(map(len, texts)) + 50 * K


def test_trace_records_steps_and_refits(pair: Path, tmp_path: Path) -> None:
    trace = Trace(tmp_path)
    trace.event("refit", step=3, slope=0.5)
    for i in range(300):
        trace.step(i, 0.001, requests=2, scheduled=6, admitted=i % 3)
    trace.flush()
    events = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    steps = [e for e in events if e["event"] == "steps"]
    assert events[0]["event"] == "refit"
    assert events[0]["slope"] == 0.5
    assert [a for e in steps for a in e["admitted"]] == [i % 3 for i in range(300)]
    assert [e["step"] for e in steps] == [0, 256]


def test_profile_is_monotone_and_covers_the_engine(pair: Path) -> None:
    torch.set_grad_enabled(False)
    target = Llama(pair / "target", slots=8, length=LENGTH, dtype=torch.float32)
    drafter = SequentialDrafter(
        pair / "draft", k=K, slots=8, length=LENGTH, dtype=torch.float32, sampling="probabilistic"
    )
    curves = profile(target, drafter, slots=8, length=LENGTH)
    for curve, largest in ((curves.draft, 8), (curves.verify, 32)):
        sizes, costs = zip(*curve, strict=True)
        assert sizes[0] == 1
        assert sizes[-1] == largest
        assert all(b > a for a, b in itertools.pairwise(sizes))
        assert all(b >= a > 0 for a, b in itertools.pairwise(costs))


def test_scheduler_starts_in_order_and_limits_prefill() -> None:
    scheduler = Scheduler(8)
    big = MAX_PREFILL_TOKENS // 2
    for i in range(4):
        scheduler.add(Sequence(submit(i, prompt=(0,) * big), np.uint64(0)))
    assert [s.request_id for s in scheduler.start()] == [0, 1]
    assert [s.slot for s in scheduler.start()] == [2, 3]
    assert scheduler.waiting == 0


def test_uniforms_are_uniform_and_independent_of_the_batch() -> None:
    keys = np.array([request_key(i, b"prompt") for i in range(500)])
    assert request_key(0, b"prompt") != request_key(0, b"another")
    u = uniforms(keys, np.zeros(500, np.int64), 64)
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 4 * (1 / 12 / u.size) ** 0.5
    counts = np.histogram(u, bins=32, range=(0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 70  # chi-square, 31 degrees: 1e-4
    assert abs(np.corrcoef(u[:-1].ravel(), u[1:].ravel())[0, 1]) < 0.03
    assert np.array_equal(uniforms(keys[7:9], np.array([0, 0]), 64), u[7:9])
    assert not np.array_equal(uniforms(keys[:1], np.array([1]), 64), u[:1])


@pytest.mark.parametrize(("temperature", "top_p"), [(0.01, 1.0), (0.01, 1e-46), (1.0, 1e-46), (100.0, 1.0)])
@pytest.mark.parametrize("k", [0, K])
def test_extreme_sampling_never_leaves_the_vocabulary(pair: Path, k: int, temperature: float, top_p: float) -> None:
    texts = generate(build_core(pair, Arm(k=k)), [(0, 2)] * 8, max_tokens=10, temperature=temperature, top_p=top_p)
    assert all(0 <= token < 8 for text in texts for token in text)


def test_standing_tells_that_the_last_request_was_dropped(pair: Path) -> None:
    core = build_core(pair, Arm(k=K), slots=1)
    for i in range(2):
        core.add(submit(i, max_tokens=50))
    core.step(lambda _: None)
    assert (core.standing().running, core.standing().waiting) == (1, 1)
    core.abort(0)
    core.abort(1)
    assert (core.standing().running, core.standing().waiting) == (0, 0)


def test_a_full_disk_ends_the_trace_and_nothing_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = Trace(tmp_path)
    trace._file = Path("/dev/full").open("a")  # noqa: SIM115
    trace.event("refit", slope=0.5)
    trace.event("refit", slope=0.6)
    assert capsys.readouterr().err.count("the trace ends here") == 1
