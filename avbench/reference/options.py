"""vLLM's flags, as far as this engine has them."""

from __future__ import annotations

import argparse
import difflib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

from avbench.errors import UsageError

Dtype = Literal["float32", "bfloat16"]
DTYPES = ("auto", *get_args(Dtype))  # `auto` is float32: half precision saves no time on a CPU that lacks it
METHODS = ("draft_model", "dspark")
DraftSampling = Literal["greedy", "probabilistic"]
DRAFT_SAMPLING = get_args(DraftSampling)
Source = Literal["estimator", "head"]
Depth = Literal["full", "nested"]
MAX_K = 64


@dataclass(frozen=True, kw_only=True)
class SpeculativeConfig:
    """`--speculative-config`, with vLLM's key names and defaults."""

    method: str
    model: str
    num_speculative_tokens: int
    draft_sample_method: DraftSampling = "greedy"
    enable_adaptive_verification: bool = False


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Everything the command line and the environment decide."""

    model: Path
    host: str
    port: int
    served_model_name: str
    max_num_seqs: int
    max_model_len: int | None  # None: the checkpoint's own
    dtype: Dtype
    seed: int
    speculative: SpeculativeConfig | None
    trace_dir: Path | None  # AVBENCH_TRACE_DIR
    refit_interval: int  # AVBENCH_REFIT_INTERVAL
    source: Source | None  # AVBENCH_CONFIDENCE_SOURCE; None: the head if the draft has one, as vLLM does
    depth: Depth  # AVBENCH_DEPTH: `nested` chooses how deep to draft, see `avbench.adaptive.depth`
    labels: bool  # AVBENCH_LABELS: write labelled drafts, see `avbench.reference.labels`
    observe: bool  # AVBENCH_OBSERVE: decide what to trim, and verify everything
    step_costs: Path | None  # AVBENCH_STEP_COSTS: a cost table that decides how long steps take


def parse_options(argv: Sequence[str]) -> EngineOptions:
    """Read flags and environment. Raises UsageError for values that cannot work; argparse exits for unknown flags."""
    args = _parser().parse_args(argv)
    return EngineOptions(
        model=_model_folder(args.model, "--model"),
        host=args.host,
        port=args.port,
        served_model_name=args.served_model_name or args.model,
        max_num_seqs=_positive("--max-num-seqs", args.max_num_seqs),
        max_model_len=None if args.max_model_len is None else _positive("--max-model-len", args.max_model_len),
        dtype="float32" if args.dtype == "auto" else args.dtype,
        seed=args.seed,
        speculative=None if args.speculative_config is None else parse_speculative(args.speculative_config),
        trace_dir=Path(os.environ["AVBENCH_TRACE_DIR"]) if os.environ.get("AVBENCH_TRACE_DIR") else None,
        refit_interval=_refit_interval(os.environ.get("AVBENCH_REFIT_INTERVAL", "100")),
        source=_source(os.environ.get("AVBENCH_CONFIDENCE_SOURCE", "")),
        depth=_depth(os.environ.get("AVBENCH_DEPTH") or "full"),
        labels=_labels(),
        observe=_switch("AVBENCH_OBSERVE"),
        step_costs=Path(os.environ["AVBENCH_STEP_COSTS"]) if os.environ.get("AVBENCH_STEP_COSTS") else None,
    )


def parse_speculative(text: str) -> SpeculativeConfig:
    """Parse the JSON of `--speculative-config`. Raises UsageError that names the key and what was expected."""
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"--speculative-config is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise UsageError(f"--speculative-config must be a JSON object, not {text!r}")
    known = [f.name for f in fields(SpeculativeConfig)]
    unknown = [key for key in raw if key not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = (f"did you mean `{near[0]}`? " if near else "") + f"Valid keys: {', '.join(known)}"
        keys = "key" if len(unknown) == 1 else "keys"
        raise UsageError(f"--speculative-config: unknown {keys} {', '.join(f'`{k}`' for k in unknown)}", hint=hint)
    return _checked(raw)


def _checked(raw: dict[str, Any]) -> SpeculativeConfig:
    method, model = raw.get("method", "draft_model"), raw.get("model")
    k, sampling = raw.get("num_speculative_tokens"), raw.get("draft_sample_method", "greedy")
    adaptive = raw.get("enable_adaptive_verification", False)
    if method not in METHODS:
        raise _bad("method", method, f"one of {', '.join(METHODS)}")
    if not isinstance(model, str):
        raise _bad("model", model, "the folder of the draft checkpoint")
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= MAX_K:
        raise _bad("num_speculative_tokens", k, f"a whole number from 1 to {MAX_K}")
    if sampling not in DRAFT_SAMPLING:
        raise _bad("draft_sample_method", sampling, f"one of {', '.join(DRAFT_SAMPLING)}")
    if not isinstance(adaptive, bool):
        raise _bad("enable_adaptive_verification", adaptive, "true or false")
    return SpeculativeConfig(
        method=method,
        model=str(_model_folder(model, "--speculative-config `model`")),
        num_speculative_tokens=k,
        draft_sample_method=sampling,
        enable_adaptive_verification=adaptive,
    )


def _bad(key: str, value: object, expected: str) -> UsageError:
    return UsageError(f"--speculative-config: `{key}` is {json.dumps(value)}, expected {expected}")


def _model_folder(value: str, where: str) -> Path:
    folder = Path(value)
    if not (folder / "config.json").is_file():
        what = "has no `config.json`" if folder.is_dir() else "is not a folder"
        hint = "give the folder of a Llama-family checkpoint in Hugging Face format"
        raise UsageError(f"{where}: `{value}` {what}", hint=hint)
    return folder


def _positive(flag: str, value: int) -> int:
    if value < 1:
        raise UsageError(f"{flag} is {value}, expected a whole number of at least 1")
    return value


def _refit_interval(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"AVBENCH_REFIT_INTERVAL is {text!r}, expected a whole number of at least 1")
    return int(text)


def _source(text: str) -> Source | None:
    for source in get_args(Source):
        if text == source:
            return cast(Source, source)
    if text:
        raise UsageError(f"AVBENCH_CONFIDENCE_SOURCE is {text!r}, expected one of {', '.join(get_args(Source))}")
    return None


def _depth(text: str) -> Depth:
    for depth in get_args(Depth):
        if text == depth:
            return cast(Depth, depth)
    raise UsageError(f"AVBENCH_DEPTH is {text!r}, expected one of {', '.join(get_args(Depth))}")


def _labels() -> bool:
    wanted = _switch("AVBENCH_LABELS")
    if wanted and not os.environ.get("AVBENCH_TRACE_DIR"):
        hint = "set AVBENCH_TRACE_DIR to a folder: labelled drafts are written to `labels/` in it"
        raise UsageError("AVBENCH_LABELS is 1, but there is no folder for them", hint=hint)
    return wanted


def _switch(name: str) -> bool:
    text = os.environ.get(name) or "0"
    if text not in ("0", "1"):
        raise UsageError(f"{name} is {text!r}, expected 1 or 0")
    return text == "1"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m avbench.reference",
        description="A small OpenAI-compatible engine with adaptive verification.",
        allow_abbrev=False,
    )
    parser.add_argument("--model", required=True, help="folder of the target checkpoint (Hugging Face format)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", help="default: the value of --model")
    parser.add_argument("--max-num-seqs", type=int, default=64, help="requests that run at one time")
    parser.add_argument("--max-model-len", type=int, help="default: the checkpoint's max_position_embeddings")
    parser.add_argument("--dtype", choices=DTYPES, default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--speculative-config", metavar="JSON", help="vLLM's keys; without it plain decoding")
    return parser
