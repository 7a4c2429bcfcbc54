"""Do the arms write the same kind of text? Speculation must not change it: only sampling noise may differ.

Outputs are compared by prompt: for each prompt that both arms answered, the difference of the mean output tokens (or
of the share cut by length) over all its loads, passes and samples; then a paired t-test over prompts. A difference is
called real below p = 0.001, divided by the number of tests, and above 2 % (2 points for the share).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from avbench.analysis.caution import Caution, place
from avbench.analysis.results import Results
from avbench.analysis.server_files import PromptOutputs
from avbench.errors import NotComparableError
from avbench.spec.arm import Arm
from avbench.units import format_decimal, format_percent, format_plural, format_signed_percent

LEVEL = 0.001
LEAST_DIFFERENCE = 0.02
LEAST_PROMPTS = 5

Answers = Mapping[str, PromptOutputs]


@dataclass(frozen=True, kw_only=True)
class OutputDifference:
    """`arm` writes other outputs than `reference` on one workload."""

    workload: str
    arm: Arm
    reference: Arm
    what: str  # `output tokens 41.2 against 48.0 (-14.2 %) on 120 prompts`


def require_one_clock(results: Results) -> None:
    """Emulated and real cells never share a front or a comparison: raises NotComparableError if they would."""
    done = [cell for cell in results.measurements if cell.status == "done"]
    others = [cell.cell_id for cell in done if (cell.clock == "emulated") != results.emulated]
    if others:
        own, other = ("emulated", "real") if results.emulated else ("real", "emulated")
        were = format_plural(len(others), "cell was", "cells were")
        raise NotComparableError(
            f"{results.root}: the clock of this sweep is {own}, but {were} measured with the {other} one, such as "
            f"`{others[0]}`",
            hint="real and emulated figures must not stand side by side: move these cells to a results folder of their "
            "own, and give each sweep its own with `--results DIR`.",
        )


def output_differences(results: Results) -> tuple[OutputDifference, ...]:
    """All differences beyond sampling noise. The reference is `none`, else the first arm that has answers."""
    found: list[OutputDifference] = []
    tests = max(1, 2 * len(results.workloads) * (len(results.arms) - 1))
    for workload in results.workloads:
        by_arm = {arm: answers for arm in results.arms if (answers := _answers(results, arm, workload))}
        arms = sorted(by_arm, key=lambda arm: arm.kind != "none")
        for arm in arms[1:]:
            what = list(_compare(by_arm[arm], by_arm[arms[0]], LEVEL / tests))
            if what:
                found.append(OutputDifference(workload=workload, arm=arm, reference=arms[0], what="; ".join(what)))
    return tuple(found)


def differing_outputs(results: Results) -> Iterator[Caution]:
    """Arms that must not be ranked because they do another work."""
    differences = output_differences(results)
    if differences:
        yield Caution(
            kind="unequal_outputs",
            where=tuple(
                f"{results.label(d.arm.id)} · {d.workload}: {d.what}, against {results.label(d.reference.id)}"
                for d in differences
            ),
            text="Outputs of these arms differ from the others' at equal prompts beyond sampling noise: they do "
            "another work, and are not ranked.",
            advice="Look at the texts; check sampling settings, chat template and stop rules of the arm's server.",
        )


def unreadable_requests(results: Results) -> Iterator[Caution]:
    """Without raw requests nothing shows that the arms did the same work."""
    done = [cell for cell in results.measurements if cell.status == "done"]
    where = tuple(place(results, cell) for cell in done if results.outputs(cell) is None)
    if where:
        yield Caution(
            kind="unreadable_requests",
            where=where,
            text="The raw requests of these cells are missing or damaged: their outputs were not compared.",
            advice="Copy results with their `requests.parquet` files.",
        )


def _answers(results: Results, arm: Arm, workload: str) -> Answers:
    """Sums over all loads and passes of one arm, by prompt."""
    answers: dict[str, PromptOutputs] = {}
    for cell in results.measurements:
        if (cell.arm, cell.workload, cell.status) != (arm.id, workload, "done"):
            continue
        for prompt, new in (results.outputs(cell) or {}).items():
            old = answers.get(prompt, PromptOutputs(requests=0, tokens=0, cut=0))
            answers[prompt] = PromptOutputs(
                requests=old.requests + new.requests, tokens=old.tokens + new.tokens, cut=old.cut + new.cut
            )
    return answers


def _compare(ours: Answers, theirs: Answers, level: float) -> Iterator[str]:
    common = sorted(set(ours) & set(theirs))
    if len(common) < LEAST_PROMPTS:
        return
    a, b = (np.array([side[prompt].tokens / side[prompt].requests for prompt in common]) for side in (ours, theirs))
    if b.mean() > 0 and abs(a.mean() / b.mean() - 1) > LEAST_DIFFERENCE and _paired_p(a - b) < level:
        both = f"{format_decimal(float(a.mean()), 1)} against {format_decimal(float(b.mean()), 1)}"
        yield f"output tokens {both} ({format_signed_percent(float(a.mean() / b.mean()) - 1)}) on {len(a)} prompts"
    a, b = (np.array([side[prompt].cut / side[prompt].requests for prompt in common]) for side in (ours, theirs))
    if abs(a.mean() - b.mean()) > LEAST_DIFFERENCE and _paired_p(a - b) < level:
        both = f"{format_percent(float(a.mean()))} against {format_percent(float(b.mean()))}"
        yield f"cut by length {both} on {len(a)} prompts"


def _paired_p(differences: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """Two-sided p of the paired t-test; 0 if all differences are the same and not zero."""
    from scipy.special import stdtr

    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    if error == 0:
        return 1.0 if differences[0] == 0 else 0.0
    return float(2 * stdtr(len(differences) - 1, -abs(float(differences.mean())) / error))
