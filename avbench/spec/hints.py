"""What to do about a value or key that is wrong, taken from the schema."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from avbench.spec.expectation import Schema, branches_of, resolved, root_schema, schema_at
from avbench.spec.nearest import did_you_mean, nearest

# Keys of later versions: not the same as a typing mistake.
LATER_KEYS = {"goodput", "slo", "budget", "rate", "request_rate", "launcher"}


def value_hint(node: yaml.Node, location: Sequence[str | int]) -> str:
    """What to do about a value of the wrong type or size."""
    schema = schema_at(location)
    kinds = {branch.get("type") for branch in branches_of(schema)}
    text = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
    names = [str(name) for name in schema.get("enum", [schema["const"]] if "const" in schema else [])]
    if _quoted(node, kinds):
        return f"remove the quotes: `{text}`."
    if "boolean" in kinds and text.lower() in {"yes", "no", "on", "off"}:
        return f"write `{'true' if text.lower() in {'yes', 'on'} else 'false'}`."
    if "string" in kinds and not names and isinstance(node, yaml.ScalarNode) and not _has_kind(node, kinds):
        return f'YAML reads this as a {_kind_name(node)}: write `"{text}"` if the text is meant.'
    if kinds == {"array"} and isinstance(node, yaml.ScalarNode):
        return f"write a list: `[{text}]`."
    if kinds == {"array"} and isinstance(node, yaml.MappingNode):
        return "begin each entry of the list with `- `."
    return did_you_mean(nearest(text, names)) or _described(location)


def _has_kind(node: yaml.ScalarNode, kinds: set[object]) -> bool:
    kind = node.tag.rsplit(":", 1)[1]
    return kind == "str" or (kind in {"int", "float"} and bool(kinds & {"integer", "number"}))


def _quoted(node: yaml.Node, kinds: set[object]) -> bool:
    """A number or truth value that quotes made text."""
    if getattr(node, "style", None) not in {"'", '"'}:
        return False
    if "boolean" in kinds and node.value in {"true", "false"}:
        return True
    try:
        float(str(node.value))
    except ValueError:
        return False
    return bool(kinds & {"integer", "number"})


def _kind_name(node: yaml.ScalarNode) -> str:
    return {"bool": "truth value", "int": "number", "float": "number"}.get(node.tag.rsplit(":", 1)[1], "special value")


def _described(location: Sequence[str | int]) -> str:
    """The description of the value, or of the list or section that it stands in, and the default."""
    for length in range(len(location), 0, -1):
        schema = schema_at(location[:length])
        name = next((step for step in reversed(location[:length]) if isinstance(step, str)), "")
        if schema.get("description"):
            return f"`{name}`: {schema['description']}{_default_in_words(schema)}"
    return "`avbench schema` prints all keys and what they may be."


def _default_in_words(schema: Schema) -> str:
    default = schema.get("default")
    if default is None or isinstance(default, list | dict):
        return ""
    shown_default = (
        str(default).lower() if isinstance(default, bool) else f"{default:g}" if isinstance(default, float) else default
    )
    return f" Default: {shown_default}."


def unknown_key_hint(key: str, parent_key: str, schema: Schema) -> str:
    """The nearest valid key, or the section where the key belongs, and what is valid here."""
    valid = [name for branch in branches_of(schema) for name in branch.get("properties", {})]
    where = f"`{parent_key}`" if parent_key else "a sweep file"
    listed = f"Valid keys of {where}: {', '.join(valid)}"
    if key in LATER_KEYS:
        return f"`{key}` is not in this version of avbench. {listed}"
    near = nearest_key(key, schema)
    if near:
        return did_you_mean(near, listed)
    if parent_key and key in root_schema()["properties"]:
        return f"`{key}` belongs at the top of the file. {listed}"
    home = _home_of(key)
    return f"`{key}` belongs under `{home}`. {listed}" if home and home != parent_key else listed


def nearest_key(key: str, schema: Schema) -> str | None:
    """The valid key that an unknown one was probably meant to be: similar, or the only one that begins with it."""
    folded = {name.lower(): name for branch in branches_of(schema) for name in branch.get("properties", {})}
    plain = key.lower().replace("-", "_")
    near = nearest(plain, folded)
    begun = [name for name in folded if len(plain) > 2 and name.startswith(plain)]
    return folded[near] if near else folded[begun[0]] if len(begun) == 1 else None


def _home_of(key: str) -> str | None:
    arm_options = {"adaptive": root_schema()["$defs"]["AdaptiveOptions"]}
    for name, section in {**root_schema()["properties"], **arm_options}.items():
        item = resolved(section).get("items", {})
        if key in resolved(section).get("properties", {}) or key in resolved(item).get("properties", {}):
            return str(name)
    return None


def missing_hint(location: Sequence[str | int]) -> str:
    """How to add a key that must be there."""
    return f"add {_described(location)}"


def arm_hint(node: yaml.Node) -> str:
    """What was probably meant by something that is no arm."""
    if isinstance(node, yaml.MappingNode) and len(node.value) > 1:
        return "one arm per entry: begin each with its own `-`."
    words = [str(key.value) for key, _ in node.value] if isinstance(node, yaml.MappingNode) else [str(node.value)]
    near = nearest(words[0].lower(), ["none", "fixed", "adaptive"], cutoff=0.5) if words else None
    return did_you_mean(near) or "each entry of `arms` is one way to speculate."
