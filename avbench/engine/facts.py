"""Facts about the machine and the software: kept with the results, compared before new ones are added to them."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

LIBRARIES = ("aiohttp", "uvloop", "numpy", "torch", "transformers", "tokenizers", "safetensors", "vllm")
# Facts that change figures. Memory and kernel release are kept for the reader but never stop a sweep.
COMPARED = ("cpu", "cores", "python", "torch", "transformers", "tokenizers", "vllm")


@cache
def environment() -> Mapping[str, str | int | None]:
    """CPU model, cores this process may use, RAM in bytes, OS, Python, library versions (None: not installed)."""
    facts: dict[str, str | int | None] = {
        "cpu": _cpu_model(),
        "cores": _cores(),
        "ram_bytes": _ram_bytes(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }
    return facts | {name: _version(name) for name in LIBRARIES}


def differences(then: Mapping[str, object], now: Mapping[str, object]) -> tuple[str, ...]:
    """`cpu: was X, is Y` for each compared fact that `then` holds and that is not the same now."""
    return tuple(
        f"{name}: was {then[name]}, is {now.get(name)}"
        for name in COMPARED
        if name in then and then[name] != now.get(name)
    )


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _ram_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
