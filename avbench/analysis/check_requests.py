"""Doubts about the load: requests that failed, ended oddly, waited or were repeated."""

from __future__ import annotations

from collections.abc import Iterator

from avbench.analysis.caution import Caution, measured, place, where_true
from avbench.analysis.passes import all_failed
from avbench.analysis.results import Results
from avbench.record.measurement import Measurement, Summary
from avbench.spec.arm import Arm
from avbench.units import format_plural

COLD_RATIO = 2.0  # mean ttft above this many medians: a few requests waited for something that ran once
STARVED = 0.8  # of the asked concurrency, by Little's law
STARVED_WINDOW = 3.0  # request times a window must be long for Little's law to hold within about 10 %


def failed_cells(results: Results) -> Iterator[Caution]:
    """Cells that ended without figures, one caution for each kind of failure."""
    failed = [cell for cell in results.measurements if cell.status != "done"]
    kinds = dict.fromkeys(cell.failure.kind if cell.failure else cell.status for cell in failed)
    for kind in kinds:
        members = [cell for cell in failed if (cell.failure.kind if cell.failure else cell.status) == kind]
        reason = next((cell.failure.reason for cell in members if cell.failure), "no reason was recorded")
        yield Caution(
            kind="failed_cells",
            where=tuple(place(results, cell) for cell in members),
            text=f"{format_plural(len(members), 'cell')} failed ({kind}): {reason}",
            advice="Mend the cause and run the same sweep again: it measures only what is missing.",
        )


def missing_cells(results: Results) -> Iterator[Caution]:
    """Planned cells without any record."""
    if results.passes is None:
        return
    have = {(cell.arm, cell.workload, cell.concurrency, cell.pass_number) for cell in results.measurements}
    absent = [
        f"{results.label(arm.id)} · {workload} · C={load} · pass {number}"
        for arm in results.arms
        for workload in results.workloads
        for load in results.concurrencies
        for number in range(1, results.passes + 1)
        if (arm.id, workload, load, number) not in have
    ]
    if absent:
        yield Caution(
            kind="missing_cells",
            where=tuple(absent),
            text=f"{format_plural(len(absent), 'planned cell has', 'planned cells have')} not been measured.",
            advice="Run the same sweep again: it goes on where it stopped.",
        )


def all_requests_failed(results: Results) -> Iterator[Caution]:
    """Zeros of such a cell are not latencies."""
    where = where_true(results, lambda _, summary, __: all_failed(summary))
    if where:
        yield Caution(
            kind="all_requests_failed",
            where=where,
            text="No request of these cells brought a token; they are left out of every figure.",
            advice="Read the server's log under `servers/` and the errors in `requests.parquet`.",
        )


def some_requests_failed(results: Results) -> Iterator[Caution]:
    """Failed requests shorten the load that the others see."""
    where = where_true(results, lambda _, summary, __: summary.failed > 0 and not all_failed(summary))
    if where:
        yield Caution(
            kind="some_requests_failed",
            where=where,
            text="Some requests failed; the figures are those of the others, which had the engine more to themselves.",
            advice="Read the errors in `requests.parquet`; measure again when none fails.",
        )


def too_long_prompts(results: Results) -> Iterator[Caution]:
    """Prompts beyond the model's context are refused by the server, never cut."""
    where = where_true(results, lambda _, summary, __: summary.too_long > 0)
    if where:
        total = sum(summary.too_long for _, summary, _ in measured(results))
        yield Caution(
            kind="too_long_prompts",
            where=where,
            text=f"{format_plural(total, 'request was', 'requests were')} refused because prompt and output exceed "
            "the context.",
            advice="Raise `max-model-len` in `engine.args`, lower `max_tokens`, or leave these prompts out.",
        )


def ends_only_by_length(results: Results) -> Iterator[Caution]:
    """Nothing ended by itself: where the text would have ended is not known."""
    where = where_true(results, lambda _, summary, __: set(summary.finish_reasons) == {"length"})
    if where:
        yield Caution(
            kind="ends_only_by_length",
            where=where,
            text="Every output was cut by `max_tokens`: equal output lengths here prove nothing, and acceptance late "
            "in long outputs was not seen.",
            advice="Raise `max_tokens` until most outputs end by themselves, or read this as short outputs only.",
        )


