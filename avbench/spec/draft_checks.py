"""Drafts that cannot work with the pair's method, its target, or the arms that use them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from avbench.spec.arm import Arm
from avbench.spec.document import Location
from avbench.spec.finding import Finding
from avbench.spec.model_limits import (
    BLOCK_KEY,
    DSPARK_TYPE,
    HEAD_KEY,
    HIDDEN_KEY,
    TARGET_HIDDEN_KEY,
    TYPE_KEY,
    ModelLimits,
)
from avbench.spec.schema import SweepFile

SHIPPED_WITH_HEAD = ("avbench:dspark",)
Arms = Sequence[tuple[Location, Arm]]


def draft_findings(file: SweepFile, target: ModelLimits, draft: ModelLimits, arms: Arms) -> Iterator[Finding]:
    """`draft`: empty if no arm drafts. A checkpoint of the wrong kind is one problem, not several."""
    if target.kind == DSPARK_TYPE:
        yield Finding(
            location=("pair", "target"),
            message=f"got `{file.pair.target}`, which only drafts (`{TYPE_KEY}: {DSPARK_TYPE}` in config.json)",
            hint="use it as `draft`, and the model that it was trained for as `target`.",
        )
    wrong_kind = list(_kind(file, draft))
    yield from wrong_kind
    if file.pair.method == "dspark" and not wrong_kind:
        yield from _width(file, target, draft)
        yield from _blocks(file, draft, arms)
    yield from _heads(file, draft, arms)


def _kind(file: SweepFile, draft: ModelLimits) -> Iterator[Finding]:
    fits = (draft.kind == DSPARK_TYPE) == (file.pair.method == "dspark")
    if draft.kind is None or fits:
        return
    said = f"(`{TYPE_KEY}: {draft.kind}` in config.json)"
    if file.pair.method == "dspark":
        message = f"got `{file.pair.draft}`, a model of its own {said}; `method: dspark` needs `{DSPARK_TYPE}`"
        hint = "use `avbench:dspark`, or `method: draft_model`."
    else:
        message = f"got `{file.pair.draft}`, which drafts blocks from the target's hidden state {said}"
        hint = "write `method: dspark`, or use another draft."
    yield Finding(location=("pair", "draft"), message=message, hint=hint)


def _width(file: SweepFile, target: ModelLimits, draft: ModelLimits) -> Iterator[Finding]:
    if None not in (target.hidden, draft.target_hidden) and target.hidden != draft.target_hidden:
        yield Finding(
            location=("pair", "draft"),
            message=f"got `{file.pair.draft}`, made for a target with hidden states of {draft.target_hidden} "
            f"(`{TARGET_HIDDEN_KEY}` in config.json), expected the target's {target.hidden} (`{HIDDEN_KEY}`)",
            hint="use the draft that was trained for this target.",
        )


def _blocks(file: SweepFile, draft: ModelLimits, arms: Arms) -> Iterator[Finding]:
    for location, arm in arms:
        if draft.block is not None and arm.k > draft.block:
            yield Finding(
                location=(*location, "k") if arm.kind == "adaptive" else location,
                message=f"got `{arm.k}`, expected at most {draft.block}: `{file.pair.draft}` drafts blocks of "
                f"{draft.block} tokens (`{BLOCK_KEY}` in config.json)",
                hint="lower K, or use a draft with longer blocks.",
            )


def _heads(file: SweepFile, draft: ModelLimits, arms: Arms) -> Iterator[Finding]:
    shipped = ", ".join(f"`{name}`" for name in SHIPPED_WITH_HEAD)
    for location, arm in arms:
        if arm.source == "head" and not (file.pair.method == "dspark" and draft.head):
            if file.pair.method == "dspark":
                lack = f"its config.json does not say `{HEAD_KEY}: true`"
                message = f"got `head`, but `{file.pair.draft}` has no confidence head: {lack}"
            else:
                message = f"got `head`, but drafts of `method: {file.pair.method}` have no confidence head"
            yield Finding(
                location=(*location, "source"),
                message=message,
                hint=f"use `source: estimator`, or `method: dspark` with a draft that has one: {shipped}.",
            )
