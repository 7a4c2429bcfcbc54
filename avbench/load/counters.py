"""The server's own counters, from its Prometheus text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from avbench.record.measurement import SpecCounters

PREFIX = "vllm:spec_decode_num_"
DRAFTS = PREFIX + "drafts_total"
DRAFT_TOKENS = PREFIX + "draft_tokens_total"
ACCEPTED = PREFIX + "accepted_tokens_total"
PER_POSITION = PREFIX + "accepted_tokens_per_pos_total"
VERIFIED = "avbench:spec_decode_num_verified_tokens_total"
GENERATED = "vllm:generation_tokens_total"
PREEMPTIONS = "vllm:num_preemptions_total"
COUNTED = frozenset({DRAFTS, DRAFT_TOKENS, ACCEPTED, VERIFIED, GENERATED, PREEMPTIONS})


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Totals since the server started, summed over its engines. A name that is missing is not offered."""

    totals: Mapping[str, float]
    positions: Mapping[int, float]  # draft position, from 0 -> accepted


def parse_metrics(text: str) -> Snapshot:
    """Raises ValueError if `text` is not in the Prometheus text format.

    `..._created` samples share their counter's prefix but hold a time; matching whole names leaves them out.
    """
    totals: defaultdict[str, float] = defaultdict(float)
    positions: defaultdict[int, float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in COUNTED:
                totals[sample.name] += sample.value
            elif sample.name == PER_POSITION:
                positions[int(sample.labels["position"])] += sample.value
    return Snapshot(totals=dict(totals), positions=dict(positions))


def count_between(before: Snapshot, after: Snapshot) -> SpecCounters:
    """Differences over a window. Raises ValueError if a counter fell: the server was restarted in between."""

    def grown(name: str) -> int | None:
        if name not in after.totals:
            return None
        return _growth(name, before.totals.get(name, 0.0), after.totals[name])

    return SpecCounters(
        drafts=grown(DRAFTS) or 0,
        draft_tokens=grown(DRAFT_TOKENS) or 0,
        accepted=grown(ACCEPTED) or 0,
        accepted_per_position=tuple(
            _growth(f"{PER_POSITION} {position}", before.positions.get(position, 0.0), after.positions[position])
            for position in sorted(after.positions)
        ),
        verified=grown(VERIFIED),
        generation_tokens=grown(GENERATED) or 0,
        preemptions=grown(PREEMPTIONS),
    )


def _growth(name: str, before: float, after: float) -> int:
    if after < before:
        raise ValueError(f"counter {name} fell from {before:g} to {after:g}")
    return round(after - before)
