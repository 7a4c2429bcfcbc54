"""The engine core as a process of its own: `python -m avbench.reference.core_process --fd N FLAGS`."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence

import torch

from avbench import __version__
from avbench.adaptive.budget import max_logits_rows
from avbench.adaptive.cost_file import read_cost_table
from avbench.adaptive.costs import CostTables
from avbench.adaptive.depth import DepthCosts
from avbench.adaptive.verification import AdaptiveVerification
from avbench.errors import AvbenchError, UsageError
from avbench.reference.checkpoint import read_shape
from avbench.reference.clock import Clock, PacedClock, RealClock
from avbench.reference.core import EngineCore
from avbench.reference.corelink import CoreLink
from avbench.reference.costs import profile
from avbench.reference.drafter import Drafter
from avbench.reference.label_parts import LabelParts
from avbench.reference.labels import Labels
from avbench.reference.llama import Llama
from avbench.reference.load_drafter import load_drafter
from avbench.reference.messages import Abort, Ready, Shutdown, Submit
from avbench.reference.nested import NestedAdaptive
from avbench.reference.options import EngineOptions, Source, SpeculativeConfig, parse_options
from avbench.reference.sources import chosen_source, make_source
from avbench.reference.speculation import Adaptive, PlainDecoding, Speculation, Speculator
from avbench.reference.step_costs import KINDS, StepCosts
from avbench.reference.trace import Trace

QUIET_SECONDS = 1.0  # without work: labelled drafts are written then, and not in every pause between two requests


def main(argv: Sequence[str]) -> int:
    """Load, say `Ready`, serve until told to stop or left alone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a signal to the whole group is the HTTP process's to answer
        signal.signal(number, signal.SIG_IGN)
    link = CoreLink.from_fd(int(argv[1]))
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    torch.set_flush_denormal(True)
    try:
        options = parse_options(argv[2:])
        costs = step_costs(options)
        clock = RealClock() if costs is None else PacedClock(costs)
        trace = Trace(options.trace_dir, clock.now)
        core, ready = build(options, trace, clock)
    except AvbenchError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return error.exit_code
    gc.collect()
    gc.freeze()  # weights and modules are not looked through again
    try:
        link.send(ready)
        serve(core, link, trace)
    except EOFError:
        pass  # the HTTP process is gone
    finally:
        core.flush()
        if isinstance(clock, PacedClock):
            _report_pace(clock, trace)
    return 0


def _report_pace(clock: PacedClock, trace: Trace) -> None:
    pace = clock.report()
    trace.event("pace", **pace)
    sys.stderr.write(f"pace: {pace['overran']} of {pace['steps']} steps took longer than the cost table says, by ")
    sys.stderr.write(f"{pace['behind']} s in all\n")


def serve(core: EngineCore, link: CoreLink, trace: Trace) -> None:
    """The loop: take what has arrived, step if there is work, else wait."""
    while True:
        if waited := core.idle:
            trace.flush()  # whoever waits for the answer may read the trace next
        messages = link.receive_all(block=waited, seconds=QUIET_SECONDS if core.unwritten else None)
        if waited and not messages:
            core.flush()
        for message in messages:
            match message:
                case Submit():
                    core.add(message)
                case Abort():
                    core.abort(message.request_id)
                case Shutdown():
                    return
        if not core.idle:
            core.step(link.send)
        elif not waited:
            link.send(core.standing())


def step_costs(options: EngineOptions) -> StepCosts | None:
    """The cost table that decides how long steps take; None if this machine does. Raises UsageError for a bad one."""
    if options.step_costs is None:
        return None
    spec, slots = options.speculative, options.max_num_seqs
    k = spec.num_speculative_tokens if spec else 0
    return StepCosts(
        read_cost_table(options.step_costs),
        spec.method if spec else None,
        k=k,
        requests=slots,
        tokens=slots * (_context(options) + k),
    )


def build(options: EngineOptions, trace: Trace, clock: Clock | None = None) -> tuple[EngineCore, Ready]:
    """Load the models, profile if drafts are to be trimmed and no table says what that costs, put the engine
    together."""
    clock = RealClock() if clock is None else clock
    dtype = getattr(torch, options.dtype)
    slots = options.max_num_seqs
    spec = options.speculative
    length = _context(options)
    target = Llama(options.model, slots=slots, length=length, dtype=dtype)
    drafter = _drafter(spec, target, slots, length) if spec else None
    source = chosen_source(options, drafter)
    trace.event(
        "start",
        version=__version__,
        k=spec.num_speculative_tokens if spec else None,
        refit_interval=options.refit_interval,
        vocabulary=target.shape.vocabulary,
        source=source,
        observe=options.observe,
        depth=options.depth if source else None,
        clock="emulated" if clock.emulated else "real",
        step_costs=clock.costs.name if clock.costs else None,
    )
    speculation: Speculator = PlainDecoding(slots=slots)
    if spec is not None and drafter is not None:
        speculation = _speculation(options, spec, target, drafter, source, length, trace, clock)
    core = EngineCore(target, speculation, trace, slots=slots, length=length, seed=options.seed, clock=clock)
    eos = target.shape.eos_token_ids
    return core, Ready(vocabulary=target.shape.vocabulary, max_model_len=length, eos_token_id=eos[0] if eos else -1)


