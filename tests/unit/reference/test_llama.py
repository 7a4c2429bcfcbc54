"""The engine's forward pass against a plain one, in every shape of batch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import LENGTH, write_pair
from transformers import LlamaForCausalLM

from avbench.errors import UsageError
from avbench.reference.attention import LONG_ROW, common_depth
from avbench.reference.checkpoint import read_shape, read_weights
from avbench.reference.llama import Llama
from avbench.reference.ragged import Ragged

TOLERANCE = 1e-4


@pytest.fixture(scope="module", params=[(4, 2), (4, 1), (2, 2)], ids=["grouped", "multi-query", "multi-head"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    heads, kv_heads = request.param
    return (
        write_pair(tmp_path_factory.mktemp("pair"), vocabulary=40, heads=heads, kv_heads=kv_heads, layers=2) / "target"
    )


def continue_all(target: Path, lengths: list[int], chunks: list[list[int]], slots: list[int]) -> float:
    """Feed texts of `lengths` in ragged `chunks` (tokens per row and call); largest difference of any logit."""
    torch.set_grad_enabled(False)
    plain = LlamaForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    engine = Llama(target, slots=max(slots) + 1, length=LENGTH, dtype=torch.float32)
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 40, n) for n in lengths]
    wanted = [plain(input_ids=torch.from_numpy(text)[None]).logits[0] for text in texts]
    done = np.zeros(len(texts), np.int64)
    worst = 0.0
    for counts in chunks:
        rows = [i for i, n in enumerate(counts) if n]
        batch = Ragged(
            tokens=np.concatenate([texts[i][done[i] : done[i] + counts[i]] for i in rows]),
            slots=np.array([slots[i] for i in rows]),
            starts=done[rows],
            counts=np.array([counts[i] for i in rows]),
        )
        logits = engine.logits(engine.forward(batch))
        for place, i in enumerate(rows):
            got = logits[batch.offsets[place] : batch.offsets[place + 1]]
            worst = max(worst, (got - wanted[i][done[i] : done[i] + counts[i]]).abs().max().item())
        done += np.array(counts)
    assert done.tolist() == lengths
    return worst


def test_prompts_then_single_tokens(target: Path) -> None:
    chunks = [[30, 5, 28], [1, 1, 1], [1, 1, 1]]
    assert continue_all(target, [32, 7, 30], chunks, slots=[0, 1, 2]) < TOLERANCE


def test_rows_of_unequal_depth_and_slots_with_holes(target: Path) -> None:
    lengths = [20, 9, 22, 14, 17]
    chunks = [[12, 1, 15, 6, 9], [1, 4, 2, 1, 8], [7, 4, 5, 7, 0]]
    assert continue_all(target, lengths, chunks, slots=[6, 0, 3, 2, 9]) < TOLERANCE


def test_many_rows_take_the_split_path(target: Path) -> None:
    """One deep row among many shallow ones: first tokens together, the rest on their own."""
    rows = 40
    lengths = [10] * (rows - 1) + [20]
    chunks = [[9] * (rows - 1) + [9], [1] * (rows - 1) + [8], [0] * (rows - 1) + [3]]
    assert continue_all(target, lengths, chunks, slots=list(range(rows))) < TOLERANCE


def test_most_rows_share_a_depth_and_some_go_deeper(target: Path) -> None:
    """Three tokens of each row together (two rows pad), and what eight of them have beyond that on their own."""
    rows = 32
    first = [5 + i % 7 for i in range(rows)]
    second = [8 if i % 4 == 0 else 3 for i in range(rows)]
    second[1] = second[2] = 1
    lengths = [a + b for a, b in zip(first, second, strict=True)]
    assert common_depth(np.array(second)) == 3
    assert continue_all(target, lengths, [first, second], slots=list(range(rows))[::-1]) < TOLERANCE


@pytest.mark.parametrize(
    ("counts", "depth"),
    [
        ([4] * 10, 4),  # nothing to pad
        ([1] * 9 + [8], 1),  # 7 * 9 places of 6 us against one call of 25 us
        ([1] + [8] * 9, 8),  # 7 places, 42 us, against 9 calls
        ([2] * 5 + [3] * 5, 3),  # 5 places, 30 us, against 5 calls
        ([2] * 30 + [4] * 2 + [1] * 4, 2),  # 4 places and 2 calls; depth 4 would pad 72, depth 1 cost 32 calls
    ],
)
def test_where_rows_are_parted(counts: list[int], depth: int) -> None:
    assert common_depth(np.array(counts)) == depth


def test_a_prompt_beside_decoding_rows(target: Path) -> None:
    lengths = [LONG_ROW + 10, 12, LONG_ROW + 8]
    chunks = [[0, 8, LONG_ROW + 1], [LONG_ROW + 9, 2, 5], [1, 2, 2]]
    assert continue_all(target, lengths, chunks, slots=[2, 0, 1]) < TOLERANCE


def test_a_long_row_in_the_middle_of_a_request(target: Path) -> None:
    lengths = [LONG_ROW + 20]
    assert continue_all(target, lengths, [[15], [LONG_ROW + 5]], slots=[0]) < TOLERANCE


def test_bfloat16_is_close(target: Path) -> None:
    torch.set_grad_enabled(False)
    batch = Ragged(tokens=np.arange(20) % 40, slots=np.array([0]), starts=np.array([0]), counts=np.array([20]))
    full = Llama(target, slots=1, length=LENGTH, dtype=torch.float32)
    half = Llama(target, slots=1, length=LENGTH, dtype=torch.bfloat16)
    difference = (full.logits(full.forward(batch)) - half.logits(half.forward(batch))).abs().max().item()
    assert 0 < difference < 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "`model_type` is 'gpt2'; this engine runs 'llama' only"),
        ({"hidden_act": "gelu"}, "`hidden_act` is 'gelu'; this engine runs 'silu' only"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "`rope type` is 'yarn'; this engine runs 'default' and 'llama3'"),
        ({"attention_bias": True}, "`attention_bias` is True; this engine runs False only"),
        ({"vocab_size": None}, "the key 'vocab_size' is missing"),
    ],
)
def test_what_it_cannot_run_is_said(target: Path, tmp_path: Path, change: dict[str, object], message: str) -> None:
    config = json.loads((target / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    with pytest.raises(UsageError) as error:
        read_shape(tmp_path)
    assert message in error.value.message
    assert "config.json" in error.value.message


def test_missing_weights_are_named(target: Path, tmp_path: Path) -> None:
    shape = read_shape(target)
    with pytest.raises(UsageError, match=r"`model.safetensors` is missing"):
        read_weights(tmp_path, shape)
    (tmp_path / "model.safetensors").write_bytes((target / "model.safetensors").read_bytes()[:5000])
    with pytest.raises(UsageError, match=r"model.safetensors: ") as error:
        read_weights(tmp_path, shape)
    assert error.value.hint is not None


def test_tensors_that_do_not_fit_the_config_are_named(target: Path) -> None:
    with pytest.raises(UsageError, match=r"`model.layers.2.input_layernorm.weight` is missing, expected \[32\]"):
        read_weights(target, replace(read_shape(target), layers=3))
    with pytest.raises(UsageError, match=r"`model.layers.0.mlp.gate_proj.weight` has shape \[48, 32\]"):
        read_weights(target, replace(read_shape(target), ffn=50))


def test_end_tokens_of_both_files_count(target: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((target / "config.json").read_bytes())
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 5]}))
    assert read_shape(tmp_path).eos_token_ids == (1, 5)


def test_stretched_rotary_of_llama_3(tmp_path: Path) -> None:
    """Logits with `rope_type: llama3` equal transformers' own."""
    torch.set_grad_enabled(False)
    write_pair(tmp_path, vocabulary=40, layers=2)
    path = tmp_path / "target" / "config.json"
    config = json.loads(path.read_text())
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config["rope_parameters"] = {"rope_theta": 100.0, "original_max_position_embeddings": 16} | rope
    path.write_text(json.dumps(config))
    tokens = np.arange(50) % 40
    plain = LlamaForCausalLM.from_pretrained(tmp_path / "target", dtype=torch.float32).eval()
    wanted = plain(input_ids=torch.from_numpy(tokens)[None]).logits[0]
    engine = Llama(tmp_path / "target", slots=1, length=LENGTH, dtype=torch.float32)
    batch = Ragged(tokens=tokens, slots=np.array([0]), starts=np.array([0]), counts=np.array([50]))
    assert (engine.logits(engine.forward(batch)) - wanted).abs().max() < TOLERANCE
