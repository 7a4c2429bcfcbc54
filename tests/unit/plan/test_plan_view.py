"""What `avbench plan` prints."""

from __future__ import annotations

import dataclasses
import io
import shlex
import subprocess
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from avbench.plan import Plan, remaining_plan
from avbench.report.plan_view import broken_command, render_plan

MakePlan = Callable[..., Plan]
CONFIG = '{"method":"draft_model","model":"/a folder/draft","num_speculative_tokens":7}'
COMMAND = shlex.join(["python", "-m", "avbench.reference", "--model", "/m", "--speculative-config", CONFIG])


def _as_the_shell_reads(command: str) -> list[str]:
    script = f"printf '%s\\0' {command}"
    output = subprocess.run(["sh", "-c", script], capture_output=True, check=True, text=True).stdout
    return output.split("\0")[:-1]


def _printed(plan: Plan, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(render_plan(plan, {arm.id: COMMAND for arm in plan.spec.arms}), crop=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_says_what_will_run(width: int, plan: Plan) -> None:
    text = _printed(plan, width)
    assert "toy: toy" in text
    assert "48 cells on 8 server starts; window 3 s, warm-up at least 1 s, 2 passes, seed 0" in " ".join(text.split())
    assert "words 1, 8, 4; greedy 1, 8, 4" in text
    assert "greedy 4, 8, 1; words 4, 8, 1" in text
    assert "Time: about 3 min 59 s, an estimate" in text
    assert "warning: workloads `words`, `greedy`" in text
    assert "hint: keep prefix caching off" in text
    too_wide = [line for line in text.splitlines() if len(line.rstrip()) > width]
    assert all("speculative" in line or CONFIG in line for line in too_wide)


def test_a_real_plan_does_not_say_emulated(plan: Plan) -> None:
    assert "emulated" not in _printed(plan, 80)


def test_an_emulated_plan_says_so_over_every_table(make_plan: MakePlan) -> None:
    plan = make_plan(("passes: 2", "engine: {clock: emulated, costs: costs.json}\npasses: 2"))
    text = _printed(plan, 100)
    assert "toy (emulated: a table): toy" in text
    assert "emulated clock: real models in virtual time, every step lasts what a table says" in text
    assert "Server starts, in order (emulated: a table)" in text
    assert "Prompts (emulated: a table)" in text
    assert "an estimate of one core's time: the models compute every step of the virtual" in " ".join(text.split())


def test_what_is_watched_is_said(make_plan: MakePlan) -> None:
    text = _printed(make_plan(("passes: 2", "labels: true\nobserve: true\npasses: 2")), 100)
    assert "labels: every draft is written beside the trace, with its features and verdict" in text
    assert "observe: adaptive arms compute everything and trim nothing; they will not be ranked" in text
    assert "labels" not in _printed(make_plan(), 100)


def test_long_names_are_broken_and_never_cut(make_plan: MakePlan) -> None:
    nested = ("{k: 7, refit_interval: 25}", "{k: 7, refit_interval: 1000000, depth: nested}")
    text = _printed(make_plan(nested), 60)
    assert "…" not in text
    assert "adaptive-7-" in text


def test_commands_can_be_copied(plan: Plan) -> None:
    lines = _printed(plan, 60).splitlines()
    start = lines.index("adaptive-7-refit25") + 1
    command = "\n".join(lines[start : lines.index("", start)])
    assert _as_the_shell_reads(command) == shlex.split(COMMAND)


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(st.text(st.characters(codec="ascii", exclude_characters="\x00\r"), max_size=30), min_size=1),
    width=st.integers(10, 80),
)
def test_broken_lines_are_the_same_command(words: list[str], width: int) -> None:
    lines = broken_command(shlex.join(words), width)
    assert _as_the_shell_reads("\n".join(lines)) == words
    assert all(len(line) <= width or len(shlex.split(line.removesuffix(" \\"))) == 1 for line in lines)


def test_variables_stay_assignments() -> None:
    command = "\n".join(broken_command("A_FOLDER='/a b/c' EMPTY= sh -c 'printf %s \"$A_FOLDER\"'", 20))
    output = subprocess.run(["sh", "-c", command], capture_output=True, check=True, text=True).stdout
    assert output == "/a b/c"


def test_what_is_left_shows_replayed_loads_in_brackets(plan: Plan) -> None:
    adaptive = [cell for cell in plan.cells if cell.arm.kind == "adaptive" and cell.pass_number == 1]
    done = {cell.identity for cell in plan.cells} - {adaptive[2].identity}
    text = _printed(remaining_plan(plan, done), 100)
    assert "1 cell on 1 server start" in text
    assert "words (1), (8), 4" in text


def test_nothing_left(plan: Plan) -> None:
    text = _printed(remaining_plan(plan, {cell.identity for cell in plan.cells}), 80)
    assert "Nothing is left to measure." in text
    assert "Commands" not in text


def test_names_with_markup_are_printed_as_they_are(plan: Plan) -> None:
    pair = dataclasses.replace(plan.spec.pair, name="[red]pair[/red]")
    renamed = dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, pair=pair))
    assert "[red]pair[/red]" in _printed(renamed, 80)
