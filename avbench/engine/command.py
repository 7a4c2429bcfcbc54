"""From an arm to the exact command that serves it: pure, so that `avbench plan` can print it."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from avbench.adaptive.estimator import REFIT_INTERVAL
from avbench.spec.arm import Arm
from avbench.spec.models import resolve_model
from avbench.spec.speculative import SpeculativeConfig, speculative_config
from avbench.spec.sweep import ArgValue, SweepSpec

OVERRIDE = "AVBENCH_ENGINE_COMMAND"  # a shell-split prefix instead of `python -m avbench.reference`
SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD", re.IGNORECASE)
SECRET_FLAG = re.compile(r"--([a-z-]+-)?(token|key|secret|password)", re.IGNORECASE)  # not `--max-tokens`
SECRET_ASSIGNMENT = re.compile(r"\w*(TOKEN|KEY|SECRET|PASSWORD)\w*")  # `docker -e HF_TOKEN=...`
REDACTED = "[redacted]"


@dataclass(frozen=True, kw_only=True)
class EngineCommand:
    """What is executed, and what is added to the environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str]

    def redacted(self) -> EngineCommand:
        """The same without secrets, fit to be kept and shown."""
        env = {name: REDACTED if SECRET.search(name) else value for name, value in self.env.items()}
        return EngineCommand(argv=_redact_argv(self.argv), env=env)

    def shell(self) -> str:
        """One line for a POSIX shell, secrets redacted."""
        safe = self.redacted()
        return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in safe.env.items()), shlex.join(safe.argv)])


def engine_command(
    spec: SweepSpec, arm: Arm, port: int, *, served_name: str = "avbench", trace_dir: Path | None = None
) -> EngineCommand:
    """The command that serves `arm` on 127.0.0.1:`port` under the model name `served_name`.

    Everything except the speculative configuration and the refit interval is the same in every arm, so that arms
    differ by nothing else. Raises UsageError when a model folder is missing.
    """
    args: dict[str, ArgValue] = {
        "model": _model(spec, spec.pair.target),
        "host": "127.0.0.1",
        "port": port,
        "served-model-name": served_name,
        "seed": spec.seed,
        **spec.engine_args,
    }
    config = _speculative(spec, arm)
    if config is not None:
        args["speculative-config"] = json.dumps(config, separators=(",", ":"))
    return EngineCommand(argv=(*engine_prefix(), *_flags(args)), env=_environment(spec, arm, trace_dir))


def engine_prefix() -> tuple[str, ...]:
    """`python -m avbench.reference`, or what `AVBENCH_ENGINE_COMMAND` says."""
    override = os.environ.get(OVERRIDE)
    return tuple(shlex.split(override)) if override else (sys.executable, "-m", "avbench.reference")


def _model(spec: SweepSpec, reference: str) -> str:
    return str(resolve_model(reference, spec.path.parent))


def _speculative(spec: SweepSpec, arm: Arm) -> SpeculativeConfig | None:
    draft = spec.pair.draft
    if arm.kind == "none" or draft is None:
        return speculative_config(spec.pair, arm)
    return speculative_config(spec.pair, arm, model=_model(spec, draft))


def _environment(spec: SweepSpec, arm: Arm, trace_dir: Path | None) -> dict[str, str]:
    # One OpenMP thread: two wait for each other at every product, which a busy neighbour makes dear.
    env = {"OMP_NUM_THREADS": "1", **spec.engine.env}
    if trace_dir is not None:
        env["AVBENCH_TRACE_DIR"] = str(trace_dir.resolve())
    if arm.kind == "adaptive":  # said in every case: a value in the caller's shell must not decide
        env["AVBENCH_REFIT_INTERVAL"] = str(arm.refit_interval or REFIT_INTERVAL)
    return env


def _flags(args: Mapping[str, ArgValue]) -> list[str]:
    """vLLM's form: `--name value`; true is a bare flag, false is `--no-name`, null leaves the engine's default."""
    flags: list[str] = []
    for name, value in args.items():
        if value is True:
            flags.append(f"--{name}")
        elif value is False:
            flags.append(f"--no-{name}")
        elif value is not None:
            flags += [f"--{name}", str(value)]
    return flags


def _redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    safe: list[str] = []
    secret = False  # inside the values of a secret flag; vLLM's `--api-key` takes several
    for word in argv:
        name, equals, _ = word.partition("=")
        if word.startswith("--"):
            secret = SECRET_FLAG.fullmatch(name) is not None and not equals
        if equals and (SECRET_FLAG.fullmatch(name) or SECRET_ASSIGNMENT.fullmatch(name)):
            safe.append(f"{name}={REDACTED}")
        else:
            safe.append(REDACTED if secret and not word.startswith("--") else word)
    return tuple(safe)
