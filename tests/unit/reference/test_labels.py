"""Labelled drafts of real engines: every row against an independent count, every feature against plain arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from tiny import LENGTH, Arm, build_core, generate, write_pair
from tiny_dspark import train_dspark

from avbench.adaptive.budget import admit
from avbench.adaptive.confidence import HeadConfidence
from avbench.adaptive.costs import CostTables
from avbench.adaptive.estimator import OnlineAcceptanceEstimator, sigmoid
from avbench.adaptive.verification import AdaptiveVerification
from avbench.reference.core import EngineCore
from avbench.reference.drafter import DraftBlock, DraftDetail
from avbench.reference.label_parts import COLUMNS, LabelParts
from avbench.reference.labels import Labels
from avbench.reference.messages import StepOutput, Submit
from avbench.reference.proposals import Proposals
from avbench.reference.speculation import Speculation

K, SLOTS = 3, 16
TEMPERATURES = (0.0, 0.7, 1.0, 1.3)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_pair(tmp_path_factory.mktemp("pair"))
    train_dspark(folder)
    return folder


def estimator(slots: int) -> OnlineAcceptanceEstimator:
    return OnlineAcceptanceEstimator(max_requests=slots, positions=K, refit_interval=5)


def head(slots: int) -> HeadConfidence:
    return HeadConfidence()


def stepped_costs() -> CostTables:
    tokens = np.arange(SLOTS * (LENGTH + K) + 1)
    return CostTables(draft=np.full(SLOTS + 1, 0.1), verify=1.0 + 0.45 * np.ceil(tokens / 8))


ADAPTIVE = Arm(k=K, source=estimator, costs=stepped_costs())
ARMS = {
    "fixed": Arm(k=K),
    "fixed, greedy drafts": Arm(k=K, sampling="greedy"),
    "fixed, parallel": Arm(k=K, method="dspark"),
    "adaptive": ADAPTIVE,
    "adaptive, greedy drafts": replace(ADAPTIVE, sampling="greedy"),
    "adaptive, head": replace(ADAPTIVE, method="dspark", source=head),
    "observed": replace(ADAPTIVE, observe=True),
    "observed, head": replace(ADAPTIVE, method="dspark", source=head, observe=True),
}


def add(core: EngineCore, requests: int, *, max_tokens: int = 20) -> None:
    """Requests of rising length and every temperature, as many as there are slots: request i takes slot i."""
    for i in range(requests):
        core.add(
            Submit(
                request_id=i,
                prompt=(0, i % 8, 3),
                max_tokens=max_tokens + i,
                temperature=TEMPERATURES[i % len(TEMPERATURES)],
                top_p=1.0,
                seed=i,
                ignore_eos=True,
            )
        )


def run(core: EngineCore) -> list[StepOutput]:
    outputs: list[StepOutput] = []
    while not core.idle:
        core.step(outputs.append)
    core.flush()
    return outputs


def read(folder: Path) -> pd.DataFrame:
    """All rows, in order; a missing value is None."""
    tables = [pyarrow.parquet.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    return pyarrow.concat_tables(tables).to_pandas()


@pytest.mark.parametrize("name", ARMS)
def test_rows_agree_with_the_counters(pair: Path, tmp_path: Path, name: str) -> None:
    core = build_core(pair, replace(ARMS[name], labels=tmp_path), slots=SLOTS)
    add(core, SLOTS)
    outputs = run(core)
    rows = read(tmp_path)
    assert list(rows.columns) == list(COLUMNS)
    for step, output in enumerate(outputs):
        here, spec = rows[rows.step == step], output.spec
        assert spec is not None
        accepted = here[here.label == True]  # noqa: E712  # None is neither
        assert len(here) == spec.draft_tokens
        assert here.request.nunique() == spec.drafts
        assert tuple(np.bincount(accepted.position, minlength=K)) == spec.accepted_per_position
        assert here.label.notna().sum() <= spec.verified
        if not ARMS[name].observe:
            assert here.admitted.sum() == spec.verified
            assert not (here.label.notna() & ~here.admitted).any()
        for request in output.requests:
            if request.finish is None:  # the last tokens of a request are cut to its limit
                assert (accepted.request == request.request_id).sum() == len(request.tokens) - 1
    for _, drafts in rows.groupby(["step", "request"]):
        check_order(drafts)
    assert rows.label.isna().any()
    if ARMS[name].source is None:
        assert rows.admitted.all()
        assert rows.prediction.isna().all()
    else:
        assert 0.1 < rows.admitted.mean() < 0.95, "the case is only of use if drafts are trimmed"
    assert rows["head"].notna().all() if ARMS[name].method == "dspark" else rows["head"].isna().all()


def check_order(drafts: pd.DataFrame) -> None:
    """Positions rise from 0; labels are true, then at most one false, then none; admitted drafts are a prefix."""
    assert drafts.position.tolist() == list(range(len(drafts)))
    assert drafts.admitted.is_monotonic_decreasing
    told = drafts.label[drafts.label.notna()].astype(bool).tolist()
    assert drafts.label.iloc[: len(told)].notna().all()
    assert told == sorted(told, reverse=True)
    assert told.count(False) <= 1


@pytest.mark.parametrize("method", ["draft_model", "dspark"])
@pytest.mark.parametrize("sampling", ["probabilistic", "greedy"])
def test_features_are_those_of_the_logits(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, sampling: str
) -> None:
    seen: list[dict[str, Any]] = []
    rows_of: list[Any] = []
    begin, choose = Proposals.begin, Proposals.choose

    def begin_and_tell(self: Proposals, slots: Any, depth: int) -> Any:
        rows_of[:] = slots.tolist()
        return begin(self, slots, depth)

    def choose_and_tell(self: Proposals, block: Any, i: int, temperature: Any, u: Any) -> Any:
        logits = self.room(i, len(u)).double().numpy()
        tokens = choose(self, block, i, temperature, u)
        for row, request in enumerate(rows_of):
            seen.append(plain_features(logits[row], float(temperature[row]), int(tokens[row])))
            seen[-1] |= {"step": core._step_number + 1, "request": request, "position": i}
        return tokens

    core = build_core(pair, Arm(k=K, sampling=sampling, method=method, labels=tmp_path), slots=SLOTS)
    monkeypatch.setattr(Proposals, "begin", begin_and_tell)
    monkeypatch.setattr(Proposals, "choose", choose_and_tell)
    add(core, SLOTS)
    run(core)
    key = ["step", "request", "position"]
    both = read(tmp_path).merge(pd.DataFrame(seen), on=key, how="left", suffixes=("", "_plain"))
    assert len(both) > 500
    for name in ("q_max", "entropy", "margin", "q_sampled"):
        np.testing.assert_allclose(both[name], both[f"{name}_plain"], rtol=2e-5, atol=2e-6, err_msg=name)
    certain = both.q_max > 1 - 1e-4  # there float32 has no digits left
    np.testing.assert_allclose(both.logit_q_max[~certain], both.logit_q_max_plain[~certain], rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(both.temperature, np.float32(both.temperature_plain))
    expected = both.q_max if sampling == "greedy" else both.q_max[both.temperature == 0]
    np.testing.assert_allclose(both.q_sampled[expected.index], expected, rtol=1e-6)
    assert set(both.temperature) == {np.float32(t) for t in TEMPERATURES}


def plain_features(logits: np.ndarray, temperature: float, token: int) -> dict[str, Any]:
    """By the definitions, in float64; a temperature of 0 counts as 1."""
    scaled = logits / (temperature or 1.0)
    p = np.exp(scaled - scaled.max())
    p /= p.sum()
    second, first = np.sort(p)[-2:]
    return {
        "temperature": temperature,
        "q_max": first,
        "logit_q_max": np.log(first) - np.log(p.sum() - first) if first < 1 else 40.0,
        "entropy": -(p * np.log(p)).sum(),
        "margin": first - second,
        "q_sampled": p[token],
    }


@pytest.mark.parametrize("name", ["adaptive", "adaptive, head", "observed"])
def test_predictions_are_those_the_budget_was_split_by(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    budgets: dict[int, int] = {}
    size = AdaptiveVerification.budget

    def record(self: AdaptiveVerification, *args: Any, **keywords: Any) -> int:
        budgets[core._step_number] = size(self, *args, **keywords)
        return budgets[core._step_number]

    monkeypatch.setattr(AdaptiveVerification, "budget", record)
    core = build_core(pair, replace(ARMS[name], labels=tmp_path), slots=SLOTS)
    add(core, SLOTS)
    run(core)
    rows = read(tmp_path)
    assert set(rows.step) <= set(budgets)
    for step, here in rows.groupby("step"):
        requests, scheduled = np.unique(here.request, return_counts=True)
        confidences = np.zeros((len(requests), K), np.float32)
        confidences[np.searchsorted(requests, here.request), here.position] = here.prediction
        expected = admit(confidences, scheduled, budgets[step])
        assert expected.sum() == budgets[step]
        assert here.groupby("request").admitted.sum().tolist() == expected.tolist()
    if "head" in name:
        assert np.array_equal(rows.prediction, sigmoid(rows["head"].to_numpy()))


@pytest.mark.parametrize("source", [estimator, head])
def test_observing_changes_no_token_of_fixed_k(pair: Path, source: Callable[[int], Any]) -> None:
    method = "dspark" if source is head else "draft_model"
    prompts = [(0, i % 8, 3) for i in range(40)]
    arms = [
        Arm(k=K, method=method),
        replace(ADAPTIVE, method=method, source=source, observe=True),
        replace(ADAPTIVE, method=method, source=source),
    ]
    fixed, observed, trimmed = (generate(build_core(pair, arm, slots=SLOTS), prompts, max_tokens=20) for arm in arms)
    assert observed == fixed
    assert trimmed != fixed, "the case is only of use if the budget would have trimmed"


def test_observing_verifies_everything_up_to_the_largest_step(pair: Path, tmp_path: Path) -> None:
    for limit in (None, 40):
        folder = tmp_path / str(limit)
        arm = replace(ADAPTIVE, observe=True, labels=folder, max_logits=limit)
        core = build_core(pair, arm, slots=SLOTS)
        add(core, SLOTS)
        outputs = run(core)
        rows = read(folder)
        for step, output in enumerate(outputs):
            spec = output.spec
            assert spec is not None
            room = spec.draft_tokens if limit is None else max(0, limit - len(output.requests))
            assert spec.verified == min(spec.draft_tokens, room)
            assert rows[rows.step == step].admitted.sum() <= spec.verified
        cut = [o.spec.verified < o.spec.draft_tokens for o in outputs if o.spec]
        assert any(cut) == (limit is not None)
        assert rows.label[~rows.admitted].notna().any(), "labels of drafts that would have been trimmed"


def test_observing_teaches_the_estimator_what_trimming_hides(pair: Path) -> None:
    """Every refit must have seen as many labels as a fixed K gives: position 3 of each request that got there."""
    made: list[OnlineAcceptanceEstimator] = []

    def keep(slots: int) -> OnlineAcceptanceEstimator:
        made.append(OnlineAcceptanceEstimator(max_requests=slots, positions=K, refit_interval=10**6))
        return made[-1]

    outputs: list[StepOutput] = []
    arm = replace(ADAPTIVE, source=keep, observe=True)
    generate(build_core(pair, arm, slots=SLOTS), [(0, 5)] * 40, max_tokens=20, outputs=outputs)
    accepted = np.array([o.spec.accepted_per_position for o in outputs if o.spec]).sum(0)
    drafts = sum(o.spec.drafts for o in outputs if o.spec)
    graded = made[0]._statistics[5, :K]
    assert graded[0] == drafts
    assert graded[1:].tolist() == accepted[:-1].tolist()  # each accepted draft lets the next one be graded


@pytest.mark.parametrize("name", ["fixed", "adaptive"])
def test_labels_change_no_token(pair: Path, tmp_path: Path, name: str) -> None:
    prompts = [(0, i % 8, 3) for i in range(40)]
    for sampling in ("probabilistic", "greedy"):
        plain = replace(ARMS[name], sampling=sampling)
        labelled = replace(plain, labels=tmp_path / sampling)
        texts = [generate(build_core(pair, arm, slots=SLOTS), prompts, max_tokens=20) for arm in (plain, labelled)]
        assert texts[0] == texts[1]


def test_drafts_without_a_verdict_are_no_rows(pair: Path, tmp_path: Path) -> None:
    core = build_core(pair, Arm(k=K, labels=tmp_path), slots=2)
    add(core, 3, max_tokens=40)
    for _ in range(4):
        core.step(lambda _: None)
    core.abort(0)  # its drafts are out; request 2 takes the slot
    run(core)
    rows = read(tmp_path)
    first = rows[rows.request == 0]
    assert first.step.max() == 3
    assert len(first) == 3 * K
    assert rows[rows.request == 2].step.min() == 5  # the prompt is read in step 4
    assert set(rows.request) == {0, 1, 2}
    assert (rows.temperature == rows.request.map(lambda i: np.float32(TEMPERATURES[i]))).all()


def test_only_drafts_that_were_made_are_rows(tmp_path: Path) -> None:
    """Two slots of four, two of five positions drafted; counts by hand."""
    labels = Labels(LabelParts(tmp_path, {}), slots=4, k=5, now=lambda: 12.5)
    labels.enter(3, request=70, temperature=0.5)
    labels.enter(1, request=71, temperature=1.0)
    a, b = np.float32([[1.0, 3.0], [0.25, 0.0]]), np.float32([[0.5, 0.6], [0.7, 0.8]])
    detail = DraftDetail(entropy=b, margin=b + 1, sampled=b + 2)
    tokens = np.zeros((2, 2), np.int64)
    labels.drafted(np.array([3, 1]), DraftBlock(tokens=tokens, complement=a, head=None, detail=detail))
    labels.verdict(
        9,
        np.array([1, 2, 3]),
        scheduled=np.array([2, 0, 2]),
        admitted=np.array([1, 0, 2]),
        verified=np.array([1, 0, 2]),
        accepted=np.array([1, 0, 0]),
        predictions=None,
    )
    labels.flush()
    rows = read(tmp_path)
    assert rows.time.tolist() == [12.5] * 4
    assert rows.step.tolist() == [9] * 4
    assert rows.request.tolist() == [71, 71, 70, 70]
    assert rows.position.tolist() == [0, 1, 0, 1]
    assert rows.temperature.tolist() == [1.0, 1.0, 0.5, 0.5]
    assert rows.q_max.tolist() == pytest.approx([0.8, 1.0, 0.5, 0.25])
    assert rows.logit_q_max.tolist() == pytest.approx([np.log(4), 40.0, 0.0, -np.log(3)])
    assert rows.entropy.tolist() == pytest.approx([0.7, 0.8, 0.5, 0.6])
    assert rows.margin.tolist() == pytest.approx([1.7, 1.8, 1.5, 1.6])
    assert rows.q_sampled.tolist() == pytest.approx([2.7, 2.8, 2.5, 2.6])
    assert rows.admitted.tolist() == [True, False, True, True]
    assert rows.label.tolist() == [True, None, False, None]


def test_labels_that_cannot_be_written_cost_nothing_more(
    pair: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "labels").write_text("a file where the folder should be")
    core = build_core(pair, replace(ADAPTIVE, labels=tmp_path / "labels"), slots=SLOTS)
    add(core, SLOTS)
    for _ in range(4):
        core.step(lambda _: None)
    assert core.unwritten
    core.flush()
    run(core)
    assert not core.unwritten
    assert capsys.readouterr().err.count("labelled drafts end here") == 1
    speculation = core._speculation
    assert isinstance(speculation, Speculation)
    assert not speculation._drafter.detailed
