"""Sentences that the terminal and the page share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from avbench.analysis.advice import Advice, Pick, Regret
from avbench.analysis.compare import Gain
from avbench.analysis.estimate import ONE_PASS
from avbench.analysis.noise import FEW_PASSES
from avbench.analysis.results import Results
from avbench.units import format_percent, format_plural, format_signed_percent

VLLM_REFIT_INTERVAL = 100


def gain_words(advice: Advice, pick: Pick) -> str:
    """`+12.3 % against K=7 (+9.1 to +15.6 %)`."""
    if pick.gain is None or pick.runner_up is None:
        return ""
    return f"{ratio_words(pick.gain)} against {advice.label(pick.runner_up)}{interval_words(pick.gain)}"


def ratio_words(gain: Gain) -> str:
    """`+12.3 %`."""
    return format_signed_percent(gain.ratio - 1)


def interval_words(gain: Gain) -> str:
    """` (+9.1 to +15.6 %)`, empty without an interval."""
    if gain.low is None or gain.high is None:
        return ""
    low = format_signed_percent(gain.low - 1).removesuffix(" %")
    return f" ({low} to {format_signed_percent(gain.high - 1)})"


def behind_words(advice: Advice, regret: Regret) -> str:
    """How far behind the least-regret arm is, at worst."""
    if regret.where is None or regret.behind is None:
        shown = sum(pick.shown for pick in advice.picks)
        loads = format_plural(len(advice.picks), "load")
        return f"It has the highest figure at every load, beyond noise of all rivals at {shown} of {loads}."
    place = f"{regret.where.workload}, C={regret.where.concurrency}"
    text = f"At worst {format_percent(regret.worst)} behind {advice.label(regret.behind)} ({place})"
    if regret.gain is None:
        return f"{text}."
    return f"{text}; {regret.gain.verdict}."


def told_words(differences: Mapping[int, float | None]) -> str:
    """Which differences this sweep cannot tell, by load."""
    if not differences:
        return "No throughput was measured."
    if all(value is None for value in differences.values()):
        return f"{ONE_PASS[0].upper()}{ONE_PASS[1:]}, or every comparison has its own ({FEW_PASSES} passes and more)."
    known = [f"C={load}: {format_percent(value)}" for load, value in differences.items() if value is not None]
    return "The best arm is told from another only if it is ahead by more than " + ", ".join(known) + "."


def extension_words(results: Results) -> Iterator[str]:
    """Arms that vLLM does not have."""
    nested = [results.label(arm.id) for arm in results.arms if arm.depth == "nested"]
    if nested:
        yield (
            f"{', '.join(nested)}: nested depth is an extension of avbench. It chooses the draft depth together with "
            "the budget; vLLM's rule always drafts K."
        )


def environment_words(label: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Which variables of the embedded engine belong to an arm's `--speculative-config`, and what vLLM does instead."""
    in_vllm = {
        "AVBENCH_DEPTH=nested": "an extension of avbench, vLLM always drafts K.",
        "AVBENCH_CONFIDENCE_SOURCE=head": "vLLM uses the head of a draft that has one by itself.",
        "AVBENCH_CONFIDENCE_SOURCE=estimator": "vLLM always uses the head of a draft that has one.",
    }
    for assignment in (f"{name}={value}" for name, value in environment.items()):
        yield f"{label}: on the embedded engine also set `{assignment}`; {in_vllm[assignment]}"


def refit_words(results: Results) -> Iterator[str]:
    """Arms whose estimator refits at another pace than vLLM's."""
    for arm in results.arms:
        if arm.refit_interval is not None and arm.refit_interval != VLLM_REFIT_INTERVAL:
            pace = f"every {format_plural(arm.refit_interval, 'engine step')} (refit interval {arm.refit_interval})"
            sooner = "sooner" if arm.refit_interval < VLLM_REFIT_INTERVAL else "later"
            yield (
                f"{results.label(arm.id)} refits its estimator {pace}, so it settles {sooner} than vLLM's, "
                f"which refits every {VLLM_REFIT_INTERVAL}; `--speculative-config` has no key for it."
            )