def _context(options: EngineOptions) -> int:
    most = read_shape(options.model).max_position
    if options.max_model_len is not None and options.max_model_len > most:
        raise UsageError(
            f"--max-model-len is {options.max_model_len}, but `{options.model}` was made for {most} positions",
            hint=f"give at most {most}",
        )
    return options.max_model_len or most


def _drafter(spec: SpeculativeConfig, target: Llama, slots: int, length: int) -> Drafter:
    k = spec.num_speculative_tokens
    if length <= k + 1:
        raise UsageError(
            f"a context of {length} tokens has no room for {k} drafts after a prompt",
            hint=f"give --max-model-len {k + 2} or more, or fewer num_speculative_tokens",
        )
    return load_drafter(spec, target, slots=slots, length=length)


def _speculation(
    options: EngineOptions,
    spec: SpeculativeConfig,
    target: Llama,
    drafter: Drafter,
    source: Source | None,
    length: int,
    trace: Trace,
    clock: Clock,
) -> Speculation:
    adaptive = None
    if source is not None:
        costs = _costs(options, spec, target, drafter, length, trace, clock)
        adaptive = _adaptive(options, target, source, costs, trace, k=drafter.k)
    labels = _labels(options, spec, drafter, source, clock)
    return Speculation(drafter, adaptive, slots=options.max_num_seqs, labels=labels)


def _labels(
    options: EngineOptions, spec: SpeculativeConfig, drafter: Drafter, source: Source | None, clock: Clock
) -> Labels | None:
    if not options.labels or options.trace_dir is None:
        return None
    about = {
        "engine": f"avbench {__version__}",
        "target": str(options.model),
        "draft": spec.model,
        "method": spec.method,
        "draft_sampling": spec.draft_sample_method,
        "k": drafter.k,
        "source": source,
        "observe": options.observe,
        "refit_interval": options.refit_interval,
        "head": drafter.has_head,
        "clock": "emulated" if clock.emulated else "real",
    }
    parts = LabelParts(options.trace_dir / "labels", about)
    return Labels(parts, slots=options.max_num_seqs, k=drafter.k, now=clock.now)


def _costs(
    options: EngineOptions,
    spec: SpeculativeConfig,
    target: Llama,
    drafter: Drafter,
    length: int,
    trace: Trace,
    clock: Clock,
) -> tuple[CostTables, DepthCosts]:
    """What budgets, and nested depths, are sized from: the given table, or this machine's own costs."""
    slots, k, kind = options.max_num_seqs, drafter.k, KINDS[spec.method]
    if clock.costs is not None:
        draft, verify = clock.costs.curves
        trace.event("costs", draft=draft, verify=verify, drafter=kind, k=k, graph_limit=clock.costs.graph_limit)
        return clock.costs.tables(k), clock.costs.by_depth
    shallow = sorted({1, (k + 1) // 2} - {k}) if options.depth == "nested" else ()
    curves = profile(target, drafter, slots=slots, length=length, shallow=shallow)
    trace.event("costs", draft=curves.draft, verify=curves.verify, context=curves.context, drafter=kind, k=k)
    max_tokens = slots * (length + k)
    return curves.tables(slots, max_tokens), curves.by_depth(slots, max_tokens, k=k)


def _adaptive(
    options: EngineOptions, target: Llama, source: Source, costs: tuple[CostTables, DepthCosts], trace: Trace, *, k: int
) -> Adaptive:
    tables, by_depth = costs
    verification = AdaptiveVerification(
        costs=tables,
        max_requests=options.max_num_seqs,
        positions=k,
        max_total_logits=max_logits_rows(target.shape.vocabulary),
    )
    confidences = make_source(source, options, k=k)
    if options.depth == "nested":
        return NestedAdaptive(confidences, verification, trace, costs=by_depth, observe=options.observe)
    return Adaptive(confidences, verification, trace, observe=options.observe)


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main(sys.argv[1:]))
