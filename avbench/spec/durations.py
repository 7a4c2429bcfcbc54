"""Time spans as people write them in a sweep: `10`, `2.5`, `500ms`, `10s`, `2m`, `1h30m`, `9h`."""

from __future__ import annotations

import re

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_NUMBER, _UNIT = r"[0-9]+(?:\.[0-9]+)?", "ms|s|min|m|h"
PATTERN = rf"^(?:{_NUMBER} *(?:{_UNIT}) *)+$"  # also the pattern of the JSON schema
POSITIVE_PATTERN = rf"^(?=.*[1-9])(?:{_NUMBER} *(?:{_UNIT}) *)+$"
_NUMBER_AND_UNIT = re.compile(rf"({_NUMBER}) *({_UNIT})")


def parse_duration(text: str) -> float | None:
    """Seconds of `500ms`, `10s`, `2m`, `1h30m`; None if the text is no duration (a number without unit is none)."""
    if not re.match(PATTERN, text):
        return None
    return sum(float(number) * SECONDS[unit] for number, unit in _NUMBER_AND_UNIT.findall(text))
