"""`python -m avbench.adaptive estimate|budget|cost|manager IN.npz OUT.npz`: replay recorded steps."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from avbench.adaptive.recording import read_recording, write_recording
from avbench.adaptive.replay_fit import replay_estimate
from avbench.adaptive.replay_steps import replay_budget, replay_cost, replay_manager
from avbench.errors import AvbenchError

REPLAYS = {
    "estimate": replay_estimate,
    "budget": replay_budget,
    "cost": replay_cost,
    "manager": replay_manager,
}


def main(arguments: list[str] | None = None) -> int:
    """Replay one file into another; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        with np.errstate(all="ignore"):  # recordings may hold infinities and NaN; they take vLLM's course
            recording = read_recording(options.input)
            write_recording(options.output, REPLAYS[options.command](recording))
    except AvbenchError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"\nhint: {error.hint}\n" if error.hint else ""))
        return 2
    sys.stderr.writelines(f"note: {note}\n" for note in recording.notes)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m avbench.adaptive", description="Replay recorded steps.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, replay in REPLAYS.items():
        text = replay.__doc__ or ""
        command = commands.add_parser(
            name,
            help=text.split("\n", 1)[0].split(". ", 1)[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument("input", type=Path, metavar="IN.npz")
        command.add_argument("output", type=Path, metavar="OUT.npz")
    return parser


if __name__ == "__main__":
    sys.exit(main())
