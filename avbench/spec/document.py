"""A YAML file as text, values and positions: what every message about a sweep points into."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from avbench.errors import UsageError
from avbench.spec.problem import Problem, raise_problems
from avbench.spec.source import read_source
from avbench.spec.yaml_loader import SweepLoader

Location = Sequence[str | int]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a value stands. `node` is the value's own node, or that of the nearest mapping or list around it."""

    line: int
    column: int
    key: str
    node: yaml.Node


@dataclass(frozen=True, kw_only=True)
class Document:
    """A sweep file that is at least YAML with a mapping on top."""

    path: Path
    text: str
    data: dict[str, object]
    root: yaml.MappingNode

    def place(self, location: Location) -> Place:
        """The place of the value at `location` (keys and list positions). Steps that the file lacks are skipped:
        tags of unions, list positions in what the file gives as one value, and a missing key, which is named."""
        node: yaml.Node = self.root
        line, column, key = 1, 0, ""
        for index, step in enumerate(location):
            found = _child(node, step)
            if found is not None:
                mark, node = found
                line, column = mark.line + 1, mark.column
                key = _join(key, step)
            elif index == len(location) - 1 and isinstance(node, yaml.MappingNode):
                key = _join(key, step)
        return Place(line=line, column=column, key=key, node=node)


def _join(key: str, step: str | int) -> str:
    if isinstance(step, int):
        return f"{key}[{step}]"
    return f"{key}.{step}" if key else step


def _child(node: yaml.Node, step: str | int) -> tuple[yaml.Mark, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        item = node.value[step]
        return item.start_mark, item
    if isinstance(node, yaml.MappingNode):
        # The last match wins, as in the constructor: merged pairs (`<<`) stand before a mapping's own.
        for key, value in reversed(node.value):
            if key.value == step:
                return key.start_mark, value
    return None


def read_document(path: Path) -> Document:
    """Read and parse one file. Raises UsageError for a file that is missing, unreadable or no YAML mapping, that
    repeats a key, leaves a value empty, or has a key that is not text."""
    text = read_source(path)
    loader = SweepLoader(text)
    try:
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise _not_a_mapping(path, root)
        raise_problems(path, list(_key_problems(root)))
        data = loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(path, text, error) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: a value cannot be read: {error}", hint="write plain text and numbers.") from error
    finally:
        loader.dispose()
    document = Document(path=path, text=text, data=data, root=root)
    raise_problems(path, list(_empty_values(document.root, "")))
    return document


def _not_a_mapping(path: Path, root: yaml.Node | None) -> UsageError:
    empty = root is None or root.tag == "tag:yaml.org,2002:null"
    what = "the file is empty" if empty else "the top of the file is not a mapping"
    line = 1 if root is None or empty else root.start_mark.line + 1
    return UsageError(
        f"{path}:{line}: {what}, expected the keys of a sweep",
        hint="start from `sweeps/quickstart.yaml`; `avbench schema` prints all keys.",
    )


def _syntax_error(path: Path, text: str, error: yaml.MarkedYAMLError) -> UsageError:
    mark = error.problem_mark or error.context_mark
    line = 1 if mark is None else mark.line + 1
    lines = text.splitlines()
    source = lines[line - 1] if line <= len(lines) else ""
    hint = "check quotes, brackets and indentation on this line and the one before."
    if "another document" in str(error.problem):
        hint = "a sweep file is one document: remove the line `---`."
    if "\t" in source[: len(source) - len(source.lstrip())] or "'\\t'" in str(error.problem):
        hint = "YAML does not allow tabs for indentation: use spaces."
    return UsageError(f"{path}:{line}: not valid YAML: {_syntax_words(error, line)}", hint=hint)


def _syntax_words(error: yaml.MarkedYAMLError, line: int) -> str:
    """PyYAML's own words, with the line where the thing began that it could not finish."""
    context, problem = error.context, str(error.problem or error.context)
    if context is None or error.problem is None:
        return problem
    if problem.startswith("but "):
        return f"{context}, {problem}"
    begun = error.context_mark
    return (
        f"{problem} ({context} that begins on line {begun.line + 1})" if begun and begun.line + 1 != line else problem
    )


def _children(node: yaml.Node, key: str) -> Iterator[tuple[str, yaml.Node]]:
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield _join(key, index), item
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield _join(key, str(name.value)), value


def _walk(node: yaml.Node, key: str, seen: set[int] | None = None) -> Iterator[tuple[str, yaml.Node]]:
    """Every node once: an anchor may be used many times, and even inside itself."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        return
    seen.add(id(node))
    yield key, node
    for name, child in _children(node, key):
        yield from _walk(child, name, seen)


def _key_problems(root: yaml.Node) -> Iterator[Problem]:
    for key, node in _walk(root, ""):
        if isinstance(node, yaml.MappingNode):
            yield from _key_problems_of(node, key)


def _key_problems_of(node: yaml.MappingNode, key: str) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for name, _ in node.value:
        line, column = name.start_mark.line + 1, name.start_mark.column
        if name.tag == "tag:yaml.org,2002:merge":
            continue
        if name.tag != "tag:yaml.org,2002:str":
            text = f"`{name.value}`" if isinstance(name, yaml.ScalarNode) else "a list or mapping"
            message = f"the key {text} is not text"
            yield Problem(line=line, column=column, key=key, message=message, hint="keys are names, such as `pair`.")
        elif name.value in first:
            yield Problem(
                line=line,
                column=column,
                key=_join(key, name.value),
                message=f"given twice, first on line {first[name.value]}",
                hint=f"keep one of the lines {first[name.value]} and {line}.",
            )
        else:
            first[name.value] = line


_ENTRY_OF_ARMS = re.compile(r"arms\[\d+\](\.fixed.*)?$")
_EMPTY_HINT = "give it a value, or remove it if it has a default."


def _empty_values(root: yaml.Node, key: str) -> Iterator[Problem]:
    for name, node in _walk(root, key):
        if node.tag == "tag:yaml.org,2002:null":
            yield Problem(
                line=node.start_mark.line + 1,
                column=node.start_mark.column,
                key=name,
                message="has no value",
                hint=_EMPTY_HINT + (" Plain decoding is `none`." if _ENTRY_OF_ARMS.match(name) else ""),
            )
