"""Paths as they stand in a sweep file."""

from __future__ import annotations

from pathlib import Path

from avbench.errors import UsageError
from avbench.spec.shown import shortened


def reference_path(ref: str, base: Path) -> Path:
    """The absolute path that `ref` means; a relative one starts at `base`, `~` is a home folder. It need not exist.

    Raises UsageError for what no file can be called here, and for a path that may not be looked at.
    """
    try:
        path = (base / Path(ref).expanduser()).resolve()
        path.exists()
    except (RuntimeError, ValueError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        message = f"{shortened(ref)!r} is not a path that can be read: {reason}"
        raise UsageError(message, hint="check the path.") from error
    return path
