"""What an emulated engine is to run, as `avbench.reference.emulate_job` reads it."""

from __future__ import annotations

from typing import Any

from avbench.load.request import prompt_content, request_settings
from avbench.plan import Cell, Plan, ServerGroup
from avbench.prompts import SEED_STEP, SEEDS, Walk, measured_walk, warmup_walk

SCHEMA = 1


def emulation_job(plan: Plan, group: ServerGroup) -> dict[str, Any]:
    """All cells of a group in running order, with the prompts they need: prompts and seeds are those that the load
    driver would send to a server."""
    workloads = {cell.workload.name: cell.workload for cell in group.cells}
    prompts = {
        name: {prompt.id: prompt_content(prompt, workload) for prompt in plan.prompt_sets[name].prompts}
        for name, workload in workloads.items()
    }
    return {"schema": SCHEMA, "prompts": prompts, "cells": [_cell(plan, cell) for cell in group.cells]}


def _cell(plan: Plan, cell: Cell) -> dict[str, Any]:
    protocol, workload, seed = plan.spec.cell, cell.workload, plan.spec.seed
    prompts, number = plan.prompt_sets[workload.name], cell.pass_number
    measured = measured_walk(prompts, samples=workload.samples_per_prompt, seed=seed, pass_number=number)
    return {
        "id": cell.id,
        "prompts": workload.name,
        "chat": workload.chat,
        "concurrency": cell.concurrency,
        "request": request_settings(workload),
        "seconds": protocol.seconds,
        "min_requests": protocol.min_requests,
        "warmup_seconds": protocol.warmup_seconds,
        "warmup": _walk(warmup_walk(prompts, seed=seed, pass_number=number)),
        "measured": _walk(measured),
    }


def _walk(walk: Walk) -> dict[str, Any]:
    return {
        "prompts": [prompt.id for prompt in walk.prompts],
        "rounds": walk.rounds,
        "first_seed": walk.first_seed,
        "seed_step": SEED_STEP,
        "seed_modulus": SEEDS,
    }
