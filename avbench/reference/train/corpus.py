"""Text that every Python has: the standard library's source and docstrings.

Two kinds of document, each ended by the end-of-text token so that the model learns to stop:
`code` is one top-level statement group of a module (a function, a class, a run of assignments);
`prose` is one docstring, or one topic of the language reference in `pydoc_data.topics`.
A file is held out as a whole, chosen by the hash of its path, so that no held-out function has its
neighbours in the training set.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "__pycache__"}
)
HELD_OUT_SHARE = 0.04
MIN_PROSE_CHARS = 80
MIN_CODE_CHARS = 40


@dataclass(frozen=True, kw_only=True)
class Document:
    """One training text and where it came from."""

    kind: Literal["code", "prose"]
    source: str
    text: str

    @property
    def held_out(self) -> bool:
        """True when the whole source file is kept from training."""
        digest = hashlib.sha256(self.source.encode()).digest()
        return int.from_bytes(digest[:4], "big") < HELD_OUT_SHARE * 2**32


def read_corpus(root: Path | None = None) -> list[Document]:
    """All documents of the standard library at `root` (default: the running Python's), in path order."""
    root = root or Path(sysconfig.get_path("stdlib"))
    return [doc for path in _source_files(root) for doc in _documents(path, path.relative_to(root).as_posix())]


def _source_files(root: Path) -> list[Path]:
    return sorted(p for p in root.rglob("*.py") if not SKIPPED_FOLDERS & set(p.relative_to(root).parts))


def _documents(path: Path, name: str) -> Iterator[Document]:
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (SyntaxError, UnicodeDecodeError, ValueError):  # lib2to3 keeps Python 2 files on purpose
        return
    if name == "pydoc_data/topics.py":
        yield from _topics(tree, name)
        return
    for block in _blocks(tree, text.splitlines()):
        if len(block) >= MIN_CODE_CHARS:
            yield Document(kind="code", source=name, text=block)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring and len(docstring) >= MIN_PROSE_CHARS:
                yield Document(kind="prose", source=name, text=docstring.strip() + "\n")


def _topics(tree: ast.Module, name: str) -> Iterator[Document]:
    """The language reference: each topic counts as a file of its own, so that some are held out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) >= MIN_PROSE_CHARS:
            yield Document(kind="prose", source=f"{name}:{node.lineno}", text=node.value.strip() + "\n")


def _blocks(tree: ast.Module, lines: list[str]) -> Iterator[str]:
    """Definitions alone, other statements in runs; comments and decorators stay with what follows them."""
    start, run_open = 0, False
    for node in tree.body:
        is_definition = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) - 1
        if is_definition and run_open:
            while first > start and lines[first - 1].startswith("#"):
                first -= 1
            yield _text(lines[start:first])
            start, run_open = first, False
        end = node.end_lineno or node.lineno
        if is_definition:
            yield _text(lines[start:end])
            start = end
        else:
            run_open = True
    if run_open:
        yield _text(lines[start:])


def _text(lines: list[str]) -> str:
    return "\n".join(lines).strip("\n") + "\n"