def ignored_end(results: Results) -> Iterator[Caution]:
    """`ignore_eos` makes the models go on after the end of their text."""
    names = [name for name in results.workloads if (spec := results.workload_spec(name)) and spec.ignore_eos]
    if names:
        yield Caution(
            kind="ignore_eos",
            where=tuple(names),
            text="`ignore_eos` is on: text after the natural end is odd to predict, so acceptance is misstated.",
            advice="Leave `ignore_eos` away for figures that are meant for production.",
        )


def repeated_prompts(results: Results) -> Iterator[Caution]:
    """A set too small for the load is walked several times."""
    specs = [spec for name in results.workloads if (spec := results.workload_spec(name)) is not None]
    names = [f"{spec.name} ({spec.samples_per_prompt} times)" for spec in specs if spec.samples_per_prompt > 1]
    if names:
        yield Caution(
            kind="repeated_prompts",
            where=tuple(names),
            text="Prompts may be used more than once (distinct seeds): an engine with a prefix cache would skip their "
            "prefill, and intervals do not cover prompts that were not asked.",
            advice="Keep the prefix cache off, or use a larger prompt set.",
        )


def _server_cap(results: Results) -> int | None:
    value = None if results.engine is None else results.engine.args.get("max-num-seqs")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def capped_concurrency(results: Results) -> Iterator[Caution]:
    """The server ran fewer requests at once than the client asked for."""
    cap = _server_cap(results)

    def capped(cell: Measurement, _: Summary, __: Arm) -> bool:
        preempted = cell.counters is not None and bool(cell.counters.preemptions)
        return preempted or (cap is not None and cap < cell.concurrency)

    where = where_true(results, capped)
    if where:
        yield Caution(
            kind="capped_concurrency",
            where=where,
            text="The server could not run the asked concurrency (requests were preempted, or `max-num-seqs` is low): "
            "the rest queued.",
            advice="Raise `max-num-seqs` and the KV cache, or read these loads as the server's own limit.",
        )


def starved_concurrency(results: Results) -> Iterator[Caution]:
    """Little's law: arrival rate x mean time in the system is the concurrency that really was there."""

    def starved(cell: Measurement, summary: Summary, _: Arm) -> bool:
        if summary.e2el is None or summary.window_seconds < STARVED_WINDOW * summary.e2el.mean:
            return False
        return summary.requests / summary.window_seconds * summary.e2el.mean < STARVED * cell.concurrency

    where = where_true(results, starved)
    if where:
        yield Caution(
            kind="starved_concurrency",
            where=where,
            text="Fewer requests were under way than the load says (request rate x mean request time is below 80 % "
            "of it).",
            advice="The client was too slow, or prompts ran out: take a larger prompt set, or a client machine.",
        )


def cold_first_requests(results: Results) -> Iterator[Caution]:
    """A mean far above the median: something ran once, inside the window."""
    where = where_true(
        results, lambda _, summary, __: summary.ttft is not None and summary.ttft.mean > COLD_RATIO * summary.ttft.p50
    )
    if where:
        yield Caution(
            kind="cold_first_requests",
            where=where,
            text="Mean time to first token is more than twice its median: some requests waited for a compilation, a "
            "graph capture or a queue inside the window.",
            advice="Raise `cell.warmup_seconds`; look at the first requests in `requests.parquet`.",
        )


def measuring_notes(results: Results) -> Iterator[Caution]:
    """What the measuring code itself wrote down, one caution for each text."""
    notes: dict[str, list[str]] = {}
    for cell in results.measurements:
        for note in cell.notes:
            notes.setdefault(note, []).append(place(results, cell))
    for note, places in notes.items():
        yield Caution(kind="noted", where=tuple(places), text=note, advice="Noted while these cells were measured.")
