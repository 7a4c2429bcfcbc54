"""The engine in virtual time: `python -m avbench.reference.emulate --job FILE FLAGS`.

Real models, real sampling, the same engine core; but time advances by the cost table in AVBENCH_STEP_COSTS only, there
is no HTTP, and the clients live in this process. What happens goes line by line to `emulation.jsonl` beside the job
file: `ready`, `phase`, and for each cell its requests, as soon as it has ended.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TextIO

import torch

from avbench import __version__
from avbench.errors import AvbenchError, UsageError
from avbench.reference.clock import VirtualClock
from avbench.reference.core import EngineCore
from avbench.reference.core_process import build, step_costs
from avbench.reference.emulate_clients import ClosedLoop, Phase
from avbench.reference.emulate_counters import Counters
from avbench.reference.emulate_job import CellJob, Job, read_job
from avbench.reference.emulate_prompts import PromptDesk
from avbench.reference.options import EngineOptions, parse_options
from avbench.reference.tokens import ModelTokenizer
from avbench.reference.trace import Trace

EVENTS = "emulation.jsonl"


def main(argv: Sequence[str]) -> int:
    """Run all cells of the job. Exit code: 0, 2 for bad options, job or table."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    torch.set_flush_denormal(True)
    try:
        arguments, flags = _parser().parse_known_args(argv)
        job, options = read_job(arguments.job), parse_options(flags)
        tokenizer = ModelTokenizer(options.model)
        clock = _clock(options)
        trace = Trace(options.trace_dir, clock.now)
        core, ready = build(options, trace, clock)
    except AvbenchError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return error.exit_code
    gc.collect()
    gc.freeze()  # weights and modules are not looked through again
    with (arguments.job.parent / EVENTS).open("w", encoding="utf-8") as file:
        emulation = Emulation(core, clock, Events(file))
        emulation.run(job, tokenizer, context=ready.max_model_len)
    return 0


class Emulation:
    """One engine core and its cells, one after the other; what an estimator learned stays, as in a server."""

    def __init__(self, core: EngineCore, clock: VirtualClock, events: Events) -> None:
        self._core, self._clock, self._events = core, clock, events
        self._counters, self._numbers = Counters(), count()

    def run(self, job: Job, tokenizer: ModelTokenizer, *, context: int) -> None:
        """Run every cell and write it down."""
        self._events.write("ready", version=__version__)
        for cell in job.cells:
            desk = PromptDesk(cell, job.prompts[cell.prompts], tokenizer, context=context)
            self._events.write("cell", cell=cell.id, **self.cell(cell, desk))

    def cell(self, cell: CellJob, desk: PromptDesk) -> dict[str, object]:
        """Run one cell; what `ClosedLoop.result` says."""

        def on_phase(phase: Phase) -> None:
            self._events.write("phase", cell=cell.id, phase=phase)

        loop = ClosedLoop(cell, self._core, self._clock, self._counters, desk.submit, self._numbers, on_phase)
        loop.run()
        self._core.flush()
        return loop.result()


class Events:
    """JSON lines, each on the disk's way at once: whoever reads along never sees half a line end with a newline."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, event: str, **fields: object) -> None:
        self._file.write(json.dumps({"event": event, **fields}) + "\n")
        self._file.flush()


def _clock(options: EngineOptions) -> VirtualClock:
    costs = step_costs(options)
    if costs is None:
        hint = "set AVBENCH_STEP_COSTS to a cost table, such as `sweeps/costs/dsv4-flash-tp4-b300.json`."
        raise UsageError("AVBENCH_STEP_COSTS is not set: nothing says how long a step takes", hint=hint)
    return VirtualClock(costs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m avbench.reference.emulate",
        description="The engine in virtual time. All other flags are those of `python -m avbench.reference`.",
        allow_abbrev=False,
    )
    parser.add_argument("--job", type=Path, required=True, help="what to run; the results go beside it")
    return parser


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main(sys.argv[1:]))
