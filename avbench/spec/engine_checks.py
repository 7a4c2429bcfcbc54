"""What `engine:` may hold for the reference engine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from avbench.spec.finding import Finding
from avbench.spec.nearest import did_you_mean, nearest
from avbench.spec.schema import SweepFile
from avbench.spec.shown import shown_value

# Flags of the engine that avbench decides, and what to do instead of giving them.
OWN_ARGS = {
    "model": "it comes from `pair.target`.",
    "host": "remove it: servers listen on 127.0.0.1 only.",
    "port": "remove it: each server gets a free port.",
    "served-model-name": "remove it: avbench knows its servers by this name.",
    "seed": "it comes from the key `seed` of the sweep.",
    "speculative-config": "it comes from `pair` and `arms`.",
}
DTYPES = ("float32", "bfloat16")
MAX_MODEL_LEN, MAX_NUM_SEQS = "max-model-len", "max-num-seqs"
REFERENCE_ARGS: dict[str, tuple[type, str]] = {
    "dtype": (str, "`float32` or `bfloat16`"),
    MAX_MODEL_LEN: (int, "a whole number from 1"),
    MAX_NUM_SEQS: (int, "a whole number from 1"),
}
OWN_ENV = {
    "AVBENCH_TRACE_DIR": "remove it: traces are kept beside the results.",
    "AVBENCH_REFIT_INTERVAL": "it comes from `refit_interval` of an adaptive arm.",
    "AVBENCH_CONFIDENCE_SOURCE": "it comes from `source` of an adaptive arm.",
    "AVBENCH_DEPTH": "it comes from `depth` of an adaptive arm.",
    "AVBENCH_LABELS": "it comes from the key `labels` of the sweep.",
    "AVBENCH_OBSERVE": "it comes from the key `observe` of the sweep.",
    "AVBENCH_STEP_COSTS": "it comes from `engine.costs`, with `clock: emulated`.",
}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def engine_findings(file: SweepFile) -> Iterator[Finding]:
    """Flags and variables that the engine lacks, that avbench sets itself, or that contradict the rest of the sweep."""
    if file.engine.gpus != 1:
        yield Finding(
            location=("engine", "gpus"),
            message=f"got `{file.engine.gpus}`, but the reference engine is one CPU process",
            hint="remove `gpus`: throughput is then given per engine.",
        )
    for name, value in file.engine.args.items():
        yield from _engine_arg(file, name, value)
    for name, text in file.engine.env.items():
        yield from _engine_env(name, text)


def _engine_arg(file: SweepFile, name: str, value: str | int | float | bool) -> Iterator[Finding]:
    location = ("engine", "args", name)
    plain = name.lstrip("-").replace("_", "-")
    if plain in OWN_ARGS:
        message = f"got {shown_value(value)}, but avbench sets this flag itself"
        yield Finding(location=location, message=message, hint=OWN_ARGS[plain])
    elif name not in REFERENCE_ARGS:
        message = f"got {shown_value(value)}, but the reference engine has no such flag"
        known = f"Valid keys of `engine.args`: {', '.join(REFERENCE_ARGS)}"
        yield Finding(location=location, message=message, hint=did_you_mean(nearest(plain, REFERENCE_ARGS), known))
    elif not fits_flag(name, value):
        message = f"got {shown_value(value)}, expected {REFERENCE_ARGS[name][1]}"
        yield Finding(
            location=location, message=message, hint=did_you_mean(nearest(str(value), DTYPES)) or "change it."
        )
    elif name == MAX_NUM_SEQS and isinstance(value, int):
        yield from _too_few_seats(file, value)


def fits_flag(name: str, value: object) -> bool:
    """Whether a flag of `REFERENCE_ARGS` takes the value."""
    kind = REFERENCE_ARGS[name][0]
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return value in DTYPES


def _too_few_seats(file: SweepFile, value: int) -> Iterator[Finding]:
    most = max(file.load.concurrency)
    if value < most:
        yield Finding(
            location=("engine", "args", MAX_NUM_SEQS),
            message=f"got `{value}`, less than the largest concurrency {most}: requests would wait in the server",
            hint=f"write at least {most}, or remove it: avbench then sets it.",
        )


def _engine_env(name: str, value: str | int) -> Iterator[Finding]:
    location = ("engine", "env", name)
    if name in OWN_ENV:
        message = f"got {shown_value(value)}, but avbench sets this variable itself"
        yield Finding(location=location, message=message, hint=OWN_ENV[name])
    # Without its value, which may be a secret.
    elif not _ENV_NAME.fullmatch(name):
        message = "no name of an environment variable"
        yield Finding(location=location, message=message, hint="use letters, digits and `_`, no digit first.")
