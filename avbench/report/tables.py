"""Tables for the terminal. They read at 80 columns and without colour: signs carry the meaning."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from avbench.analysis.advice import Advice, Pick, Regret, advise
from avbench.analysis.compare import Gain
from avbench.analysis.results import Results
from avbench.report.rows import BEST, EQUAL, Row, table_rows, telling_differences
from avbench.report.titles import titled
from avbench.report.words import (
    behind_words,
    environment_words,
    extension_words,
    gain_words,
    refit_words,
    told_words,
)
from avbench.spec.speculative import config_flag
from avbench.units import format_rate

if TYPE_CHECKING:
    from rich.console import RenderableType

_COLUMNS = (
    "C",
    "",
    "arm",
    "steady\ntok/s",
    "95 %",
    "tok/s\n/user",
    "TPOT\nms",
    "TTFT\nms",
    "accept.\nlength",
    "verif./\nr.-step",
    "pass\nspread",
)


def _columns(results: Results) -> Iterator[str]:
    yield from (f"{name}\n(virtual)" if results.emulated and "tok/s" in name else name for name in _COLUMNS)


def render_tables(results: Results) -> Group:
    """One table a workload, with what its signs and columns mean and which differences it cannot tell."""
    if not results.measurements:
        return Group(_paragraph("Nothing has been measured yet."))
    advice = advise(results)
    tables = [_workload_table(results, advice, workload) for workload in results.workloads]
    spaced = [part for table in tables for part in (table, Text(""))]
    return Group(*spaced, *(_paragraph(line) for line in _legend(results)))


def _workload_table(results: Results, advice: Advice, workload: str) -> RenderableType:
    title = Text(titled(workload, results.costs), style="bold")
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for name in _columns(results):
        is_text, wraps = name in ("", "arm"), name == "arm"  # only a long label may take a second line
        table.add_column(name, justify="left" if is_text else "right", no_wrap=not wraps, header_style="dim")
    load = None
    for row in table_rows(results, advice, workload):
        if load is not None and row.point.concurrency != load:
            table.add_section()
        table.add_row(*_cells(row, first=row.point.concurrency != load), style="bold" if row.mark == BEST else "")
        load = row.point.concurrency
    if load is None:
        table.add_row("", "", "no cell was measured")
    return table


def _cells(row: Row, *, first: bool) -> Iterator[str]:
    yield str(row.point.concurrency) if first else ""
    yield row.mark
    yield row.label
    yield from (row.throughput, row.half_width, row.interactivity, row.tpot, row.ttft)
    yield from (row.acceptance, row.verified, row.spread)


def _legend(results: Results) -> Iterator[str]:
    yield f"{BEST} highest steady throughput of its load   {EQUAL} not told from it"
    yield "95 %: interval of the throughput, from value / (1 + x) to value * (1 + x)"
    yield "pass spread: (largest - smallest pass) / mean"
    yield "verif./r.-step: verified drafts per request-step"
    yield told_words(telling_differences(results))
    yield from extension_words(results)
    yield from refit_words(results)


def render_advice(advice: Advice) -> Group:
    """The pick for each load and the arm with the least regret. Print with `crop=False`: flags stay on one line."""
    if not advice.picks:
        return Group(_paragraph("No arm can be recommended: no load has an arm that was measured and is comparable."))
    parts: list[RenderableType] = [_pick_table(advice)]
    least = advice.least_regret
    if least is not None:
        title = titled("Least regret over all loads", advice.costs)
        parts += [Text(""), Text(f"{title}: {advice.label(least.arm)}", style="bold")]
        parts.append(_paragraph(behind_words(advice, least)))
    parts += _flags(advice)
    parts += [_paragraph(line) for line in _left_out(advice)]
    return Group(*parts)


def _pick_table(advice: Advice) -> Table:
    title = Text(titled("Best arm at each load", advice.costs), style="bold")
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("workload", "C", "run", "steady", "why"):
        table.add_column(name, justify="right" if name in ("C", "steady") else "left", no_wrap=name != "why")
    for pick in advice.picks:
        why = (
            pick.reason if pick.gain is None or pick.runner_up is None else f"{gain_words(advice, pick)}: {pick.reason}"
        )
        table.add_row(
            pick.workload,
            str(pick.concurrency),
            Text(advice.label(pick.arm), style="bold"),
            format_rate(pick.throughput.value),
            why,
        )
    return table


def _flags(advice: Advice) -> list[RenderableType]:
    entries: dict[str, str] = {}
    choices: list[Pick | Regret] = [*advice.picks, *advice.regrets[:1]]
    for choice in choices:
        if choice.arm.kind == "none":
            entries[advice.label(choice.arm)] = "(no --speculative-config)"
        elif choice.config is None:
            entries[advice.label(choice.arm)] = "(the results do not say which pair this is)"
        else:
            entries[advice.label(choice.arm)] = config_flag(choice.config)
    needed = {advice.label(choice.arm): choice.environment for choice in choices}
    remarks = [line for label, environment in needed.items() for line in environment_words(label, environment)]
    flags = [_one_line(f"{label}: {flag}") for label, flag in entries.items()]
    return [Text(""), *flags, *(_paragraph(line) for line in remarks)]


def _one_line(text: str) -> Text:
    """Neither wrapped nor cut: a flag that is broken over lines cannot be copied from a terminal."""
    return Text(text, no_wrap=True, overflow="ignore")


def _left_out(advice: Advice) -> Iterator[str]:
    for arm, absent in advice.incomplete.items():
        yield f"{advice.label(arm)} has no figure at {absent} of {len(advice.picks)} loads: it has no regret."
    for point, reason in advice.unranked.items():
        label = advice.labels.get(point.arm, point.arm)
        yield f"not ranked: {label} · {point.workload} · C={point.concurrency}: {reason}"


def _paragraph(text: str) -> Table:
    """Text that wraps at words whatever the console's own setting."""
    grid = Table.grid(padding=(0, 0))
    grid.add_column(overflow="fold")
    grid.add_row(Text(text, style="dim"))
    return grid


