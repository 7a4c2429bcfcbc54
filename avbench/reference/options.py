"""vLLM's flags, as far as this engine has them."""

from __future__ import annotations

import argparse
import difflib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from avbench.errors import UsageError

Dtype = Literal["float32", "bfloat16"]
DTYPES = ("auto", *get_args(Dtype))  # `auto` is float32: half precision saves no time on a CPU that lacks it
METHODS = ("draft_model",)
DraftSampling = Literal["greedy", "probabilistic"]
DRAFT_SAMPLING = get_args(DraftSampling)
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
