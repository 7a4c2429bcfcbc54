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
from avbench.errors import UsageError
from avbench.spec.arm import Arm
from avbench.spec.models import resolve_model
from avbench.spec.speculative import SpeculativeConfig, choice_environment, speculative_config
from avbench.spec.step_costs import resolve_costs
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
    """The command that serves `arm` on 127.0.0.1:`port` under the model name `served_name`; with the emulated clock
    the one that runs it in virtual time, which serves nothing.

    Raises UsageError when a model folder or the cost table is missing.
    """
    place: dict[str, ArgValue] = {"host": "127.0.0.1", "port": port, "served-model-name": served_name}
    argv = (*engine_prefix(spec), *engine_flags(spec, arm), *_flags({} if spec.emulated else place))
    return EngineCommand(argv=argv, env=engine_environment(spec, arm, trace_dir))


def engine_prefix(spec: SweepSpec) -> tuple[str, ...]:
    """`python -m avbench.reference`, or what `AVBENCH_ENGINE_COMMAND` says; `python -m avbench.reference.emulate` for
    the emulated clock. Raises UsageError if both are asked for."""
    override = os.environ.get(OVERRIDE)
    if spec.emulated and override:
        raise UsageError(
            f"{OVERRIDE} replaces the command of a server, but `clock: emulated` starts none: `{override}`",
            hint=f"unset {OVERRIDE}, or remove `clock: emulated` from {spec.path}.",
        )
    usual = (sys.executable, "-m", "avbench.reference.emulate" if spec.emulated else "avbench.reference")
    return tuple(shlex.split(override)) if override else usual


def engine_flags(spec: SweepSpec, arm: Arm) -> tuple[str, ...]:
    """All flags of the engine but where it listens and under which name.

    Everything except the speculative configuration is the same in every arm, so that arms differ by nothing else.
    Raises UsageError when a model folder is missing.
    """
    args: dict[str, ArgValue] = {"model": _model(spec, spec.pair.target), "seed": spec.seed, **spec.engine_args}
    config = _speculative(spec, arm)
    if config is not None:
        args["speculative-config"] = json.dumps(config, separators=(",", ":"))
    return tuple(_flags(args))


def engine_environment(spec: SweepSpec, arm: Arm, trace_dir: Path | None) -> dict[str, str]:
    """What is added to the environment. Every variable that could decide something is said, also where it has its
    default: a value in the caller's shell must not decide. Raises UsageError when the cost table is missing."""
    # One OpenMP thread: two wait for each other at every product, which a busy neighbour makes dear.
    env = {"OMP_NUM_THREADS": "1", **spec.engine.env, "AVBENCH_STEP_COSTS": _step_costs(spec)}
    if trace_dir is not None:
        env["AVBENCH_TRACE_DIR"] = str(trace_dir.resolve())
    if arm.kind != "none":
        env |= {"AVBENCH_LABELS": str(int(spec.labels)), "AVBENCH_OBSERVE": str(int(spec.observe))}
    if arm.kind == "adaptive":
        env |= {"AVBENCH_REFIT_INTERVAL": str(arm.refit_interval or REFIT_INTERVAL), **choice_environment(arm)}
    return env


def _step_costs(spec: SweepSpec) -> str:
    """Empty: the engine measures its own."""
    costs = spec.engine.costs
    return str(resolve_costs(costs, spec.path.parent)) if spec.emulated and costs is not None else ""


def _model(spec: SweepSpec, reference: str) -> str:
    return str(resolve_model(reference, spec.path.parent))


def _speculative(spec: SweepSpec, arm: Arm) -> SpeculativeConfig | None:
    draft = spec.pair.draft
    if arm.kind == "none" or draft is None:
        return speculative_config(spec.pair, arm)
    return speculative_config(spec.pair, arm, model=_model(spec, draft))


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
