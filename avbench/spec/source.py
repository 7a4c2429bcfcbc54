"""A sweep file as text."""

from __future__ import annotations

from pathlib import Path

import yaml

from avbench.errors import UsageError
from avbench.spec.nearest import did_you_mean, nearest


def read_source(path: Path) -> str:
    """The text of a sweep file. Raises UsageError for what is no file, not readable, or not text in UTF-8."""
    text = _decoded(path, _raw(path))
    _check_characters(path, text)
    return text


def _raw(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(f"{path}: there is no such file", hint=_nearest_file(path)) from error
    except IsADirectoryError as error:
        raise UsageError(f"{path}: a folder, expected a sweep file", hint=_files_in(path)) from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", hint="check the path and its rights.") from error


def _decoded(path: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}:{line}: not UTF-8: byte 0x{raw[error.start]:02x}", hint="save the file in the encoding UTF-8."
        ) from error


def _nearest_file(path: Path) -> str:
    names = sorted(other.name for other in path.parent.glob("*.y*ml")) if path.parent.is_dir() else []
    near = nearest(path.name, names)
    return did_you_mean(str(path.with_name(near))) if near else "give the path of a sweep file (`*.yaml`)."


def _files_in(path: Path) -> str:
    names = sorted(str(other) for other in path.glob("*.y*ml"))
    return f"give one of its files: {', '.join(names)}." if names else "give the path of a sweep file (`*.yaml`)."


def _check_characters(path: Path, text: str) -> None:
    match = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if match is None:
        return
    line = text.count("\n", 0, match.start()) + 1
    raise UsageError(
        f"{path}:{line}: the character U+{ord(match.group()):04X} is not allowed in YAML",
        hint="remove it, or write it as an escape inside double quotes.",
    )
