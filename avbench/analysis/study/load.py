"""Labelled drafts from arguments to pools: what may be looked at together, named, with dense request numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from avbench.analysis.study.drafts import NO_REQUEST, WARM_UP, Drafts, concatenate
from avbench.analysis.study.places import LabelFolder, find_labels
from avbench.analysis.study.pool import DataSet, Pool, Stream
from avbench.analysis.study.reading import Notes, ReadStream, Tally, read_streams
from avbench.analysis.study.schema import LabelInfo
from avbench.errors import NotComparableError, UsageError
from avbench.units import format_count, format_plural

Key = tuple[str, str]  # origin and workload of a data set


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Everything that was read. `notes` say what was left out and what to keep in mind."""

    pools: tuple[Pool, ...]
    notes: tuple[str, ...]
    emulated: bool


def load_labels(paths: Iterable[Path]) -> Labels:
    """Reads files, folders and results folders.

    Raises UsageError if one of them has no usable label at all, NotComparableError if real and emulated ones are mixed.
    """
    notes = Notes()
    streams: list[ReadStream] = []
    for path, folders in _distinct(paths).items():
        found = [stream for folder in folders for stream in read_streams(folder, notes)]
        if not found:
            reasons = " ".join(notes.lines)
            raise UsageError(
                f"{path}: no labelled draft that can be used. {reasons}".rstrip(),
                hint="labels are written for drafts that the target verified: `label` true or false, not null.",
            )
        streams += _scored(found, path, notes)
    _refuse_mixed_clocks(streams)
    groups: dict[tuple[object, ...], list[ReadStream]] = {}
    for stream in streams:
        groups.setdefault(_pool_key(stream), []).append(stream)
    ks = sorted({_depth(stream) for stream in streams})
    if len(ks) > 1:
        listed = ", ".join(f"K={k}" for k in ks)
        notes.add(f"The labels have several depths ({listed}); they are studied apart, for K may change the drafts.")
    names = _pool_names(list(groups))
    pools = tuple(_pool(names[key], members, notes) for key, members in groups.items())
    return Labels(pools=pools, notes=tuple(notes.lines), emulated=streams[0].info.emulated)


def _distinct(paths: Iterable[Path]) -> dict[Path, list[LabelFolder]]:
    """Each argument once; those of one name are told apart by their paths."""
    found: dict[Path, list[LabelFolder]] = {}
    used: set[str] = set()
    for path in dict.fromkeys(paths):
        folders = find_labels(path)
        if folders[0].origin in used:
            folders = tuple(dataclasses.replace(folder, origin=str(path)) for folder in folders)
        used.add(folders[0].origin)
        found[path] = list(folders)
    return found


def _scored(streams: list[ReadStream], path: Path, notes: Notes) -> list[ReadStream]:
    """Where no draft lies in any cell's window, the warm-up is all there is: it becomes a data set."""
    if any((stream.drafts.data_set != WARM_UP).any() for stream in streams):
        return streams
    notes.add(f"{path}: no label lies in the steady window of a finished cell; what there is, is scored as a whole.")
    return [
        dataclasses.replace(
            stream,
            drafts=dataclasses.replace(stream.drafts, data_set=np.zeros_like(stream.drafts.data_set)),
            workloads=(stream.folder.origin,),
            tallies={0: next(iter(stream.tallies.values()), Tally())},
        )
        for stream in streams
    ]


def _refuse_mixed_clocks(streams: Sequence[ReadStream]) -> None:
    clocks = {stream.info.clock: stream.name for stream in streams}
    if len(clocks) > 1:
        raise NotComparableError(
            f"emulated labels ({clocks['emulated']}) and real ones ({clocks['real']}) cannot share a study",
            hint="study them apart.",
        )


def _depth(stream: ReadStream) -> int:
    deepest = int(stream.drafts.position.max()) + 1
    return max(stream.info.k or 0, deepest)


def _pool_key(stream: ReadStream) -> tuple[object, ...]:
    info = stream.info
    source = info.source if info.trimmed else None
    pair = (info.target, info.draft, info.method)
    return (*pair, info.draft_sampling, _depth(stream), "trimmed" if info.trimmed else None, source)


def _pool_names(keys: Sequence[tuple[object, ...]]) -> dict[tuple[object, ...], str]:
    """The pair, and only what tells the pools apart. Folders of one name are told apart by their whole path."""
    names = {key: _name(key, keys, whole=False) for key in keys}
    if len(set(names.values())) < len(names):
        names = {key: _name(key, keys, whole=True) for key in keys}
    return names


