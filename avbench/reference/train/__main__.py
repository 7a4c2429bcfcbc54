"""`python -m avbench.reference.train`: corpus, target, draft, export, dspark, evaluate.

Each stage resumes where it stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from avbench.reference.dspark_checkpoint import write_dspark
from avbench.reference.llama import Llama
from avbench.reference.train import evaluate as evaluation
from avbench.reference.train import losses
from avbench.reference.train.corpus import read_corpus
from avbench.reference.train.data import Batches, TokenStream
from avbench.reference.train.dspark import drafting
from avbench.reference.train.dspark_model import DSparkModel
from avbench.reference.train.loop import LossFn, Recipe, Run
from avbench.reference.train.shapes import draft_config, dspark_shape, target_config
from avbench.reference.train.tokenizer import train_tokenizer

SEED = 20260
TARGET_MINUTES, DRAFT_MINUTES, DSPARK_MINUTES = 90.0, 9.0, 60.0


def main() -> None:
    """Run the stages named on the command line, in order."""
    args = _arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(SEED)
    work = Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    for stage in args.stages:
        STAGES[stage](work, args)


def corpus(work: Path, args: argparse.Namespace) -> None:
    """Fit the tokenizer on the training files and encode them."""
    if (work / "train.npz").exists():
        return
    kept = [d for d in read_corpus() if not d.held_out]
    tokenizer = train_tokenizer(d.text for d in kept)
    tokenizer.save_pretrained(work / "tokenizer")
    stream = TokenStream.of(kept, tokenizer)
    stream.save(work / "train.npz")
    log(work, f"corpus: {len(kept)} documents, {len(stream.ids)} tokens")


def target(work: Path, args: argparse.Namespace) -> None:
    """Train the target on the text."""
    model = LlamaForCausalLM(target_config(len(_tokenizer(work))))
    recipe = Recipe(minutes=args.target_minutes, rows=12, length=512, muon_lr=0.02, adam_lr=3e-3, seed=SEED)
    _train(work, "target", model, losses.cross_entropy(model), recipe)


def draft(work: Path, args: argparse.Namespace) -> None:
    """Distil the draft from the target."""
    teacher = _trained(work, "target")
    teacher.train(False)
    model = LlamaForCausalLM(draft_config(len(_tokenizer(work))))
    recipe = Recipe(minutes=args.draft_minutes, rows=16, length=256, muon_lr=0.02, adam_lr=4e-3, seed=SEED + 1)
    _train(work, "draft", model, losses.distillation(model, teacher), recipe)


def export(work: Path, args: argparse.Namespace) -> None:
    """Write both checkpoints as Hugging Face folders in float16."""
    for name in ("target", "draft"):
        folder = Path(args.out) / name
        model = _trained(work, name)
        model.half()  # type: ignore[no-untyped-call]
        model.config.dtype = torch.float16
        model.save_pretrained(folder)
        _tokenizer(work).save_pretrained(folder)
        log(work, f"wrote {folder}")


def dspark(work: Path, args: argparse.Namespace) -> None:
    """Train the parallel drafter on the exported target, and write its checkpoint in float16."""
    folder = Path(args.out) / "target"
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
    recipe = Recipe(minutes=args.dspark_minutes, rows=6, length=512, muon_lr=0.02, adam_lr=4e-3, seed=SEED + 2)
    teacher = Llama(folder, slots=recipe.rows, length=2 * recipe.length, dtype=torch.float32)
    shape = dspark_shape(len(tokenizer))
    teacher.tap = shape.tap_layer
    model = DSparkModel(shape)
    kept = [document for document in read_corpus() if not document.held_out]
    _run(work, "dspark", model, drafting(model, teacher, seed=recipe.seed), TokenStream.of(kept, tokenizer), recipe)
    write_dspark(Path(args.out) / "dspark", shape, model.state_dict())


def evaluate(work: Path, args: argparse.Namespace) -> None:
    """Say how good the exported pair is on held-out text, encoded by its own tokenizer."""
    torch.set_grad_enabled(False)
    folder = Path(args.out) / "target"
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
    held_out = [document for document in read_corpus() if document.held_out]
    for kind in ("code", "prose"):
        stream = TokenStream.of([document for document in held_out if document.kind == kind], tokenizer)
        log(work, f"held-out {kind}: cross-entropy {evaluation.cross_entropy(model, stream):.3f} nats a token")
        for temperature in (1.0, 0.6):
            prompts = evaluation.beginnings(stream)
            for method, name in (("draft_model", "draft"), ("dspark", "dspark")):
                labels = evaluation.graded_drafts(Path(args.out), prompts, method=method, temperature=temperature)
                log(work, f"{name}, held-out {kind}, temperature {temperature}: {evaluation.describe(labels)}")


STAGES: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "corpus": corpus,
    "target": target,
    "draft": draft,
    "export": export,
    "dspark": dspark,
    "evaluate": evaluate,
}


def log(work: Path, line: str) -> None:
    """One line to the terminal and to the log beside the checkpoints."""
    line = f"{time.strftime('%H:%M:%S')} {line}"
    sys.stderr.write(line + "\n")
    with (work / "train.log").open("a") as file:
        file.write(line + "\n")


def _train(work: Path, name: str, model: LlamaForCausalLM, loss_fn: LossFn, recipe: Recipe) -> None:
    for module in model.modules():  # residual branches start at zero
        for attribute in ("o_proj", "down_proj"):
            if hasattr(module, attribute):
                torch.nn.init.zeros_(getattr(module, attribute).weight)
    _run(work, name, model, loss_fn, TokenStream.load(work / "train.npz"), recipe)


def _run(work: Path, name: str, model: nn.Module, loss_fn: LossFn, stream: TokenStream, recipe: Recipe) -> None:
    batches = Batches(stream, seed=recipe.seed)
    run = Run(model, loss_fn, batches, recipe, work / f"{name}.pt")
    log(work, f"{name}: {sum(p.numel() for p in model.parameters())} parameters, at {run.progress:.0%} of {recipe}")
    run.train(lambda line: log(work, f"{name} {line}"))


def _trained(work: Path, name: str) -> LlamaForCausalLM:
    vocabulary = len(_tokenizer(work))
    model = LlamaForCausalLM({"target": target_config, "draft": draft_config}[name](vocabulary))
    model.load_state_dict(torch.load(work / f"{name}.pt", weights_only=True)["model"])
    return model


def _tokenizer(work: Path) -> PreTrainedTokenizerFast:
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")
    return tokenizer


def _arguments() -> argparse.Namespace:
    stages = list(STAGES)
    parser = argparse.ArgumentParser(prog="python -m avbench.reference.train", description=__doc__)
    parser.add_argument("stages", nargs="*", default=stages, help=f"in order, from: {', '.join(stages)} (default all)")
    parser.add_argument("--work", default="build/train", help="checkpoints and log; default `build/train`")
    parser.add_argument("--out", default=str(Path(__file__).parents[1] / "weights"), help="where the checkpoints go")
    parser.add_argument("--target-minutes", type=float, default=TARGET_MINUTES)
    parser.add_argument("--draft-minutes", type=float, default=DRAFT_MINUTES)
    parser.add_argument("--dspark-minutes", type=float, default=DSPARK_MINUTES)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
