"""Where the models of a pair are: shipped weights (`avbench:NAME`) or a folder in Hugging Face format."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from avbench.errors import UsageError
from avbench.spec.nearest import did_you_mean, nearest
from avbench.spec.paths import reference_path

SHIPPED_PREFIX = "avbench:"
SHIPPED_MODELS = ("target", "draft", "dspark")
# What decides the numbers: weights, shapes, text <-> tokens, chat template. A README or licence does not.
_DECISIVE = ("config.json", "*.safetensors", "tokenizer*.json", "chat_template.*", "generation_config.json")
_BLOCK = 1 << 20


def shipped_weights() -> Path:
    """The folder that holds one folder for each shipped model."""
    return Path(str(files("avbench"))) / "reference" / "weights"


def resolve_model(ref: str, base: Path) -> Path:
    """The folder of a model; a relative path starts at `base`, the sweep file's folder.

    Raises UsageError for an unknown shipped name, a missing folder, and a folder without `config.json`.
    """
    if ref.startswith(SHIPPED_PREFIX):
        return _shipped(ref)
    folder = reference_path(ref, base)
    if not folder.is_dir():
        raise UsageError(
            f"model `{ref}`: there is no folder {folder}",
            hint="the reference engine loads local folders in Hugging Face format, or the shipped "
            + ", ".join(f"`{SHIPPED_PREFIX}{name}`" for name in SHIPPED_MODELS)
            + "; paths start at the sweep file's folder.",
        )
    return _with_config(ref, folder)


def _shipped(ref: str) -> Path:
    name = ref.removeprefix(SHIPPED_PREFIX)
    if name not in SHIPPED_MODELS:
        near = nearest(name, SHIPPED_MODELS)
        known = ", ".join(f"`{SHIPPED_PREFIX}{shipped}`" for shipped in SHIPPED_MODELS)
        raise UsageError(
            f"model `{ref}`: no shipped model has this name",
            hint=did_you_mean(near and SHIPPED_PREFIX + near, f"Shipped models: {known}."),
        )
    folder = shipped_weights() / name
    if not folder.is_dir():
        raise UsageError(
            f"model `{ref}`: its weights are missing from this installation ({folder})",
            hint="install avbench again, or train them with `python -m avbench.reference.train`.",
        )
    return _with_config(ref, folder)


def _with_config(ref: str, folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"model `{ref}`: the folder {folder} has no config.json",
            hint="expected a Hugging Face checkpoint: config.json, tokenizer.json and *.safetensors.",
        )
    return folder


def model_fingerprint(folder: Path) -> str:
    """sha256 over the files that decide a model's numbers: the revision of a pair that lives in a folder.

    Neither the folder's place nor the files' times are part of it.
    """
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _DECISIVE for path in folder.glob(pattern)}):
        stat = path.stat()
        digest.update(f"{path.name}\0{_file_sha256(path, stat.st_size, stat.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


@lru_cache(maxsize=256)
def _file_sha256(path: Path, size: int, mtime_ns: int) -> str:
    """Size and time are part of the cache's key: a file that changed is read again."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
