"""A doubt about a cell, an arm or a comparison, with what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from avbench.analysis.results import Results
from avbench.record.measurement import Measurement, Summary
from avbench.spec.arm import Arm


@dataclass(frozen=True, kw_only=True)
class Caution:
    """`kind` is stable (for filters and tests); `where` lists places as people name them, or is empty for all of it."""

    kind: str
    where: tuple[str, ...]
    text: str
    advice: str


Check = Callable[[Results], Iterable[Caution]]


def place(results: Results, cell: Measurement) -> str:
    """`AV 7 · code · C=8 · pass 1`."""
    return f"{results.label(cell.arm)} · {cell.workload} · C={cell.concurrency} · pass {cell.pass_number}"


def measured(results: Results) -> Iterator[tuple[Measurement, Summary, Arm]]:
    """Cells that have figures, each with its arm."""
    for cell in results.measurements:
        if cell.status == "done" and cell.summary is not None:
            yield cell, cell.summary, results.arm(cell.arm)


def where_true(results: Results, condition: Callable[[Measurement, Summary, Arm], bool]) -> tuple[str, ...]:
    """Places of the measured cells for which `condition` holds."""
    return tuple(place(results, cell) for cell, summary, arm in measured(results) if condition(cell, summary, arm))
