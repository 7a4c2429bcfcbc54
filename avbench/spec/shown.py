"""Values of a sweep file as messages show them: on one line, and short."""

from __future__ import annotations

import yaml

LONGEST = 60  # characters


def shortened(text: str) -> str:
    """One line of at most `LONGEST` characters."""
    line = text.replace("\n", " ")
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."


def shown(node: yaml.Node) -> str:
    """A value as it stands in the file, in backticks; lists and mappings in one line, whatever their form there."""
    if isinstance(node, yaml.CollectionNode) and not node.value:
        return "an empty mapping" if isinstance(node, yaml.MappingNode) else "an empty list"
    return f"`{shortened(_one_line(node, depth=2))}`"


def shown_value(value: str | int | float | bool) -> str:
    """The same for a value whose place in the file is not at hand."""
    return f"`{shortened(str(value).lower() if isinstance(value, bool) else str(value))}`"


def _one_line(node: yaml.Node, depth: int) -> str:
    """Bounded in depth, because an anchor may be used inside itself, and in entries, which are cut anyway."""
    if isinstance(node, yaml.ScalarNode):
        text = str(node.value).strip("\n")  # a block of text ends with one
        return f'"{text}"' if node.style in {"'", '"'} else text
    if depth == 0:
        return "..."
    if isinstance(node, yaml.MappingNode):
        pairs = (f"{_one_line(key, 0)}: {_one_line(value, depth - 1)}" for key, value in node.value[:LONGEST])
        return f"{{{', '.join(pairs)}}}"
    return f"[{', '.join(_one_line(item, depth - 1) for item in node.value[:LONGEST])}]"
