"""A figure and its interval."""

from __future__ import annotations

from dataclasses import dataclass

from avbench.analysis.study.bootstrap import Values, interval


@dataclass(frozen=True, kw_only=True)
class Value:
    """A figure with its 95 % interval by request; `low` and `high` are None where there is none."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def half_width(self) -> float | None:
        """Half the interval's length."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


def value_of(value: float, drawn: Values | None, *, least: float | None = None) -> Value:
    """`value` with the interval of its replicates `drawn` [R]; no end of it lies below `least`."""
    ends = interval(value, drawn)
    if ends is None:
        return Value(value=value)
    low, high = ends if least is None else (max(ends[0], least), max(ends[1], least))
    return Value(value=value, low=low, high=high)
