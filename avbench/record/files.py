"""Files and folders that are there whole or not at all, also after a crash or a power cut."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

UNFINISHED = ".unfinished-"  # starts the name of what is being written


def write_file(path: Path, text: str) -> None:
    """Replace `path` in one step."""
    scratch = path.with_name(f"{UNFINISHED}{path.name}")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    sync(path.parent)


def scratch_folder(target: Path) -> Path:
    """An empty folder beside `target`, to be filled and then passed to `publish_folder`."""
    scratch = target.with_name(f"{UNFINISHED}{target.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    return scratch


def publish_folder(scratch: Path, target: Path) -> None:
    """Give a filled folder its name. An older folder of that name is moved aside first, then removed.

    A crash between the two moves loses at most the older one; the callers only replace failed records.
    """
    for path in scratch.iterdir():
        sync(path)
    sync(scratch)
    older = target.with_name(f"{UNFINISHED}older-{target.name}")
    if target.exists():
        shutil.rmtree(older, ignore_errors=True)
        target.rename(older)
    scratch.rename(target)
    sync(target.parent)
    shutil.rmtree(older, ignore_errors=True)


def sweep_unfinished(folder: Path) -> None:
    """Remove what a killed process left half written."""
    for path in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
