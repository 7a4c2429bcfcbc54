"""What an emulation is to run: the cells of one engine, as JSON.

    {"schema": 1,
     "prompts": {NAME: {ID: {"prompt": TEXT} or {"messages": [...]}}},
     "cells": [{"id": ..., "prompts": NAME, "chat": false, "concurrency": 8,
                "request": {"max_tokens": 48, "temperature": 0.6, ...},  fields of the body of an HTTP request
                "seconds": 1.0, "min_requests": 16, "warmup_seconds": 0.5,  virtual
                "warmup": WALK, "measured": WALK}]}

A WALK is `{"prompts": [ID, ...], "rounds": 3 or null, "first_seed": 5, "seed_step": 7, "seed_modulus": 2^52}`: the
prompts in their order, `rounds` times or without end, request i with seed (first_seed + i * seed_step) % seed_modulus.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from avbench.errors import UsageError

SCHEMA = 1
T = TypeVar("T")


class Draw(NamedTuple):
    """One request to send."""

    prompt_id: str
    sample: int  # which round over the prompts, from 0
    seed: int


@dataclass(frozen=True, kw_only=True)
class Walk:
    """Prompts in the order they are sent."""

    prompts: tuple[str, ...]
    rounds: int | None
    first_seed: int
    seed_step: int
    seed_modulus: int

    def draws(self) -> Iterator[Draw]:
        """The requests, one after the other."""
        for index in count():
            sample, place = divmod(index, len(self.prompts) or 1)
            if not self.prompts or sample == self.rounds:
                return
            yield Draw(self.prompts[place], sample, (self.first_seed + index * self.seed_step) % self.seed_modulus)


@dataclass(frozen=True, kw_only=True)
class CellJob:
    """One cell. Seconds are virtual."""

    id: str
    prompts: str
    chat: bool
    concurrency: int
    request: Mapping[str, Any]
    seconds: float
    min_requests: int
    warmup_seconds: float
    warmup: Walk
    measured: Walk


@dataclass(frozen=True, kw_only=True)
class Job:
    """All cells of one engine, in the order they run."""

    prompts: Mapping[str, Mapping[str, Mapping[str, Any]]]
    cells: tuple[CellJob, ...]


def read_job(path: Path) -> Job:
    """Raises UsageError for a file that is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']}, expected {SCHEMA}")
        cells = tuple(_cell(cell) for cell in data["cells"])
        prompts = data["prompts"]
        for cell in cells:
            if not cell.warmup.prompts:
                raise ValueError(f"cell `{cell.id}` has no warm-up prompts")
            for prompt_id in {*cell.warmup.prompts, *cell.measured.prompts}:
                prompts[cell.prompts][prompt_id]
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{path}: no emulation job: {what}", hint="`docs/emulation.md` shows the form.") from error
    return Job(prompts=prompts, cells=cells)


def _cell(data: dict[str, Any]) -> CellJob:
    walks = {
        name: _from(Walk, data[name] | {"prompts": tuple(data[name]["prompts"])}) for name in ("warmup", "measured")
    }
    return _from(CellJob, data | walks)


def _from(kind: type[T], data: Mapping[str, Any]) -> T:
    return kind(**{field.name: data[field.name] for field in fields(kind)})  # type: ignore[arg-type]
