"""Prompt sets: what they hold, where they come from, in which order they are sent."""

from __future__ import annotations

from avbench.prompts.loader import load_prompts
from avbench.prompts.order import Draw, Split, measured_sequence, split_prompts, warmup_sequence
from avbench.prompts.prompt_set import Message, Prompt, PromptSet

__all__ = [
    "Draw",
    "Message",
    "Prompt",
    "PromptSet",
    "Split",
    "load_prompts",
    "measured_sequence",
    "split_prompts",
    "warmup_sequence",
]
