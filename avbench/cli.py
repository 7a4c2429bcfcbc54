"""The commands: parse, call, print. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from avbench import __version__
from avbench.errors import AvbenchError, CellsFailedError, NotComparableError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from avbench.analysis.results import Results
    from avbench.plan import Plan
    from avbench.plan.resume import Choice
    from avbench.spec.sweep import SweepSpec

REPORT = "report.html"

app = typer.Typer(
    name="avbench",
    help="Which way to speculate serves your model best: plain decoding, a fixed length, or adaptive verification.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

SweepFile = Annotated[Path, typer.Argument(metavar="SWEEP.yaml", help="The sweep file.", show_default=False)]
ResultsFolder = Annotated[
    Path, typer.Argument(metavar="RESULTS", help="A results folder, such as results/quickstart.", show_default=False)
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="KEY=VALUE",
        help="Only these cells: arm=fixed-3, workload=code, concurrency=8, pass=1. May be given several times.",
    ),
]
ResultsOption = Annotated[
    Path | None, typer.Option("--results", metavar="DIR", help="Results folder. [default: results/<sweep name>]")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"avbench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def sweep(
    file: SweepFile,
    only: Only = None,
    results: ResultsOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what is left to do; start nothing.")] = False,
) -> None:
    """Measure a sweep. Goes on where an earlier run stopped; Ctrl-C keeps what was measured."""
    from rich.console import Console

    from avbench.progress import Progress
    from avbench.record.store import ResultStore
    from avbench.runner.sweep import left_to_measure, run_sweep

    plan, wanted = _expand(file, only)
    store = ResultStore(results or _default_results(plan.spec))
    left = left_to_measure(plan, store, wanted)
    if dry_run:
        _print_plan(left, store.root)
        return
    talk = Console(stderr=True)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with Progress(left, talk) as progress:
            outcome = run_sweep(plan, store, progress, wanted)
    except KeyboardInterrupt:
        hint = "what was measured is kept; the same command goes on from there."
        raise SweepInterruptedError("interrupted; the server is down", hint=hint) from None
    if not left.measured_cells:
        talk.print("Nothing is left to measure.")
    _conclude(store.root, fresh=bool(outcome.done or outcome.failed))
    if outcome.failed:
        raise CellsFailedError(
            f"{len(outcome.failed)} of {len(left.measured_cells)} cells failed: {_some(outcome.failed)}",
            hint="the reasons are in the records; run the same command again to try only these cells again.",
        )


@app.command()
def plan(file: SweepFile, only: Only = None, results: ResultsOption = None) -> None:
    """Print arms, cells, server starts, commands, doubts and the expected time. Starts nothing."""
    from avbench.plan import remaining_plan

    whole, wanted = _expand(file, only)
    _print_plan(remaining_plan(whole, (), wanted), results or _default_results(whole.spec))


@app.command()
def schema() -> None:
    """Print the JSON schema of sweep files, for editors."""
    import json

    from avbench.spec.schema import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


@app.command()
def show(results: ResultsFolder) -> None:
    """Print the tables of a results folder."""
    from avbench.analysis.results import read_results

    _print_tables(read_results(results))


@app.command()
def report(
    results: ResultsFolder,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="[default: RESULTS/report.html]")
    ] = None,
) -> None:
    """Write one self-contained HTML page about a results folder."""
    from avbench.analysis.results import read_results
    from avbench.report.page import write_report

    typer.echo(write_report(read_results(results), out or results / REPORT))


@app.command()
def pick(
    results: ResultsFolder, as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False
) -> None:
    """Print the best arm at each load and the one with the least regret, ready for --speculative-config."""
    import json

    from avbench.analysis.advice import advise
    from avbench.analysis.results import read_results
    from avbench.report.tables import advice_json, render_advice

    advice = advise(read_results(results))
    if as_json:
        typer.echo(json.dumps(advice_json(advice), indent=2))
    else:
        _print(render_advice(advice))
    if not advice.picks:
        raise NotComparableError(
            f"{results}: no arm can be recommended", hint="see `avbench show` for what failed or cannot be compared."
        )


@app.command()
def study(
    labels: Annotated[
        list[Path],
        typer.Argument(metavar="LABELS...", help="Parquet files, folders of them, server or results folders."),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Also write one self-contained HTML page.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write every figure, for programs.")
    ] = None,
) -> None:
    """Study labelled drafts: which feature, which fit, how it compares with a confidence head."""
    from rich.console import Console

    from avbench.analysis.study.load import load_labels
    from avbench.analysis.study.study import make_study
    from avbench.report.study_tables import render_study

    talk = Console(stderr=True, highlight=False)
    found = make_study(load_labels(labels), say=lambda text: talk.print(f"{text} ...", style="dim"))
    _print(render_study(found))
    if out is not None:
        from avbench.report.study_page import write_study

        typer.echo(f"page:    {write_study(found, out)}", err=True)
    if json_file is not None:
        from avbench.report.study_json import write_json

        typer.echo(f"figures: {write_json(found, json_file)}", err=True)


class SweepInterruptedError(AvbenchError):
    """Ctrl-C or SIGTERM; the server is down."""

    exit_code = 130


def main() -> None:
    """The entry point: every expected failure becomes `error: ...`, `hint: ...` and its exit code here."""
    try:
        app(prog_name="avbench")
    except AvbenchError as error:
        typer.echo(f"error: {error.message}", err=True)
        if error.hint:
            typer.echo(f"\nhint: {error.hint}", err=True)
        sys.exit(error.exit_code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _expand(file: Path, only: list[str] | None) -> tuple[Plan, Choice | None]:
    from avbench.plan import expand_plan, parse_only
    from avbench.spec.reader import read_sweep

    whole = expand_plan(read_sweep(file))
    return whole, parse_only(only or (), whole)


def _default_results(spec: SweepSpec) -> Path:
    return Path("results") / spec.name


def _print_plan(plan: Plan, root: Path) -> None:
    """With the commands as they are run, but for the port and the served name, which each start makes up anew."""
    from avbench.engine.command import engine_command
    from avbench.record.store import ResultStore
    from avbench.report.plan_view import render_plan

    folder = ResultStore(root).server_folder
    commands = {
        group.arm.id: engine_command(plan.spec, group.arm, port=8000, trace_dir=folder(group.id)).shell()
        for group in reversed(plan.groups)  # the first start of each arm is shown
    }
    _print(render_plan(plan, commands))


def _conclude(root: Path, *, fresh: bool) -> None:
    """Tables, recommendation and report after a sweep; the report is not written anew if nothing was measured."""
    from avbench.analysis.advice import advise
    from avbench.analysis.results import read_results
    from avbench.report.tables import render_advice

    found = read_results(root)
    if not any(measurement.status == "done" for measurement in found.measurements):
        return
    _print_tables(found)
    _print(render_advice(advise(found)))
    path = root / REPORT
    if fresh or not path.exists():
        from avbench.report.page import write_report

        write_report(found, path)
    typer.echo(f"records: {root}\nreport:  {path}", err=True)


def _print_tables(results: Results) -> None:
    from avbench.report.tables import render_tables

    _print(render_tables(results))


def _print(renderable: RenderableType) -> None:
    from rich.console import Console

    Console(highlight=False).print(renderable, crop=False)


def _some(names: list[str], most: int = 3) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
