"""Models, lengths and arms that cannot work together, as far as the checkpoints' `config.json` says so.

What a file does not say is not judged here: the engine does that when it loads the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from avbench.errors import UsageError
from avbench.spec.arm import Arm
from avbench.spec.document import Location
from avbench.spec.draft_checks import draft_findings
from avbench.spec.engine_checks import MAX_MODEL_LEN, fits_flag
from avbench.spec.finding import Finding
from avbench.spec.model_limits import POSITIONS_KEY, VOCABULARY_KEY, ModelLimits, read_limits
from avbench.spec.models import resolve_model
from avbench.spec.schema import SweepFile

_LENGTH = ("engine", "args", MAX_MODEL_LEN)
_POSITIONS = f"`{POSITIONS_KEY}` in config.json"


@dataclass(frozen=True, kw_only=True)
class _Need:
    """A value of the file that asks for a context of at least `value + beside` tokens."""

    location: Location
    value: int
    beside: int
    name: str  # what to lower
    what: str

    @property
    def length(self) -> int:
        return self.value + self.beside


def model_findings(file: SweepFile, base: Path, arms: Sequence[tuple[Location, Arm]]) -> Iterator[Finding]:
    """`base`: relative model folders start there. `arms`: every arm with its place; the draft counts if one drafts."""
    target = _limits(file.pair.target, base)
    draft = _limits(file.pair.draft, base) if any(arm.kind != "none" for _, arm in arms) else ModelLimits()
    yield from draft_findings(file, target, draft, arms)
    yield from _vocabularies(file, target, draft)
    if file.pair.method == "dspark":  # it reads the target's hidden state, not the text: no length of its own
        draft = replace(draft, positions=None)
    needs = (*_answers(file), *_steps(arms))
    given = file.engine.args.get(MAX_MODEL_LEN)
    if given is None:
        yield from _shorter_draft(file, target, draft)
        yield from _beyond_target(file, target, needs)
    elif isinstance(given, int) and fits_flag(MAX_MODEL_LEN, given):
        yield from _beyond_models(file, given, target, draft)
        yield from _too_short(given, needs)


def _limits(ref: str | None, base: Path) -> ModelLimits:
    """A model that is missing has a finding of its own."""
    try:
        return ModelLimits() if ref is None else read_limits(resolve_model(ref, base))
    except UsageError:
        return ModelLimits()


def _vocabularies(file: SweepFile, target: ModelLimits, draft: ModelLimits) -> Iterator[Finding]:
    if None not in (target.vocabulary, draft.vocabulary) and target.vocabulary != draft.vocabulary:
        yield Finding(
            location=("pair", "draft"),
            message=f"got `{file.pair.draft}` with a vocabulary of {draft.vocabulary} tokens, expected the target's "
            f"{target.vocabulary} (`{VOCABULARY_KEY}` in config.json)",
            hint="use a draft that shares the target's tokenizer.",
        )


def _answers(file: SweepFile) -> Iterator[_Need]:
    for index, workload in enumerate(file.workloads):
        most = workload.max_tokens
        what = f"a prompt beside `max_tokens: {most}`"
        yield _Need(location=("workloads", index, "max_tokens"), value=most, beside=1, name="`max_tokens`", what=what)


def _steps(arms: Sequence[tuple[Location, Arm]]) -> Iterator[_Need]:
    """A step takes the last token, verifies K drafts and adds a token of the target."""
    for location, arm in arms:
        if arm.kind != "none":
            place = (*location, "k") if arm.kind == "adaptive" else location
            what = f"a step of arm `{arm.id}` (a token, K drafts, a token more)"
            yield _Need(location=place, value=arm.k, beside=2, name="K", what=what)


def _beyond_models(file: SweepFile, given: int, target: ModelLimits, draft: ModelLimits) -> Iterator[Finding]:
    limits = ((target.positions, file.pair.target), (draft.positions, file.pair.draft))
    exceeded = [(most, ref) for most, ref in limits if most is not None and most < given]
    if exceeded:
        most, ref = min(exceeded, key=lambda limit: limit[0])
        yield Finding(
            location=_LENGTH,
            message=f"got `{given}`, expected at most {most}: `{ref}` was made for no more ({_POSITIONS})",
            hint=f"write at most {most}.",
        )


def _too_short(given: int, needs: Sequence[_Need]) -> Iterator[Finding]:
    need = max(needs, key=lambda need: need.length)
    if given < need.length:
        yield Finding(
            location=_LENGTH,
            message=f"got `{given}`, expected at least {need.length}: no room for {need.what}",
            hint=f"raise it, or lower {need.name}.",
        )


def _shorter_draft(file: SweepFile, target: ModelLimits, draft: ModelLimits) -> Iterator[Finding]:
    """Without the flag the context is the target's, whatever the draft was made for."""
    if target.positions is not None and draft.positions is not None and draft.positions < target.positions:
        yield Finding(
            location=("pair", "draft"),
            message=f"got `{file.pair.draft}`, made for {draft.positions} tokens, expected at least the target's "
            f"{target.positions} ({_POSITIONS})",
            hint=f"write `{MAX_MODEL_LEN}: {draft.positions}` in `engine.args`, or use another draft.",
        )


def _beyond_target(file: SweepFile, target: ModelLimits, needs: Sequence[_Need]) -> Iterator[Finding]:
    context = target.positions
    for need in needs:
        if context is not None and context < need.length:
            yield Finding(
                location=need.location,
                message=f"got `{need.value}`, expected at most {max(0, context - need.beside)}: `{file.pair.target}` "
                f"was made for {context} tokens ({_POSITIONS}), no room for {need.what}",
                hint=f"lower {need.name}, or use a target with a longer context.",
            )
