"""The engine core as a process of its own: `python -m avbench.reference.core_process --fd N FLAGS`."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from avbench import __version__
from avbench.adaptive.budget import max_logits_rows
from avbench.adaptive.costs import interpolated
from avbench.adaptive.estimator import OnlineAcceptanceEstimator
from avbench.adaptive.verification import AdaptiveVerification
from avbench.errors import AvbenchError, UsageError
from avbench.reference.checkpoint import read_shape
from avbench.reference.core import EngineCore
from avbench.reference.corelink import CoreLink
from avbench.reference.costs import profile
from avbench.reference.drafter import SequentialDrafter
from avbench.reference.llama import Llama
from avbench.reference.messages import Abort, Ready, Shutdown, Submit
from avbench.reference.options import EngineOptions, SpeculativeConfig, parse_options
from avbench.reference.speculation import Adaptive, PlainDecoding, Speculation, Speculator
from avbench.reference.trace import Trace


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
        trace = Trace(options.trace_dir)
        core, ready = build(options, trace)
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
        trace.flush()
    return 0


def serve(core: EngineCore, link: CoreLink, trace: Trace) -> None:
    """The loop: take what has arrived, step if there is work, else wait."""
    while True:
        if waited := core.idle:
            trace.flush()  # whoever waits for the answer may read the trace next
        for message in link.receive_all(block=waited):
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


def build(options: EngineOptions, trace: Trace) -> tuple[EngineCore, Ready]:
    """Load the models, profile if drafts are to be trimmed, put the engine together."""
    dtype = getattr(torch, options.dtype)
    slots = options.max_num_seqs
    spec = options.speculative
    length = _context(options)
    target = Llama(options.model, slots=slots, length=length, dtype=dtype)
    trace.event(
        "start",
        version=__version__,
        k=spec.num_speculative_tokens if spec else None,
        refit_interval=options.refit_interval,
        vocabulary=target.shape.vocabulary,
        source="estimator" if spec and spec.enable_adaptive_verification else None,
    )
    speculation: Speculator = PlainDecoding(slots=slots)
    if spec is not None:
        speculation = _speculation(options, spec, target, length, trace)
    core = EngineCore(target, speculation, trace, slots=slots, length=length, seed=options.seed)
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


def _speculation(
    options: EngineOptions, spec: SpeculativeConfig, target: Llama, length: int, trace: Trace
) -> Speculation:
    slots, k = options.max_num_seqs, spec.num_speculative_tokens
    if length <= k + 1:
        raise UsageError(
            f"a context of {length} tokens has no room for {k} drafts after a prompt",
            hint=f"give --max-model-len {k + 2} or more, or fewer num_speculative_tokens",
        )
    drafter = SequentialDrafter(
        Path(spec.model), k=k, slots=slots, length=length, dtype=target.dtype, sampling=spec.draft_sample_method
    )
    if drafter.vocabulary != target.shape.vocabulary:
        raise UsageError(
            f"the draft has a vocabulary of {drafter.vocabulary}, the target of {target.shape.vocabulary}",
            hint="target and draft must share one tokenizer",
        )
    if drafter.max_position < length:
        raise UsageError(
            f"the draft was made for {drafter.max_position} positions, the context is {length} tokens",
            hint=f"give --max-model-len {drafter.max_position} or less",
        )
    adaptive = _adaptive(options, target, drafter, length, trace) if spec.enable_adaptive_verification else None
    return Speculation(drafter, adaptive, slots=slots)


def _adaptive(options: EngineOptions, target: Llama, drafter: SequentialDrafter, length: int, trace: Trace) -> Adaptive:
    slots, k = options.max_num_seqs, drafter.k
    curves = profile(target, drafter, slots=slots, length=length)
    trace.event("costs", draft=curves.draft, verify=curves.verify, context=curves.context)
    tables = interpolated(
        draft_curve=curves.draft,
        verify_curve=curves.verify,
        max_requests=slots,
        max_tokens=slots * (length + k),
    )
    verification = AdaptiveVerification(
        costs=tables,
        max_requests=slots,
        positions=k,
        max_total_logits=max_logits_rows(target.shape.vocabulary),
    )
    estimator = OnlineAcceptanceEstimator(max_requests=slots, positions=k, refit_interval=options.refit_interval)
    return Adaptive(estimator, verification, trace)


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main(sys.argv[1:]))
