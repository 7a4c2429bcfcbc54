"""Arrays recorded from an engine, read from a `.npz` file and checked: names, shapes, kinds of numbers."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avbench.errors import UsageError

Array = NDArray[Any]


class Recording:
    """Named arrays with the sizes they agree on: T steps, R request slots, K draft positions and so on."""

    def __init__(self, arrays: Mapping[str, Array], *, name: str) -> None:
        self._arrays = arrays
        self._name = name
        self._sizes: dict[str, int] = {}
        self.notes: list[str] = []  # doubts that do not stop a replay

    def __contains__(self, key: str) -> bool:
        return key in self._arrays

    def size(self, letter: str) -> int:
        """Return a size that an array read before has fixed: `size("K")`."""
        return self._sizes[letter]

    def dimensions(self, key: str) -> int:
        """Return how many axes the array has."""
        return self._arrays[key].ndim

    def array(self, key: str, dimensions: str) -> Array:
        """Return a numeric array. `dimensions` names each axis by a letter, digits stand for themselves: "TRK", "n2";
        a letter has one size in the whole recording. Raises UsageError."""
        if key not in self._arrays:
            present = ", ".join(f"`{name}`" for name in sorted(self._arrays)) or "nothing"
            raise UsageError(f"{self._name}: array `{key}` is missing", hint=f"the file holds {present}")
        array = self._arrays[key]
        if array.dtype.kind not in "biuf":
            raise UsageError(f"{self._name}: `{key}` has type {array.dtype}, expected numbers")
        expected = [int(axis) if axis.isdigit() else self._sizes.get(axis) for axis in dimensions]
        fits = array.ndim == len(dimensions) and all(
            want is None or want == have for want, have in zip(expected, array.shape, strict=True)
        )
        if not fits:
            raise UsageError(f"{self._name}: `{key}` has shape {array.shape}, expected {self._describe(dimensions)}")
        self._sizes.update({axis: size for axis, size in zip(dimensions, array.shape, strict=True) if axis.isalpha()})
        return array

    def integers(self, key: str, dimensions: str) -> NDArray[np.int64]:
        """Return an array of whole numbers; floats that are whole are taken as such."""
        array = self.array(key, dimensions)
        if array.dtype.kind == "f" and not np.array_equal(array, np.trunc(array)):
            raise UsageError(f"{self._name}: `{key}` must hold whole numbers")
        return array.astype(np.int64)

    def mask(self, key: str, default: bool) -> NDArray[np.bool_]:
        """Return a boolean array [T, R], or `default` everywhere if it is absent."""
        if key not in self._arrays:
            return np.full((self.size("T"), self.size("R")), default)
        return self.array(key, "TR").astype(bool)

    def number(self, key: str, default: float | None = None, *, at_least: float = -np.inf) -> float:
        """Return a scalar (an array of one number will do), or `default` if it is absent."""
        if key not in self._arrays and default is not None:
            return default
        value = self._arrays[key] if key in self._arrays else self.array(key, "")
        if value.size != 1 or value.dtype.kind not in "biuf":
            raise UsageError(
                f"{self._name}: `{key}` has shape {value.shape} and type {value.dtype}, expected one number"
            )
        number = float(value.item())
        if not at_least <= number < np.inf:
            raise UsageError(f"{self._name}: `{key}` is {number:g}, expected a number of at least {at_least:g}")
        return number

    def integer(self, key: str, default: int | None = None, *, at_least: int) -> int:
        """Return a whole scalar, or `default` if it is absent."""
        number = self.number(key, default, at_least=at_least)
        if number != int(number):
            raise UsageError(f"{self._name}: `{key}` is {number:g}, expected a whole number")
        return int(number)

    def refuse(self, message: str, *, hint: str | None = None) -> UsageError:
        """Return the error for contents that cannot be replayed."""
        return UsageError(f"{self._name}: {message}", hint=hint)

    def doubt(self, message: str) -> None:
        """Note something that people should know about the contents."""
        self.notes.append(f"{self._name}: {message}")

    def _describe(self, dimensions: str) -> str:
        known = [str(self._sizes.get(axis, axis)) for axis in dimensions]
        named = "[" + ", ".join(dimensions) + "]"
        return named if known == list(dimensions) else f"{named} = ({', '.join(known)})"


def read_recording(path: Path) -> Recording:
    """Read a `.npz` file whole. Raises UsageError if it is missing, damaged or something else."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise UsageError(f"{path}: holds a single array, expected a .npz file of named arrays")
            return Recording({name: loaded[name] for name in loaded.files}, name=str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, KeyError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"{path}: is not a whole .npz file: {error}", hint="write it with numpy.savez") from error


def write_recording(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write a compressed `.npz` file. Raises UsageError if the place cannot be written."""
    try:
        np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
