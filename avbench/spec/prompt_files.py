"""Where the prompts of a workload are: a shipped set by name, or a JSONL file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from avbench.errors import UsageError
from avbench.spec.nearest import did_you_mean, nearest
from avbench.spec.paths import reference_path

SUFFIXES = (".jsonl", ".jsonl.gz")


def shipped_prompts() -> Path:
    """The folder with one `NAME.jsonl` for each shipped set."""
    return Path(str(files("avbench"))) / "prompts" / "data"


def shipped_sets() -> tuple[str, ...]:
    """Names of the shipped sets, sorted."""
    return tuple(sorted(path.stem for path in shipped_prompts().glob("*.jsonl")))


def resolve_prompts(ref: str, base: Path) -> Path:
    """The JSONL file behind `prompts: REF`; a relative path starts at `base`, the sweep file's folder.

    A shipped name wins over a file of that name. Raises UsageError if there is neither.
    """
    if ref in shipped_sets():
        return shipped_prompts() / f"{ref}.jsonl"
    path = reference_path(ref, base)
    if path.is_file():
        return path
    if path.is_dir():
        raise UsageError(f"prompts `{ref}`: {path} is a folder", hint="expected a JSONL file, one prompt a line.")
    raise _missing(ref, path)


def prompts_name(ref: str) -> str:
    """The name that a workload gets from its prompts: the set's, or the file's without its suffixes."""
    name = Path(ref).name
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return Path(name).stem if "." in name.lstrip(".") else name


def _missing(ref: str, path: Path) -> UsageError:
    known = ", ".join(f"`{name}`" for name in shipped_sets())
    if "/" in ref or "." in ref:
        return UsageError(
            f"prompts `{ref}`: there is no file {path}",
            hint=f"give a JSONL file (paths start at the sweep file's folder) or a shipped set: {known}.",
        )
    rest = f"Shipped sets: {known}. Or give the path of a JSONL file."
    return UsageError(f"prompts `{ref}`: no such set", hint=did_you_mean(nearest(ref, shipped_sets()), rest))
