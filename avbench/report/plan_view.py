"""A plan for people: what will run, with which commands, for how long, and what it will not be able to say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from avbench.plan import Plan, ServerGroup, estimate_seconds, plan_warnings, prompt_capacities
from avbench.report.titles import titled
from avbench.units import MISSING, format_count, format_duration, format_plural

_BREAK = " \\"
_INDENT = "    "
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def render_plan(plan: Plan, commands: Mapping[str, str]) -> RenderableType:
    """The whole plan. `commands`: for each arm's id the command line that starts its server, ready for a shell.

    Print it with `crop=False`: an argument may be wider than the terminal, and a cropped command is no command.
    """
    if not plan.measured_cells:
        return Group(*_headline(plan), Text("Nothing is left to measure."))
    return Group(
        *_headline(plan),
        _servers(plan),
        Text(),
        _prompts(plan),
        Text(),
        *_commands(plan, commands),
        *_warnings(plan),
        _time(plan),
    )


def _headline(plan: Plan) -> Iterator[RenderableType]:
    spec = plan.spec
    yield Text.assemble((titled(spec.name, _costs(plan)), "bold"), f": {spec.pair.name}")
    yield Text(
        f"{format_plural(len(plan.measured_cells), 'cell')} on {format_plural(len(plan.groups), 'server start')}; "
        f"window {format_duration(spec.cell.seconds)}, warm-up at least {format_duration(spec.cell.warmup_seconds)}, "
        f"{format_plural(spec.passes, 'pass', 'passes')}, seed {spec.seed}"
    )
    yield from (Text(line) for line in _modes(plan))
    yield Text()


def _modes(plan: Plan) -> Iterator[str]:
    """What is not as usual about the whole sweep."""
    if plan.spec.emulated:
        yield f"emulated clock: real models in virtual time, every step lasts what {_costs(plan)} says"
    if plan.spec.labels:
        yield "labels: every draft is written beside the trace, with its features and verdict"
    if plan.spec.observe:
        yield "observe: adaptive arms compute everything and trim nothing; they will not be ranked"


def _costs(plan: Plan) -> str | None:
    return None if plan.costs is None else plan.costs.name


def _table(title: str, *columns: tuple[str, bool]) -> Table:
    """Left title; `True` marks a column of numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, is_number in columns:
        justify: JustifyMethod = "right" if is_number else "left"
        table.add_column(name, justify=justify, no_wrap=is_number, overflow="fold", header_style="dim")
    return table


def _servers(plan: Plan) -> Table:
    columns = ("server", False), ("arm", False), ("cells", True), ("loads, in order", False), ("about", True)
    table = _table(titled("Server starts, in order", _costs(plan)), *columns)
    for group, time in zip(plan.groups, estimate_seconds(plan).groups, strict=True):
        measured = sum(not cell.replayed for cell in group.cells)
        table.add_row(group.id, group.arm.label, format_count(measured), _loads(group), format_duration(time.total))
    return table


def _loads(group: ServerGroup) -> str:
    """`code 1, 8, 64; prose 1, 8, 64`: workload by workload; a load in brackets is replayed, not measured."""
    parts: dict[str, list[str]] = {}
    for cell in group.cells:
        load = f"({cell.concurrency})" if cell.replayed else str(cell.concurrency)
        parts.setdefault(cell.workload.name, []).append(load)
    return "; ".join(f"{name} {', '.join(loads)}" for name, loads in parts.items())


def _prompts(plan: Plan) -> Table:
    columns = ("workload", False), ("max_tokens", True), ("T", True), ("top_p", True), ("warm-up", True)
    table = _table(
        titled("Prompts", _costs(plan)), *columns, ("measured", True), ("x samples", True), ("needed, about", True)
    )
    workloads = {workload.name: workload for workload in plan.spec.workloads}
    for capacity in prompt_capacities(plan):
        workload = workloads[capacity.workload]
        table.add_row(
            capacity.workload,
            format_count(workload.max_tokens),
            f"{workload.sampling.temperature:g}",
            f"{workload.sampling.top_p:g}",
            format_count(capacity.warmup),
            format_count(capacity.measured),
            format_count(capacity.samples),
            f"{format_count(capacity.needed)} at C={capacity.needed_at}",
        )
    return table


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """A command that can be copied: broken between arguments with a backslash, never by the terminal's width."""

    command: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One line of text for each line of the command, left whole even where it is wider than the terminal."""
        for line in broken_command(self.command, options.max_width - len(_INDENT)):
            yield Text(_INDENT + line, no_wrap=True, overflow="ignore")


def broken_command(command: str, width: int) -> list[str]:
    """Lines of at most `width` characters that a shell reads as one command; a longer argument stands alone."""
    lines: list[str] = []
    for word in map(_quoted, shlex.split(command)):
        if lines and len(lines[-1]) + 1 + len(word) + len(_BREAK) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}" if lines else word)
    return [line + _BREAK for line in lines[:-1]] + lines[-1:]


def _quoted(word: str) -> str:
    """A variable's name stays outside the quotes: `'A=b c' command` would be no assignment."""
    match = _ASSIGNMENT.match(word)
    return f"{match.group()}{shlex.quote(word[match.end() :])}" if match else shlex.quote(word)


def _commands(plan: Plan, commands: Mapping[str, str]) -> Iterator[RenderableType]:
    yield Text("Commands", style="bold")
    for arm in dict.fromkeys(group.arm for group in plan.groups):
        yield Text(arm.id)
        yield CommandLine(command=commands[arm.id]) if arm.id in commands else Text(_INDENT + MISSING)
    yield Text()


def _warnings(plan: Plan) -> Iterator[RenderableType]:
    for warning in plan_warnings(plan):
        yield Text.assemble(("warning: ", "bold"), warning.text)
        yield Padding(Text(f"hint: {warning.advice}"), (0, 0, 0, len(_INDENT)))
    if plan_warnings(plan):
        yield Text()


def _time(plan: Plan) -> Text:
    total = format_duration(estimate_seconds(plan).total)
    what = "for the reference engine on an otherwise idle machine"
    if plan.spec.emulated:
        what = "of one core's time: the models compute every step of the virtual windows, one engine on each core"
    return Text.assemble((f"Time: about {total}", "bold"), f", an estimate {what}")
