"""Doubts that the sweep asked for: virtual time, labels, nothing trimmed."""

from __future__ import annotations

from collections.abc import Iterator

from avbench.analysis.caution import Caution
from avbench.analysis.passes import Point
from avbench.analysis.results import Results

OBSERVED = "`observe` was on, so nothing was trimmed"


def emulated_steps(results: Results) -> Iterator[Caution]:
    """Real models and sampling, but seconds from a table: the arms' order may hold, their figures are its figures."""
    if results.costs is not None:
        yield Caution(
            kind="emulated_steps",
            where=(),
            text=f"Emulated steps: tokens and acceptance are real, but every step lasted what the cost table "
            f"`{results.costs}` says for its requests and tokens. No network or host time is in these figures; what "
            "the table assumes stands in the environment section of the report.",
            advice="Compare the arms with each other and never with measured figures; measure the arms that matter on "
            "the hardware that the table stands for.",
        )


def labelled_drafts(results: Results) -> Iterator[Caution]:
    """Virtual time does not pay for labels; real time does, in drafting arms only."""
    arms = [results.label(arm.id) for arm in results.arms if arm.kind != "none"]
    if results.labelled and not results.emulated and arms:
        yield Caution(
            kind="labelled_drafts",
            where=tuple(arms),
            text="`labels` was on: these arms wrote down every draft, which takes time that plain decoding does not "
            "spend.",
            advice="Use the labels for a study; measure speed again without `labels`.",
        )


def observed_drafts(results: Results) -> Iterator[Caution]:
    """With everything verified an adaptive arm is fixed K with overhead."""
    arms = [results.label(arm.id) for arm in results.arms if arm.kind == "adaptive"]
    if results.observed and arms:
        yield Caution(
            kind="observed_drafts",
            where=tuple(arms),
            text=f"{OBSERVED}: the figures of these arms are not those of adaptive verification. They are not ranked.",
            advice="Use the labels for a study; measure speed again without `observe`.",
        )


def observed_points(results: Results) -> tuple[Point, ...]:
    """Points of adaptive arms that trimmed nothing because they were told so."""
    arms = {arm.id for arm in results.arms if arm.kind == "adaptive"} if results.observed else set()
    return tuple(point for workload in results.workloads for point in results.points(workload) if point.arm in arms)
