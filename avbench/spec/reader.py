"""From a YAML file to a SweepSpec, or to one error that says where and why not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from avbench.spec.checks import arms_of, findings
from avbench.spec.document import Document, read_document
from avbench.spec.finding import Finding
from avbench.spec.problem import Problem, raise_problems
from avbench.spec.prompt_files import prompts_name
from avbench.spec.schema import SamplingSection, SweepFile, WorkloadSection
from avbench.spec.structure import structure_problems
from avbench.spec.sweep import CellProtocol, EngineSpec, Pair, Sampling, SweepSpec, Workload


def read_sweep(path: Path) -> SweepSpec:
    """Read and check one sweep file.

    Raises UsageError for the first problem by line: message `FILE:LINE: KEY: what is wrong`, hint what to do.
    """
    document = read_document(path)
    try:
        file = SweepFile.model_validate(document.data)
    except ValidationError as error:
        raise_problems(path, structure_problems(document, error))
        raise
    raise_problems(path, [_located(document, finding) for finding in findings(file, path)])
    return _spec(path, file)


def _located(document: Document, finding: Finding) -> Problem:
    place = document.place(finding.location)
    return Problem(
        line=place.line, column=place.column, key=place.key, message=finding.message, hint=finding.hint or None
    )


def _spec(path: Path, file: SweepFile) -> SweepSpec:
    return SweepSpec(
        path=path,
        name=path.stem,
        pair=_pair(file),
        engine=_engine(file),
        arms=tuple(arm for _, arm in arms_of(file)),
        workloads=tuple(_workload(workload, file.sampling) for workload in file.workloads),
        concurrency=tuple(file.load.concurrency),
        passes=file.passes,
        cell=CellProtocol(**file.cell.model_dump()),
        seed=file.seed,
        labels=file.labels,
        observe=file.observe,
    )


def _pair(file: SweepFile) -> Pair:
    given = file.pair
    return Pair(
        name=given.name or " + ".join(ref for ref in (given.target, given.draft) if ref),
        target=given.target,
        draft=given.draft,
        method=given.method,
        draft_sampling=given.draft_sampling,
    )


def _engine(file: SweepFile) -> EngineSpec:
    return EngineSpec(
        kind=file.engine.kind,
        gpus=file.engine.gpus,
        args=dict(file.engine.args),
        env={name: str(value) for name, value in file.engine.env.items()},
        start_timeout=file.engine.start_timeout,
        clock=file.engine.clock,
        costs=file.engine.costs,
    )


def _workload(given: WorkloadSection, default: SamplingSection) -> Workload:
    return Workload(
        name=given.name or prompts_name(given.prompts),
        prompts=given.prompts,
        max_tokens=given.max_tokens,
        sampling=_sampling((given.sampling, default)),
        chat=given.chat,
        ignore_eos=given.ignore_eos,
        samples_per_prompt=given.samples_per_prompt,
    )


def _sampling(sections: Iterable[SamplingSection]) -> Sampling:
    """The first section that sets a value decides it; vLLM's neutral value (1.0) if none does."""
    given = list(sections)
    temperatures = [section.temperature for section in given if section.temperature is not None]
    limits = [section.top_p for section in given if section.top_p is not None]
    return Sampling(temperature=[*temperatures, 1.0][0], top_p=[*limits, 1.0][0])