def _name(key: tuple[object, ...], keys: Sequence[tuple[object, ...]], *, whole: bool) -> str:
    target, draft, method, sampling, k, trimmed, source = key
    info = LabelInfo(target=_text(target), draft=_text(draft), method=_text(method))
    pair = f"{target} + {draft} ({method})" if whole else info.pair
    parts = [pair, _text(sampling) or "draft sampling not named"]
    if len({other[4] for other in keys}) > 1:
        parts.append(f"K={k}")
    if trimmed:
        parts.append(f"trimmed by the {source}")
    return " · ".join(parts)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _pool(name: str, streams: Sequence[ReadStream], notes: Notes) -> Pool:
    codes: dict[Key, int] = {}
    tallies: dict[Key, Tally] = {}
    parts: list[Drafts] = []
    requests = 0
    for number, stream in enumerate(streams):
        mapping = _codes(stream, codes)
        _add_tallies(stream, tallies)
        part, requests = _numbered(stream.drafts, number, mapping, requests)
        parts.append(part)
    drafts = _whole_columns(name, concatenate(parts), notes)
    _note_order(name, drafts, notes)
    labels = np.bincount(drafts.data_set[drafts.data_set != WARM_UP], minlength=len(codes))
    titles = _titles(list(codes))
    data_sets = tuple(
        DataSet(name=titles[key], drafts=tally.drafts, labels=int(labels[code]), entropy=_mean_entropy(tally))
        for key, code in codes.items()
        for tally in (tallies.get(key, Tally()),)
    )
    return Pool(
        name=name,
        info=streams[0].info,
        k=max(_depth(stream) for stream in streams),
        drafts=drafts,
        data_sets=data_sets,
        streams=tuple(Stream(name=each.name, refit_interval=each.info.refit_interval) for each in streams),
        warm_up=int((drafts.data_set == WARM_UP).sum()),
    )


def _codes(stream: ReadStream, codes: dict[Key, int]) -> dict[int, int]:
    """From the stream's own data set codes to the pool's, which it adds to."""
    mapping = {WARM_UP: WARM_UP}
    for own in np.unique(stream.drafts.data_set):
        if own != WARM_UP:
            mapping[int(own)] = codes.setdefault(_key(stream, int(own)), len(codes))
    return mapping


def _key(stream: ReadStream, own: int) -> Key:
    origin = stream.folder.origin
    return origin, stream.workloads[own] if stream.workloads else origin


def _add_tallies(stream: ReadStream, tallies: dict[Key, Tally]) -> None:
    for own, tally in stream.tallies.items():
        if own != WARM_UP:
            total = tallies.setdefault(_key(stream, own), Tally())
            total.drafts += tally.drafts
            total.entropy += tally.entropy
            total.with_entropy += tally.with_entropy


def _mean_entropy(tally: Tally) -> float | None:
    return tally.entropy / tally.with_entropy if tally.with_entropy else None


def _numbered(drafts: Drafts, number: int, mapping: dict[int, int], requests: int) -> tuple[Drafts, int]:
    """With the pool's stream number, data set codes and request numbers; and the next free request number."""
    table = np.full(max(mapping) + 2, WARM_UP, dtype=np.int16)
    for own, code in mapping.items():
        table[own] = code  # WARM_UP is -1: the last place
    known = drafts.request >= 0
    dense = np.full(len(drafts), NO_REQUEST, dtype=np.int32)
    distinct, places = np.unique(drafts.request[known], return_inverse=True)
    dense[known] = places + requests
    changed = dataclasses.replace(
        drafts,
        stream=np.full(len(drafts), number, dtype=np.int32),
        data_set=table[drafts.data_set],
        request=dense,
    )
    return changed, requests + len(distinct)


def _whole_columns(name: str, drafts: Drafts, notes: Notes) -> Drafts:
    """Without a head that scored only some drafts, and without predictions if there are none."""
    changes: dict[str, None] = {}
    for column in ("head", "prediction"):
        values = getattr(drafts, column)
        if values is None:
            continue
        absent = int(np.isnan(values).sum())
        if absent == len(drafts):
            changes[column] = None
        elif absent and column == "head":
            of_all = f"{format_count(absent)} of {format_plural(len(drafts), 'label')}"
            notes.add(f"{name}: the head's score is missing at {of_all}; the head is left out.")
            changes[column] = None
    nameless = int((drafts.request == NO_REQUEST).sum())
    if nameless:
        labels = format_plural(nameless, "label")
        notes.add(f"{name}: {labels} without a request: they count in the figures, but not in the intervals.")
    return dataclasses.replace(drafts, **changes)  # type: ignore[arg-type]


def _note_order(name: str, drafts: Drafts, notes: Notes) -> None:
    """Labels must be the accepted drafts of a request-step and its first rejected one."""
    named = drafts.request != NO_REQUEST
    request, step, position = drafts.request[named], drafts.step[named], drafts.position[named]
    label = drafts.label[named]
    if not len(request):
        return
    same = (request[1:] == request[:-1]) & (step[1:] == step[:-1])
    wrong = np.where(same, (position[1:] != position[:-1] + 1) | ~label[:-1], position[1:] != 0)
    count = int(wrong.sum()) + int(position[0] != 0)
    if count:
        notes.add(
            f"{name}: {format_plural(count, 'label')} behind a rejection, or not in a row from position 1: "
            "per-position figures are not rates among drafts that were reached."
        )


def _titles(keys: Sequence[Key]) -> dict[Key, str]:
    """The workload; with the results folder's name where two have a workload of one name."""
    workloads = [workload for _, workload in keys]
    return {
        (origin, workload): workload
        if workloads.count(workload) == 1 or origin == workload
        else f"{origin}: {workload}"
        for origin, workload in keys
    }
