"""Combinations that are each well-formed and impossible together, and references that lead nowhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from avbench.errors import UsageError
from avbench.spec.arm import Arm
from avbench.spec.clock_checks import clock_findings
from avbench.spec.document import Location
from avbench.spec.engine_checks import engine_findings
from avbench.spec.finding import Finding
from avbench.spec.model_checks import model_findings
from avbench.spec.models import resolve_model
from avbench.spec.option_checks import option_findings
from avbench.spec.prompt_files import prompts_name, resolve_prompts
from avbench.spec.schema import AdaptiveArm, FixedArm, SweepFile

# Letters, digits, dot, dash, single underscore: two underscores separate the parts of a cell's id.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]|_(?!_)){0,63}")
SHIPPED_DRAFTS = {"draft_model": "avbench:draft", "dspark": "avbench:dspark"}  # by method
NAME_RULE = "letters, digits, `.`, `-` and single `_`, at most 64, the first a letter or digit"


def fit_for_folder(name: str) -> bool:
    """Whether a name can be part of a folder's name on every system."""
    return _NAME.fullmatch(name) is not None and not name.endswith(".")


def arms_of(file: SweepFile) -> list[tuple[Location, Arm]]:
    """Every arm with the place that asks for it, in the file's order."""
    arms: list[tuple[Location, Arm]] = []
    for index, entry in enumerate(file.arms):
        if isinstance(entry, FixedArm):
            arms += [(("arms", index, "fixed", at), Arm(kind="fixed", k=k)) for at, k in enumerate(entry.fixed)]
        elif isinstance(entry, AdaptiveArm):
            given = entry.adaptive
            arm = Arm(kind="adaptive", **given.model_dump())
            arms.append((("arms", index, "adaptive"), arm))
        else:
            arms.append((("arms", index), Arm(kind="none")))
    return arms


def findings(file: SweepFile, path: Path) -> Iterator[Finding]:
    """All that is wrong with a file whose types are right. `path`: relative references start at its folder."""
    yield from _sweep_name(path)
    yield from _pair(file, path.parent)
    yield from engine_findings(file)
    yield from clock_findings(file, path.parent, arms_of(file))
    yield from option_findings(file, arms_of(file))
    yield from model_findings(file, path.parent, arms_of(file))
    yield from _repeated_arms(file)
    yield from _workloads(file, path.parent)
    yield from _repeated_loads(file)
    yield from _cell(file)


def _sweep_name(path: Path) -> Iterator[Finding]:
    if not fit_for_folder(path.stem):
        yield Finding(
            location=(),
            message=f"the file's name gives the results folder its name, and `{path.stem}` is unfit for that",
            hint=f"rename the file: {NAME_RULE}.",
        )


def _reported(location: Location, resolve: Callable[[str, Path], Path], ref: str, base: Path) -> Iterator[Finding]:
    try:
        resolve(ref, base)
    except UsageError as error:
        yield Finding(location=location, message=error.message, hint=error.hint or "")


def _pair(file: SweepFile, base: Path) -> Iterator[Finding]:
    yield from _reported(("pair", "target"), resolve_model, file.pair.target, base)
    if file.pair.draft is not None:
        yield from _reported(("pair", "draft"), resolve_model, file.pair.draft, base)
        return
    drafting = [arm.id for _, arm in arms_of(file) if arm.kind != "none"]
    if drafting:
        yield Finding(
            location=("pair", "draft"),
            message=f"missing, but arm `{drafting[0]}` drafts with `method: {file.pair.method}`",
            hint=f"add `draft`: a model folder or `{SHIPPED_DRAFTS[file.pair.method]}`; or keep only the arm `none`.",
        )


def _repeated_arms(file: SweepFile) -> Iterator[Finding]:
    seen: set[str] = set()
    for location, arm in arms_of(file):
        if arm.id in seen:
            yield Finding(location=location, message=f"the arm `{arm.id}` is given twice", hint="keep one of them.")
        seen.add(arm.id)


def _repeated_loads(file: SweepFile) -> Iterator[Finding]:
    seen: set[int] = set()
    for index, concurrency in enumerate(file.load.concurrency):
        if concurrency in seen:
            yield Finding(
                location=("load", "concurrency", index),
                message=f"the concurrency {concurrency} is given twice",
                hint="keep one of them; `passes` repeats measurements.",
            )
        seen.add(concurrency)


def _workloads(file: SweepFile, base: Path) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for index, workload in enumerate(file.workloads):
        lost = list(_reported(("workloads", index, "prompts"), resolve_prompts, workload.prompts, base))
        yield from lost
        if lost and workload.name is None:
            continue
        name = workload.name or prompts_name(workload.prompts)
        key = ("workloads", index, "name" if workload.name else "prompts")
        if not fit_for_folder(name):
            message = f"the workload's name `{name}` is unfit for a folder's name"
            yield Finding(location=key, message=message, hint=f"give it a `name`: {NAME_RULE}.")
        # Compared without case: some file systems do not tell `Code` from `code`.
        elif name.lower() in seen:
            message = f"two workloads have the name `{seen[name.lower()]}`"
            yield Finding(location=key, message=message, hint="give each workload its own `name`.")
        seen.setdefault(name.lower(), name)


def _cell(file: SweepFile) -> Iterator[Finding]:
    least = file.cell.warmup_seconds + file.cell.seconds
    if file.cell.timeout <= least:
        yield Finding(
            location=("cell", "timeout"),
            message=f"{file.cell.timeout:g} s is not enough for a warm-up and a window of {least:g} s together",
            hint=f"raise `cell.timeout` well above {least:g} s, or lower `cell.seconds`.",
        )
