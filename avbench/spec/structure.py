"""Wrong keys, types and sizes: pydantic finds them, this says them in the words of the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from avbench.spec import expectation, hints
from avbench.spec.document import Document, Place
from avbench.spec.problem import Problem
from avbench.spec.shown import shown

_TAGS = {"none", "fixed", "adaptive"}


def structure_problems(document: Document, error: ValidationError) -> list[Problem]:
    """One problem for each place (a union reports one failure for each of its types)."""
    problems: dict[tuple[int, int, str], Problem] = {}
    every = error.errors(include_url=False, include_input=False)
    misspelt = {_misspelt(details["loc"]) for details in every if details["type"] == "extra_forbidden"}
    for details in every:
        if details["type"] == "missing" and details["loc"] in misspelt:
            continue  # the unknown key beside it says all there is to say
        problem = _problem(document, details)
        problems.setdefault((problem.line, problem.column, problem.key), problem)
    return list(problems.values())


def _misspelt(location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Where the key would be that an unknown key was probably meant to be."""
    near = hints.nearest_key(str(location[-1]), expectation.schema_at(_file_location(location[:-1])))
    return (*location[:-1], near or "")


def _problem(document: Document, details: Mapping[str, Any]) -> Problem:
    location = _file_location(details["loc"])
    if details["type"] not in {"extra_forbidden", "missing"}:  # these end in a key that a schema or a file lacks
        location = list(expectation.known_location(location))
    place = document.place(location)
    message, hint = _said(details, location, document, place)
    return Problem(line=place.line, column=place.column, key=place.key, message=message, hint=hint)


def _file_location(location: Sequence[str | int]) -> list[str | int]:
    """Without the tag that pydantic puts behind a position in `arms`."""
    tagged = len(location) > 2 and location[0] == "arms" and location[2] in _TAGS
    return [*location[:2], *location[3:]] if tagged else list(location)


def _said(
    details: Mapping[str, Any], location: Sequence[str | int], document: Document, place: Place
) -> tuple[str, str]:
    """Message and hint for one pydantic error."""
    parent = expectation.schema_at(location[:-1])
    if details["type"] == "extra_forbidden":
        hint = hints.unknown_key_hint(str(location[-1]), document.place(location[:-1]).key, parent)
        return f"unknown key (value: {shown(place.node)})", hint
    if details["type"] == "missing":
        return "missing", hints.missing_hint(location)
    if details["type"] == "later":
        return details["msg"], details["ctx"]["hint"]
    if details["type"] == "arm":
        return _no_arm(place)
    expected = expectation.expected(expectation.schema_at(location))
    hint = hints.value_hint(place.node, location)
    if place.node.value == "0" and {"k", "fixed"} & set(location[2:]):
        hint = "K=0 is plain decoding: the arm `none`."
    return f"got {shown(place.node)}, expected {expected}", hint


def _no_arm(place: Place) -> tuple[str, str]:
    text = str(place.node.value) if isinstance(place.node.value, str) else ""
    forms = "`none`, `fixed: 3`, `fixed: [1, 3, 7]` or `adaptive: 7`"
    hint = "plain decoding is `none`." if text.lower() in {"no", "off", "false", "null"} else ""
    return f"got {shown(place.node)}, expected one arm: {forms}", hint or hints.arm_hint(place.node)
