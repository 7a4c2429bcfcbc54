"""What a message about one value says: what stands there and what was expected, taken from the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from avbench.spec.durations import PATTERN, POSITIVE_PATTERN
from avbench.spec.schema import json_schema

Schema = Mapping[str, Any]


@lru_cache(maxsize=1)
def root_schema() -> Schema:
    """The schema of a whole file."""
    return json_schema()


def resolved(schema: Schema) -> Schema:
    """With a reference replaced by what it refers to."""
    reference = schema.get("$ref")
    if reference is None:
        return schema
    target: Schema = root_schema()["$defs"][str(reference).rsplit("/", 1)[1]]
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def branches_of(schema: Schema) -> Sequence[Schema]:
    """The alternatives of a schema; most have one."""
    whole = resolved(schema)
    options = whole.get("oneOf") or whole.get("anyOf")
    return [whole] if options is None else [resolved(option) for option in options]


def step_into(schema: Schema, step: str | int) -> Schema | None:
    """The schema of one key or of a list's entries; None if there can be none."""
    for branch in branches_of(schema):
        if isinstance(step, int) and "items" in branch:
            return branch["items"]  # type: ignore[no-any-return]
        if isinstance(step, str) and step in branch.get("properties", {}):
            return branch["properties"][step]  # type: ignore[no-any-return]
        if isinstance(step, str) and isinstance(branch.get("additionalProperties"), dict):
            return branch["additionalProperties"]  # type: ignore[no-any-return]
    return None


def known_location(location: Sequence[str | int]) -> Sequence[str | int]:
    """The part of a location that the schema knows: pydantic appends names of its own to values that may be absent."""
    schema: Schema = root_schema()
    for index, step in enumerate(location):
        below = step_into(schema, step)
        if below is None:
            return location[:index]
        schema = below
    return location


def schema_at(location: Sequence[str | int]) -> Schema:
    """The schema of the value at a location of the file, as far as the schema knows it."""
    schema: Schema = root_schema()
    for step in known_location(location):
        schema = step_into(schema, step) or {}
    return resolved(schema)


def expected(schema: Schema) -> str:
    """What a value may be, in words: `a whole number from 1 to 64, or a list of these`."""
    branches = branches_of(schema)
    if any(branch.get("pattern") in {PATTERN, POSITIVE_PATTERN} for branch in branches):
        return _seconds_in_words(branches[0])
    kinds = {branch.get("type") for branch in branches}
    words = [
        _branch_in_words(branch) for branch in branches if branch.get("type") != "integer" or "number" not in kinds
    ]
    return ", or ".join(words) if len(words) < 3 else ", ".join(words[:-1]) + f", or {words[-1]}"


def _branch_in_words(schema: Schema) -> str:
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type")
    if kind in {"integer", "number"}:
        return ("a whole number" if kind == "integer" else "a number") + _range_in_words(schema)
    if kind == "array":
        return f"a list of{' one or more' if schema.get('minItems') else ''} {_plural(schema['items'])}"
    if kind == "object":
        return f"a mapping{_keys_in_words(schema)}"
    return "true or false" if kind == "boolean" else "text"


def _keys_in_words(schema: Schema) -> str:
    keys = [f"`{key}`" for key in schema.get("properties", {})]
    return f" with the {'key' if len(keys) == 1 else 'keys'} {', '.join(keys)}" if keys else ""


def _plural(schema: Schema) -> str:
    branches = branches_of(schema)
    if len(branches) == 1 and branches[0].get("type") == "integer":
        return f"whole numbers{_range_in_words(branches[0])}"
    return "arms" if len(branches) > 1 else "mappings"


def _seconds_in_words(number: Schema) -> str:
    lowest = "" if "minimum" in number else " above 0"
    return f"seconds{lowest} (`2.5`) or a duration (`500ms`, `10s`, `2m`, `1h`), up to 7 days"


def _range_in_words(schema: Schema) -> str:
    low, above, high = schema.get("minimum"), schema.get("exclusiveMinimum"), schema.get("maximum")
    if low is not None:
        return f" from {low} to {high}" if high is not None else f" from {low}"
    if above is not None:
        return f" above {above}" + (f" and at most {high}" if high is not None else "")
    return ""
