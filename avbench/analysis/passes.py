"""One quantity of a sweep, by point and pass: what estimates and comparisons are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from avbench.analysis.noise import Noise, Observation, estimate_noise
from avbench.record.measurement import Measurement, Summary

QuantityName = Literal[
    "steady_throughput",
    "output_throughput",
    "interactivity",
    "ttft",
    "tpot",
    "itl",
    "e2el",
    "acceptance_length",
    "verified_per_request_step",
    "tokens_per_request_step",
]


@dataclass(frozen=True, kw_only=True, order=True)
class Point:
    """Arm x workload x load: a cell without its pass."""

    arm: str  # Arm.id
    workload: str
    concurrency: int

    def __str__(self) -> str:
        return f"{self.arm} · {self.workload} · C={self.concurrency}"


def _median(summary: Summary, name: str) -> float | None:
    percentiles = getattr(summary, name)
    return None if percentiles is None else float(percentiles.p50)


def _plain(summary: Summary, name: str) -> float | None:
    value = getattr(summary, name)
    return None if value is None else float(value)


# Latencies enter as their median over requests; the spread is taken over passes.
_READERS: Mapping[QuantityName, Callable[[Summary, str], float | None]] = {
    "steady_throughput": _plain,
    "output_throughput": _plain,
    "interactivity": _median,
    "ttft": _median,
    "tpot": _median,
    "itl": _median,
    "e2el": _median,
    "acceptance_length": _plain,
    "verified_per_request_step": _plain,
    "tokens_per_request_step": _plain,
}


def point_of(measurement: Measurement) -> Point:
    """The measurement's place in the sweep, whatever its pass."""
    return Point(arm=measurement.arm, workload=measurement.workload, concurrency=measurement.concurrency)


@dataclass(frozen=True, kw_only=True)
class PassTable:
    """`values[point][pass]` of one quantity, SI units. Failed cells and absent values have no entry."""

    quantity: QuantityName
    values: Mapping[Point, Mapping[int, float]]

    @cached_property
    def noise(self) -> Mapping[str, Noise]:
        """Pooled noise of each concurrency class, see `noise.py`."""
        return estimate_noise(
            Observation(arm=point.arm, cell=str(point), concurrency=point.concurrency, pass_number=number, value=value)
            for point, by_pass in self.values.items()
            for number, value in by_pass.items()
            if value > 0
        )


def pass_table(measurements: Iterable[Measurement], quantity: QuantityName) -> PassTable:
    """Collects one quantity from the measured cells. A cell without any good request counts as not measured."""
    values: dict[Point, dict[int, float]] = {}
    for measurement in measurements:
        if measurement.status != "done" or measurement.summary is None or all_failed(measurement.summary):
            continue
        value = _READERS[quantity](measurement.summary, quantity)
        if value is not None:
            values.setdefault(point_of(measurement), {})[measurement.pass_number] = value
    return PassTable(quantity=quantity, values=values)


def all_failed(summary: Summary) -> bool:
    """No request brought a token: the cell's zeros are not figures."""
    return summary.output_tokens == 0
