"""What a results folder is about: the sweep, its text, the program and the machine that measured it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from avbench import __version__
from avbench.engine.facts import differences
from avbench.errors import NotComparableError, UsageError
from avbench.record.codec import encode
from avbench.spec.step_costs import costs_fingerprint, read_costs
from avbench.spec.sweep import SweepSpec

MANIFEST_SCHEMA = 1
Manifest = dict[str, Any]


def new_manifest(
    spec: SweepSpec, spec_text: str, environment: Mapping[str, object], *, engine_command: str | None
) -> Manifest:
    """A manifest before the first server has started: `engine_version` is still None.

    `engine_command` is what replaced the usual engine command, None if nothing did. Raises UsageError for an emulated
    sweep whose cost table cannot be read.
    """
    return {
        "schema": MANIFEST_SCHEMA,
        "avbench_version": __version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": dict(environment),
        "engine_version": None,
        "engine_command": engine_command,
        **_sweep(spec, spec_text),
    }


def continue_manifest(then: Manifest, now: Manifest) -> Manifest:
    """The manifest to go on with when a folder already has one: its origin, and the sweep as it is now.

    Raises NotComparableError if avbench or the machine changed since: figures from both must not stand side by side.
    """
    changed = [*differences(then.get("environment", {}), now["environment"]), *_other_time(then, now)]
    if then.get("avbench_version") != now["avbench_version"]:
        changed.insert(0, f"avbench: was {then.get('avbench_version')}, is {now['avbench_version']}")
    if then.get("engine_command") != now["engine_command"]:
        usual = "the embedded engine"
        changed.append(
            f"engine command: was {then.get('engine_command') or usual}, is {now['engine_command'] or usual}"
        )
    if changed:
        raise _not_comparable(changed)
    return {**then, **{key: now[key] for key in ("sweep", "spec", "spec_text", "spec_hash", "costs")}}


def with_engine_version(manifest: Manifest, version: str | None) -> Manifest:
    """Keep the version of the first engine that ran; raises NotComparableError if another one runs now."""
    then = manifest.get("engine_version")
    if then is not None and then != version:
        raise _not_comparable([f"engine: was {then}, is {version}"])
    return {**manifest, "engine_version": version}


def check_schema(manifest: Manifest, where: str) -> Manifest:
    """Raises UsageError for a manifest of a later avbench."""
    schema = manifest.get("schema")
    if not isinstance(schema, int) or schema > MANIFEST_SCHEMA:
        raise UsageError(
            f"{where}: schema {schema}, but this avbench reads schemas up to {MANIFEST_SCHEMA}",
            hint="read it with the avbench version that wrote it, or a newer one.",
        )
    return manifest


def _sweep(spec: SweepSpec, text: str) -> Manifest:
    described = {field.name: encode(getattr(spec, field.name)) for field in fields(spec) if field.name != "path"}
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"sweep": spec.name, "spec": described, "spec_text": text, "spec_hash": digest, "costs": _costs(spec)}


def _costs(spec: SweepSpec) -> dict[str, Any] | None:
    """What an emulated sweep took its time from; None if time is real."""
    if not spec.emulated or spec.engine.costs is None:
        return None
    table = read_costs(spec.engine.costs, spec.path.parent)
    return {
        "name": table.name,
        "source": table.source,
        "notes": list(table.notes),
        "sha256": costs_fingerprint(table),
    }


def _other_time(then: Manifest, now: Manifest) -> Iterator[str]:
    """Virtual seconds of one cost table are neither those of another nor real ones."""
    tables = [manifest.get("costs") or {} for manifest in (then, now)]
    if tables[0].get("sha256") != tables[1].get("sha256"):
        was, now_is = (f"emulated with `{table['name']}`" if table else "real" for table in tables)
        yield f"clock: was {was}, is {now_is}"


def _not_comparable(changed: list[str]) -> NotComparableError:
    return NotComparableError(
        "this results folder was measured under other conditions: " + "; ".join(changed),
        hint="give a new folder with `--results DIR`, or go back to those conditions.",
    )
