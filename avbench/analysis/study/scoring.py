"""Scores with their intervals, for every feature and every part of the drafts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from avbench.adaptive.features import Float32
from avbench.analysis.study.bootstrap import MIN_REQUESTS, REPLICATES, Replicates, request_groups, resample
from avbench.analysis.study.calibration import Reliability, reliability
from avbench.analysis.study.drafts import WARM_UP
from avbench.analysis.study.features import ESTIMATOR, FEATURES, HEAD, LEADING, Feature
from avbench.analysis.study.leads import Lead, leads
from avbench.analysis.study.metrics import ONE_CLASS, Point, Ranked, measure
from avbench.analysis.study.pool import Pool, count_requests
from avbench.analysis.study.replay import fit_online
from avbench.analysis.study.rounds import Rounds
from avbench.analysis.study.values import Value, value_of
from avbench.units import format_plural

Mask = NDArray[np.bool_]
ALL = "all data sets"  # the subject that is a whole pool


@dataclass(frozen=True, kw_only=True)
class Score:
    """One source over some drafts. `auc` is None if only one class was seen."""

    source: str  # Feature.id
    n: int
    auc: Value | None
    log_loss: Value
    ece: Value
    predicted: Value
    observed: Value


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some drafts of a subject, scored. `missing` says why figures are absent."""

    name: str  # `all positions`, `without position 1`, `position 3`
    n: int
    requests: int
    scores: tuple[Score, ...]
    leads: tuple[Lead, ...]  # estimator against head, one a metric; empty without a head
    missing: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One data set, or a whole pool."""

    name: str
    whole: Part
    without_first: Part
    positions: tuple[Part, ...]
    reliability: tuple[Reliability, ...]  # one a source


@dataclass(kw_only=True)
class _Open:
    """A part while its sources come in, one after the other."""

    name: str
    position: int | None  # None: all; -1: all but the first
    n: int = 0
    requests: int = 0
    found: dict[str, tuple[Point, Replicates | None]] = field(default_factory=dict)

    def wants(self, feature: Feature) -> bool:
        return self.position is None or self.position < 0 or feature in LEADING

    def rows(self, position: NDArray[np.int16]) -> Mask | slice:
        if self.position is None:
            return slice(None)
        return position > 0 if self.position < 0 else position == self.position


@dataclass(kw_only=True)
class _OpenSubject:
    name: str
    data_set: int | None  # None: all
    parts: list[_Open]
    diagrams: list[Reliability] = field(default_factory=list)

    def rows(self, data_set: NDArray[np.int16]) -> Mask:
        return np.asarray(data_set != WARM_UP if self.data_set is None else data_set == self.data_set)


def predictions_of(feature: Feature, pool: Pool, rounds: Rounds) -> Float32 | None:
    """[n]: the raw confidence, or the online fit's; None if the labels lack the column."""
    drafts = pool.drafts
    values = feature.of(drafts)
    if values is None or not feature.fitted:
        return values
    return fit_online(values, drafts.position, drafts.label, rounds, pool.k).predictions


def score_pool(pool: Pool, rounds: Rounds, *, replicates: int = REPLICATES) -> tuple[Subject, ...]:
    """The whole pool first, then its data sets if there are several. No intervals with `replicates` 0."""
    subjects = list(_open_subjects(pool))
    groups = request_groups(pool.drafts.request, pool.drafts.data_set)
    for feature in FEATURES:
        predictions = predictions_of(feature, pool, rounds)
        if predictions is not None:
            _score_source(feature, predictions, pool, groups, subjects, replicates)
    return tuple(_close(subject) for subject in subjects)


def _open_subjects(pool: Pool) -> Iterator[_OpenSubject]:
    named: list[tuple[str, int | None]] = [(each.name, code) for code, each in enumerate(pool.data_sets)]
    if len(named) != 1:
        named.insert(0, (ALL, None))
    titles: list[tuple[str, int | None]] = [("all positions", None), ("without position 1", -1)]
    titles += [(f"position {position + 1}", position) for position in range(pool.k)]
    for name, code in named:
        subject = _OpenSubject(name=name, data_set=code, parts=[])
        inside = subject.rows(pool.drafts.data_set)
        request, position = pool.drafts.request[inside], pool.drafts.position[inside]
        for title, place in titles:
            part = _Open(name=title, position=place)
            rows = part.rows(position)
            part.n, part.requests = len(position[rows]), count_requests(request[rows])
            subject.parts.append(part)
        yield subject


def _score_source(
    feature: Feature,
    predictions: Float32,
    pool: Pool,
    groups: NDArray[np.int16],
    subjects: Sequence[_OpenSubject],
    replicates: int,
) -> None:
    """All parts of all subjects, from one sorting of the source's predictions."""
    order = np.argsort(predictions)[::-1]
    data_set, position = pool.drafts.data_set[order], pool.drafts.position[order]
    ranked = Ranked(predictions=predictions[order], labels=pool.drafts.label[order], groups=groups[order])
    for subject in subjects:
        inside = subject.rows(data_set)
        own, places = ranked.within(inside), position[inside]
        subject.diagrams.append(reliability(feature.id, own))
        for part in subject.parts:
            if part.n and part.wants(feature):
                cut = own.within(part.rows(places))
                point = measure(cut)
                assert point is not None
                part.found[feature.id] = point, resample(cut, replicates) if replicates else None


def _close(subject: _OpenSubject) -> Subject:
    whole, without_first, *positions = (_closed(part) for part in subject.parts)
    return Subject(
        name=subject.name,
        whole=whole,
        without_first=without_first,
        positions=tuple(positions),
        reliability=tuple(subject.diagrams),
    )


def _closed(part: _Open) -> Part:
    return Part(
        name=part.name,
        n=part.n,
        requests=part.requests,
        scores=tuple(_score(source, point, drawn) for source, (point, drawn) in part.found.items()),
        leads=tuple(_leads(part)),
        missing=tuple(_missing(part)),
    )


def _score(source: str, point: Point, drawn: Replicates | None) -> Score:
    def value(metric: str, *, least: float | None = None) -> Value:
        return value_of(getattr(point, metric), None if drawn is None else getattr(drawn, metric), least=least)

    return Score(
        source=source,
        n=point.n,
        auc=None if point.auc is None else value("auc"),
        log_loss=value("log_loss", least=0.0),
        ece=value("ece", least=0.0),
        predicted=value("predicted"),
        observed=value("observed"),
    )


def _leads(part: _Open) -> Iterator[Lead]:
    if ESTIMATOR.id in part.found and HEAD.id in part.found:
        (own, drawn), (head, head_drawn) = part.found[ESTIMATOR.id], part.found[HEAD.id]
        yield from leads(own, head, drawn, head_drawn)


def _missing(part: _Open) -> Iterator[str]:
    if not part.n:
        yield f"{part.name}: no labels"
        return
    point = next(iter(part.found.values()))[0]
    if point.auc is None:
        what = "accepted" if point.observed == 1 else "rejected"
        yield f"{part.name}: {ONE_CLASS.format(what)}, so there is no AUC"
    if part.requests < MIN_REQUESTS:
        requests = format_plural(part.requests, "request")
        yield f"{part.name}: {requests}, fewer than the {MIN_REQUESTS} that intervals need"
