"""Plans without prompts or models, for tests of what runs them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from avbench.plan import Cell, Plan, ServerGroup
from avbench.spec.arm import Arm
from avbench.spec.sweep import CellProtocol, EngineSpec, Pair, Sampling, SweepSpec, Workload

NONE = Arm(kind="none")
FIXED = Arm(kind="fixed", k=3)
ADAPTIVE = Arm(kind="adaptive", k=7, source="estimator")
WORKLOAD = Workload(name="w", prompts="x", max_tokens=5, sampling=Sampling())


def make_plan(*arms: Arm, loads: Sequence[int] = (1, 8), passes: int = 1) -> Plan:
    spec = SweepSpec(
        path=Path("x.yaml"),
        name="x",
        pair=Pair(name="p", target="t", draft="d", method="draft_model"),
        engine=EngineSpec(),
        arms=arms,
        workloads=(WORKLOAD,),
        concurrency=tuple(loads),
        passes=passes,
        cell=CellProtocol(),
    )
    groups = [
        ServerGroup(arm=a, pass_number=p, cells=make_cells(a, p, loads)) for p in range(1, passes + 1) for a in arms
    ]
    return Plan(spec=spec, groups=tuple(groups))


def make_cells(arm: Arm, number: int, loads: Sequence[int]) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            arm=arm,
            workload=WORKLOAD,
            concurrency=load,
            pass_number=number,
            loads_before=tuple(f"w@{before}" for before in loads[:index]),
            identity=f"{arm.id}/{load}/{number}",
        )
        for index, load in enumerate(loads)
    )
