"""Options of arms and of the sweep that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from avbench.spec.arm import Arm
from avbench.spec.document import Location
from avbench.spec.finding import Finding
from avbench.spec.schema import SweepFile

Arms = Sequence[tuple[Location, Arm]]


def option_findings(file: SweepFile, arms: Arms) -> Iterator[Finding]:
    """Values that would have no effect, or that would take an arm's own effect away."""
    yield from _refits(arms)
    yield from _labels(file, arms)
    yield from _observe(file, arms)


def _refits(arms: Arms) -> Iterator[Finding]:
    for location, arm in arms:
        if arm.source == "head" and arm.refit_interval is not None:
            yield Finding(
                location=(*location, "refit_interval"),
                message=f"got `{arm.refit_interval}`, but a confidence head is trained beforehand and never refits",
                hint="remove it, or use `source: estimator`.",
            )


def _labels(file: SweepFile, arms: Arms) -> Iterator[Finding]:
    if file.labels and all(arm.kind == "none" for _, arm in arms):
        yield Finding(
            location=("labels",),
            message="got `true`, but no arm drafts: there is nothing to label",
            hint="add an arm that drafts, such as `fixed: 7`, or remove `labels`.",
        )


def _observe(file: SweepFile, arms: Arms) -> Iterator[Finding]:
    if not file.observe:
        return
    if all(arm.kind != "adaptive" for _, arm in arms):
        yield Finding(
            location=("observe",),
            message="got `true`, but no arm is adaptive: nothing is trimmed anyway",
            hint="remove it, or add an adaptive arm, such as `adaptive: 7`.",
        )
    for location, arm in arms:
        if arm.depth == "nested":
            yield Finding(
                location=(*location, "depth"),
                message="got `nested`, but with `observe: true` all K tokens are drafted and verified",
                hint="remove `observe`, or leave `depth` away.",
            )
