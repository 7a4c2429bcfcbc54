"""The training script in small: corpus, batches, schedule, learning, resuming, export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from avbench.reference.train.corpus import Document, read_corpus
from avbench.reference.train.data import Batches, TokenStream
from avbench.reference.train.evaluate import auc, describe, graded_drafts
from avbench.reference.train.loop import Recipe, Run, schedule
from avbench.reference.train.losses import cross_entropy, distillation
from avbench.reference.train.muon import Muon, orthogonalise
from avbench.reference.train.shapes import draft_config, target_config
from avbench.reference.train.tokenizer import VOCABULARY, train_tokenizer

torch.set_num_threads(1)
MODULE = '''"""A module that counts things, with a docstring that is long enough to be kept as prose for training."""

import os
LIMIT = 10

# How many there are.
@staticmethod
def count(items):
    """Count the items one by one and return the number of them, however long that takes to do."""
    return sum(1 for _ in items)


class Counter:
    pass
'''


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A standard library of two files, one of them in a skipped folder."""
    (tmp_path / "counting.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_counting.py").write_text(MODULE)
    return tmp_path


def test_corpus_has_code_blocks_and_docstrings(library: Path) -> None:
    documents = read_corpus(library)
    code = [d.text for d in documents if d.kind == "code"]
    prose = [d.text for d in documents if d.kind == "prose"]
    assert {d.source for d in documents} == {"counting.py"}
    assert code[0].startswith('"""A module')
    assert code[0].endswith("LIMIT = 10\n")
    assert code[1].startswith("# How many there are.\n@staticmethod\ndef count")
    assert len(prose) == 2


def test_held_out_files_are_about_one_in_twenty_five() -> None:
    files = [Document(kind="code", source=f"package/file{i}.py", text="") for i in range(5000)]
    assert 0.03 < sum(d.held_out for d in files) / 5000 < 0.05


def test_tokenizer_round_trips_and_starts_with_the_begin_token() -> None:
    tokenizer = train_tokenizer([MODULE] * 3)
    ids = tokenizer(MODULE)["input_ids"]
    assert len(tokenizer) <= VOCABULARY
    assert ids[0] == tokenizer.bos_token_id == 0
    assert tokenizer.eos_token_id == 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == MODULE
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "def f"}], tokenize=False)
    assert chat == "<|begin|>def f"


def test_batches_go_through_every_document_and_resume_where_they_were() -> None:
    stream = TokenStream(ids=np.arange(100, dtype=np.uint16), starts=np.array([0, 10, 40, 100]))
    batches = Batches(stream, seed=1)
    first = [batches.next(2, 10) for _ in range(7)]
    assert sorted(torch.cat(first[:5]).flatten().tolist()) == list(range(100))
    again = Batches(stream, seed=1, position=100)
    assert torch.equal(again.next(2, 10), first[5])
    assert not torch.equal(first[0], first[5])


def test_schedule_rises_stays_and_falls_to_zero() -> None:
    values = [schedule(x) for x in np.linspace(0, 1, 201)]
    assert values[0] == 0
    assert values[-1] == 0
    assert max(values) == 1
    assert np.diff(values[90:]).max() <= 0


def test_muon_pushes_singular_values_together() -> None:
    torch.manual_seed(0)
    for shape in [(3, 16, 40), (3, 40, 16)]:
        singular = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert 0.5 < singular.min() <= singular.max() < 1.3
    p = torch.nn.Parameter(torch.randn(4, 8))
    p.grad = torch.randn(4, 8)
    before = p.detach().clone()
    Muon([p], lr=0.1).step()
    assert 0.01 < (p - before).abs().mean() < 0.1


def tiny(vocabulary: int, hidden: int) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=256,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=1,
        )
    )


def test_a_run_learns_stops_and_resumes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch.set_grad_enabled(True)
    stream = TokenStream(ids=np.tile(np.arange(16, dtype=np.uint16), 64), starts=np.array([0, 1024]))
    recipe = Recipe(minutes=0.03, rows=4, length=32, muon_lr=0.02, adam_lr=3e-3, seed=0)
    model = tiny(16, 16)
    lines: list[str] = []
    run = Run(model, cross_entropy(model), Batches(stream, seed=0), recipe, tmp_path / "target.pt")
    run.train(lines.append)
    assert run.progress == 1.0
    first, last = (float(line.split()[-1]) for line in (lines[0], lines[-1]))
    assert last < first < 4
    again = Run(tiny(16, 16), cross_entropy(model), Batches(stream, seed=0), recipe, tmp_path / "target.pt")
    assert again.progress == 1.0

    draft = tiny(16, 8)
    distil = distillation(draft, model)
    tokens = Batches(stream, seed=3).next(4, 32)
    before = distil(tokens).item()
    Run(draft, distil, Batches(stream, seed=0), recipe, tmp_path / "draft.pt").train(lines.append)
    assert 0 <= distil(tokens).item() < before


def test_labels_come_from_the_engine_and_auc_is_the_rank_statistic(tmp_path: Path) -> None:
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    tiny(32, 16).save_pretrained(tmp_path / "target")
    tiny(32, 8).save_pretrained(tmp_path / "draft")
    labels = graded_drafts(
        tmp_path, [[0, i % 30, i % 30 + 1] for i in range(40)], method="draft_model", temperature=1.0
    )
    assert set(labels.position[labels.accepted]) <= set(range(7))
    assert labels.accepted.any()
    assert not labels.accepted.all()
    assert "AUC" in describe(labels)
    assert auc(np.array([1.0, 2.0, 2.0, 3.0]), np.array([False, False, True, True])) == pytest.approx(0.875)


def test_shipped_shapes_have_the_promised_sizes() -> None:
    with torch.device("meta"):
        sizes = [
            sum(p.numel() for p in LlamaForCausalLM(c(VOCABULARY)).parameters()) for c in (target_config, draft_config)
        ]
    assert 9.5e6 < sizes[0] < 10.5e6
    assert 0.5e6 < sizes[1] < 0.7e6