def advice_json(advice: Advice) -> dict[str, Any]:
    """The same for programs. Arms by id; gains as ratios; `speculative_config` null means: leave the flag away;
    `environment` is what the embedded engine needs beside it; `costs` names the table of the emulated clock."""
    return {
        "clock": "real" if advice.costs is None else "emulated",
        "costs": advice.costs,
        "picks": [_pick_json(pick) for pick in advice.picks],
        "least_regret": None if advice.least_regret is None else _regret_json(advice.least_regret),
        "regrets": [_regret_json(regret) for regret in advice.regrets],
        "incomplete": {arm.id: absent for arm, absent in advice.incomplete.items()},
        "not_ranked": [{**dataclasses.asdict(point), "reason": reason} for point, reason in advice.unranked.items()],
    }


def _pick_json(pick: Pick) -> dict[str, Any]:
    return {
        "workload": pick.workload,
        "concurrency": pick.concurrency,
        "arm": pick.arm.id,
        "throughput": dataclasses.asdict(pick.throughput),
        "fastest": pick.fastest.id,
        "equals": [arm.id for arm in pick.equals],
        "runner_up": None if pick.runner_up is None else pick.runner_up.id,
        "gain": None if pick.gain is None else _gain_json(pick.gain),
        "difference_shown": pick.shown,
        "reason": pick.reason,
        "speculative_config": pick.config,
        "environment": dict(pick.environment),
    }


def _regret_json(regret: Regret) -> dict[str, Any]:
    return {
        "arm": regret.arm.id,
        "worst_shortfall": regret.worst,
        "workload": None if regret.where is None else regret.where.workload,
        "concurrency": None if regret.where is None else regret.where.concurrency,
        "behind": None if regret.behind is None else regret.behind.id,
        "gain": None if regret.gain is None else _gain_json(regret.gain),
        "speculative_config": regret.config,
        "environment": dict(regret.environment),
    }


def _gain_json(gain: Gain) -> dict[str, Any]:
    return {
        "over": gain.over.arm,
        "ratio": gain.ratio,
        "low": gain.low,
        "high": gain.high,
        "passes": gain.passes,
        "comparisons": gain.comparisons,
        "verdict": gain.verdict,
    }
