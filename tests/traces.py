"""Requests and counters as a client and a server would have reported them, for tests."""

from __future__ import annotations

from typing import Any

from avbench.record.measurement import RequestTrace, SpecCounters


def make_trace(sent: float, *chunks: tuple[float, int], **changes: Any) -> RequestTrace:
    """`chunks` are (arrival, tokens)."""
    values: dict[str, Any] = {
        "index": 0,
        "prompt_id": "p",
        "sample": 0,
        "seed": 0,
        "phase": "measured",
        "sent": sent,
        "chunk_times": tuple(time for time, _ in chunks),
        "chunk_tokens": tuple(tokens for _, tokens in chunks),
        "prompt_tokens": 10,
        "output_tokens": sum(tokens for _, tokens in chunks) if chunks else None,
        "finish_reason": "stop",
        "error": None,
        "status": 200,
    }
    return RequestTrace(**{**values, **changes})


def make_counters(**changes: Any) -> SpecCounters:
    values: dict[str, Any] = {
        "drafts": 100,
        "draft_tokens": 300,
        "accepted": 120,
        "accepted_per_position": (70, 35, 15),
        "verified": 200,
        "generation_tokens": 220,
        "preemptions": 0,
    }
    return SpecCounters(**{**values, **changes})
