"""A problem that does not know its line yet."""

from __future__ import annotations

from dataclasses import dataclass

from avbench.spec.document import Location


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is wrong, where in the file's structure, and what to do."""

    location: Location
    message: str
    hint: str
