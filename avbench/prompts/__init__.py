"""Prompt sets: what they hold, where they come from, in which order they are sent."""

from __future__ import annotations

from avbench.prompts.loader import load_prompts
from avbench.prompts.order import (
    SEED_STEP,
    SEEDS,
    Draw,
    Split,
    Walk,
    measured_sequence,
    measured_walk,
    split_prompts,
    warmup_sequence,
    warmup_walk,
)
from avbench.prompts.prompt_set import Message, Prompt, PromptSet

__all__ = [
    "SEEDS",
    "SEED_STEP",
    "Draw",
    "Message",
    "Prompt",
    "PromptSet",
    "Split",
    "Walk",
    "load_prompts",
    "measured_sequence",
    "measured_walk",
    "split_prompts",
    "warmup_sequence",
    "warmup_walk",
]
