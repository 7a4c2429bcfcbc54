"""A module imports only from layers above its own; heavy libraries stay where they belong."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "avbench"
# From the ground up. A longer name wins over a shorter one: `record.measurement` stands apart from `record`.
LAYERS = (
    "errors",
    "units",
    "adaptive",
    "spec",
    "prompts",
    "plan",
    "record.measurement",
    "engine",
    "load",
    "trace",
    "record",
    "analysis",
    "report",
    "progress",
    "runner",
    "cli",
    "__main__",
)
FREE = {"avbench"}  # `from avbench import __version__`
ONLY_IN = {
    "torch": {"reference"},
    "transformers": {"reference"},
    "safetensors": {"reference"},
    "vllm": set(),
    "pandas": {"analysis", "report"},
    "plotly": {"analysis", "report"},
    "sklearn": {"analysis", "report"},
}
FILES = sorted(PACKAGE.rglob("*.py"))


def dotted(path: Path) -> str:
    """`avbench/spec/reader.py` -> `spec.reader`; a package is named by its folder."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer(module: str) -> str:
    """The layer that a dotted name inside avbench belongs to."""
    fits = [name for name in LAYERS if module == name or module.startswith(f"{name}.")]
    return max(fits, key=len) if fits else module.split(".")[0]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of everything imported, also inside functions and type-checking blocks."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                inside = PACKAGE / Path(*full.split(".")[1:])
                is_module = inside.is_dir() or inside.with_suffix(".py").exists()
                yield node.lineno, full if is_module else str(node.module)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_upwards(path: Path) -> None:
    here = layer(dotted(path))
    for line, name in imports(path):
        if not name.startswith("avbench") or name in FREE:
            continue
        there = layer(name.removeprefix("avbench."))
        where = f"{path.relative_to(ROOT)}:{line}: `{here}` imports `{there}`"
        if here == "reference":
            assert there in ("reference", "adaptive", "errors"), where
        elif path == PACKAGE / "__init__.py":
            raise AssertionError(where)
        else:
            assert there in LAYERS, where
            assert LAYERS.index(there) <= LAYERS.index(here), where


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_libraries_stay_in_their_layer(path: Path) -> None:
    for line, name in imports(path):
        library = name.split(".")[0]
        if library in ONLY_IN:
            assert layer(dotted(path)) in ONLY_IN[library], f"{path.relative_to(ROOT)}:{line} imports {library}"


def test_every_file_belongs_to_a_layer() -> None:
    known = {*LAYERS, "reference", ""}
    assert {layer(dotted(path)) for path in FILES} <= known


@pytest.mark.parametrize("command", [["--help"], ["--version"]])
def test_the_command_line_starts_without_heavy_libraries(command: list[str]) -> None:
    code = (
        "import sys; from avbench.cli import app\n"
        f"try: app({command!r})\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'pandas', 'plotly', 'numpy', 'scipy', 'aiohttp', 'pydantic', 'pyarrow', 'sklearn'}"
        " & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip().endswith("[]"), done.stderr
