"""One avbench at a time on one results folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from avbench.errors import UsageError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`; raises UsageError if another process holds it.

    The kernel holds the lock for the process and drops it with the process: the file of a killed one is free to take,
    and a process id that was given to somebody else since cannot block it.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
            raise UsageError(
                f"{path.parent}: another avbench (process {owner}) is writing to this results folder",
                hint="wait until it has ended, or give another folder with `--results`.",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
