"""The parallel drafter: what inference computes is what was trained, and what it cannot load it says."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import write_pair
from tiny_dspark import SHAPE, train_dspark

from avbench.errors import UsageError
from avbench.reference.drafter import DraftBlock, DraftJob
from avbench.reference.dspark import DSparkDrafter
from avbench.reference.llama import Llama
from avbench.reference.load_drafter import load_drafter
from avbench.reference.options import SpeculativeConfig
from avbench.reference.train.dspark_model import DSparkModel

K, ROWS = 4, 6
TEMPERATURE = np.array([1, 0.6, 1, 1.4, 0.6, 1], np.float32)


@pytest.fixture(scope="module")
def losses() -> list[float]:
    return []


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, losses: list[float]) -> Path:
    folder = write_pair(tmp_path_factory.mktemp("pair"))
    losses += train_dspark(folder)
    return folder


def drafter_of(pair: Path, *, k: int = K, sampling: str = "probabilistic") -> DSparkDrafter:
    torch.set_grad_enabled(False)
    return DSparkDrafter(pair / "dspark", k=k, slots=ROWS, dtype=torch.float32, sampling=sampling)


def job(*, depth: int = K, k: int = K, temperature: np.ndarray = TEMPERATURE) -> DraftJob:
    rng = np.random.default_rng(5)
    return DraftJob(
        known=[np.array([0, 3, i]) for i in range(ROWS)],
        slots=np.arange(ROWS),
        states=torch.from_numpy(rng.standard_normal((ROWS, 64)).astype(np.float32)),
        temperature=temperature,
        u=rng.random((ROWS, K)).astype(np.float32)[:, :k],
        depth=depth,
    )


def trained_model(pair: Path) -> DSparkModel:
    model = DSparkModel(SHAPE)
    model.load_state_dict({name: value.float() for name, value in load_file(pair / "dspark/model.safetensors").items()})
    return model


def test_it_learns(pair: Path, losses: list[float]) -> None:
    assert np.mean(losses[-10:]) < 0.75 * np.mean(losses[:10])


def test_inference_is_the_trained_module(pair: Path) -> None:
    drafter, work = drafter_of(pair), job()
    block = drafter.draft(work)
    last = np.array([known[-1] for known in work.known])
    before = torch.from_numpy(np.concatenate([last[:, None], block.tokens[:, :-1]], axis=1))
    logits, confidence = trained_model(pair)(work.states, before)
    expected = (logits / torch.from_numpy(TEMPERATURE)[:, None, None]).softmax(-1)
    q = drafter.distributions
    assert q is not None
    for k in range(K):
        rows = drafter.rows(work.slots)[:, k]
        np.testing.assert_allclose(q.normalised(rows).numpy(), expected[:, k].numpy(), atol=2e-6)
    assert block.head is not None
    np.testing.assert_allclose(block.head, confidence.numpy(), atol=1e-5)
    largest = expected.amax(-1).numpy()
    np.testing.assert_allclose(1 / (1 + block.complement), largest, rtol=1e-5)


def test_tokens_follow_the_distribution(pair: Path) -> None:
    drafter, counts = drafter_of(pair, k=1), np.zeros(8)
    rng = np.random.default_rng(0)
    for _ in range(3000):
        work = DraftJob(
            known=[np.array([2])],
            slots=np.array([0]),
            states=torch.ones(1, 64),
            temperature=np.ones(1, np.float32),
            u=rng.random((1, 1)).astype(np.float32),
            depth=1,
        )
        counts[drafter.draft(work).tokens[0, 0]] += 1
    q = drafter.distributions
    assert q is not None
    expected = q.normalised(np.array([0])).numpy()[0] * counts.sum()
    large = expected > 5
    assert (((counts - expected) ** 2 / expected)[large]).sum() < 30  # 7 degrees of freedom: p = 1e-4


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_fewer_drafts_are_the_first_ones(pair: Path, depth: int) -> None:
    whole, part = drafter_of(pair).draft(job()), drafter_of(pair).draft(job(depth=depth))
    assert part.tokens.shape == (ROWS, depth)
    assert (part.tokens == whole.tokens[:, :depth]).all()
    assert part.head is not None
    assert whole.head is not None
    np.testing.assert_allclose(part.head, whole.head[:, :depth], atol=1e-5)


def test_the_confidence_knows_nothing_of_the_token_it_judges(pair: Path) -> None:
    """Another draw at the last position leaves its confidence alone; at an earlier one it changes the later ones."""

    def heads(change: int) -> tuple[DraftBlock, DraftBlock]:
        work = job(temperature=np.full(ROWS, 1.4, np.float32))
        other = job(temperature=np.full(ROWS, 1.4, np.float32))
        other.u[:, change] = 1 - other.u[:, change]
        first = drafter_of(pair).draft(work)
        return first, drafter_of(pair).draft(other)

    one, two = heads(K - 1)
    assert one.head is not None
    assert two.head is not None
    assert (one.tokens[:, -1] != two.tokens[:, -1]).any()
    assert (one.head == two.head).all()
    one, two = heads(0)
    assert one.head is not None
    assert two.head is not None
    assert (one.head[:, 0] == two.head[:, 0]).all()
    assert (one.head[:, 1:] != two.head[:, 1:]).any()


def test_greedy_drafts_are_the_argmax(pair: Path) -> None:
    drafter = drafter_of(pair, sampling="greedy")
    block = drafter.draft(job(depth=1))
    assert drafter.distributions is None
    before = torch.tensor([[i, 0, 0, 0] for i in range(ROWS)])
    logits, _ = trained_model(pair)(job().states, before)
    assert (block.tokens[:, 0] == logits[:, 0].argmax(-1).numpy()).all()


def speculative(pair: Path, k: int = K) -> SpeculativeConfig:
    return SpeculativeConfig(method="dspark", model=str(pair / "dspark"), num_speculative_tokens=k)


def test_more_drafts_than_a_block_are_refused(pair: Path) -> None:
    target = Llama(pair / "target", slots=2, length=16, dtype=torch.float32)
    with pytest.raises(UsageError, match=r"num_speculative_tokens is 5, but .* drafts blocks of 4"):
        load_drafter(speculative(pair, 5), target, slots=2, length=16)


def edited(config: dict[str, object] | None = None, drop: str | None = None) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | (config or {})))
        weights = load_file(folder / "model.safetensors")
        save_file({name: value for name, value in weights.items() if name != drop}, folder / "model.safetensors")

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (edited({"model_type": "llama"}), "`model_type` is 'llama'; method `dspark` runs 'avbench_dspark' only"),
        (edited({"rank": "16"}), "`rank` is '16', expected a whole number"),
        (edited({"enable_confidence_head": 1}), "`enable_confidence_head` is 1, expected true or false"),
        (edited({"rank": 8}), r"has shape \[32\, 32\]|has shape \[64, 32\], expected \[32, 32\]"),
        (edited(drop="lm_head.weight"), "the tensor `lm_head.weight` is missing"),
        (edited({"target_hidden_size": 64}), "expected"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"cut"), "model.safetensors: "),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json: "),
    ],
)
def test_bad_checkpoints_are_named(pair: Path, tmp_path: Path, edit: Callable[[Path], None], message: str) -> None:
    folder = tmp_path / "dspark"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((pair / "dspark" / name).read_bytes())
    edit(folder)
    with pytest.raises(UsageError, match=message):
        DSparkDrafter(folder, k=2, slots=2, dtype=torch.float32, sampling="greedy")


def test_a_drafter_of_another_target_is_refused(pair: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dspark"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((pair / "dspark" / name).read_bytes())
    edited({"tap_layer": 3})(folder)
    target = Llama(pair / "target", slots=2, length=16, dtype=torch.float32)
    config = SpeculativeConfig(method="dspark", model=str(folder), num_speculative_tokens=2)
    with pytest.raises(UsageError, match="reads layer 3 of a target of width 32, this target has 1 layers of width 32"):
        load_drafter(config, target, slots=2, length=16)
