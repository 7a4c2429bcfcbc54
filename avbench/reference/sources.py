"""Which confidence adaptive verification goes by: the draft checkpoint's head, or the online estimator."""

from __future__ import annotations

from avbench.adaptive.confidence import ConfidenceSource, HeadConfidence
from avbench.adaptive.estimator import OnlineAcceptanceEstimator
from avbench.errors import UsageError
from avbench.reference.drafter import Drafter
from avbench.reference.options import EngineOptions, Source


def chosen_source(options: EngineOptions, drafter: Drafter | None) -> Source | None:
    """What the engine goes by: by default the head if there is one, as vLLM does. None if nothing is adaptive.

    Raises UsageError if the head is asked for and the checkpoint has none.
    """
    spec = options.speculative
    if spec is None or drafter is None or not spec.enable_adaptive_verification:
        return None
    if options.source == "head" and not drafter.has_head:
        raise UsageError(
            f"AVBENCH_CONFIDENCE_SOURCE is `head`, but the draft `{spec.model}` has no confidence head",
            hint='checkpoints whose `config.json` says `"enable_confidence_head": true` have one, such as the shipped '
            "`avbench:dspark`; every other draft goes by `estimator`",
        )
    return options.source or ("head" if drafter.has_head else "estimator")


def make_source(source: Source, options: EngineOptions, *, k: int) -> ConfidenceSource:
    """A new source for `k` positions of each request."""
    if source == "head":
        return HeadConfidence()
    return OnlineAcceptanceEstimator(
        max_requests=options.max_num_seqs, positions=k, refit_interval=options.refit_interval
    )
