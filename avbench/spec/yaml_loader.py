"""YAML as sweep files use it."""

from __future__ import annotations

import re

import yaml


class SweepLoader(yaml.SafeLoader):
    """Safe YAML with the scalars of YAML 1.2, which is also what editors check against.

    PyYAML follows YAML 1.1, where `no` and `on` are booleans, `010` is 8 and `1:30` is 90: traps in a file of names
    and numbers.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  (PyYAML's own slot)

    def construct_int(self, node: yaml.ScalarNode) -> int:
        """Decimal, `0x..` or `0o..`; a leading zero means nothing."""
        text = str(self.construct_scalar(node))
        try:
            return int(text, 0) if text[:2] in {"0x", "0o"} else int(text)
        except ValueError as error:
            raise yaml.constructor.ConstructorError(
                None, None, f"`{text[:60]}` is no number", node.start_mark
            ) from error


def _resolve(tag: str, pattern: str, first: str) -> None:
    SweepLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first))


_resolve("null", r"^(?:~|null|Null|NULL|)$", "~nN")
SweepLoader.yaml_implicit_resolvers.setdefault("", []).append(("tag:yaml.org,2002:null", re.compile(r"^$")))
_resolve("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF")
_resolve("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789")
_resolve(
    "float",
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
    "-+0123456789.",
)
_resolve("merge", r"^<<$", "<")
SweepLoader.add_constructor("tag:yaml.org,2002:int", SweepLoader.construct_int)
