"""The drafter that a speculative configuration asks for, fitted to a target."""

from __future__ import annotations

from pathlib import Path

from avbench.errors import UsageError
from avbench.reference.drafter import Drafter
from avbench.reference.dspark import DSparkDrafter
from avbench.reference.llama import Llama
from avbench.reference.options import SpeculativeConfig
from avbench.reference.sequential import SequentialDrafter


def load_drafter(spec: SpeculativeConfig, target: Llama, *, slots: int, length: int) -> Drafter:
    """Load `spec.model` for `slots` requests of at most `length` tokens. Raises UsageError if the two do not match."""
    drafter: Drafter
    if spec.method == "dspark":
        drafter = _parallel(spec, target, slots)
    else:
        drafter = SequentialDrafter(
            Path(spec.model),
            k=spec.num_speculative_tokens,
            slots=slots,
            length=length,
            dtype=target.dtype,
            sampling=spec.draft_sample_method,
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
    return drafter


def _parallel(spec: SpeculativeConfig, target: Llama, slots: int) -> DSparkDrafter:
    drafter = DSparkDrafter(
        Path(spec.model),
        k=spec.num_speculative_tokens,
        slots=slots,
        dtype=target.dtype,
        sampling=spec.draft_sample_method,
    )
    hidden, layers, reads = target.shape.hidden, target.shape.layers, drafter.shape
    if reads.target_hidden_size != hidden or reads.tap_layer >= layers:
        raise UsageError(
            f"`{spec.model}` reads layer {reads.tap_layer} of a target of width {reads.target_hidden_size}, "
            f"this target has {layers} layers of width {hidden}",
            hint="a parallel drafter belongs to the one target it was trained on",
        )
    target.tap = reads.tap_layer
    return drafter
