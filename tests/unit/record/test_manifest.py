from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from avbench import __version__
from avbench.engine.facts import COMPARED, environment
from avbench.errors import NotComparableError
from avbench.record.manifest import continue_manifest, new_manifest, with_engine_version
from avbench.spec.arm import Arm
from avbench.spec.sweep import CellProtocol, EngineSpec, Pair, SweepSpec

SPEC = SweepSpec(
    path=Path("/somewhere/x.yaml"),
    name="x",
    pair=Pair(name="p", target="t", draft="d", method="draft_model"),
    engine=EngineSpec(),
    arms=(Arm(kind="none"),),
    workloads=(),
    concurrency=(1, 8),
    passes=2,
    cell=CellProtocol(),
)


def make_manifest(text: str = "a: 1\n", **environment: Any) -> dict[str, Any]:
    facts = {"cpu": "C", "cores": 2, "python": "3.12", "ram_bytes": 5, **environment}
    return new_manifest(SPEC, text, facts, engine_command=None)


def test_what_it_says() -> None:
    manifest = make_manifest()
    assert manifest["avbench_version"] == __version__
    assert manifest["spec"]["concurrency"] == [1, 8]
    assert manifest["spec"]["arms"] == [{"kind": "none", "k": 0, "source": None, "refit_interval": None, "depth": None}]
    assert manifest["spec_text"] == "a: 1\n"
    assert "/somewhere" not in str(manifest)


def test_goes_on_with_a_longer_sweep() -> None:
    then, now = make_manifest(), make_manifest("a: 2\n", ram_bytes=6)
    then["created_at"] = "then"
    merged = continue_manifest(then, now)
    assert merged["created_at"] == "then"
    assert merged["spec_text"] == "a: 2\n"
    assert merged["spec_hash"] == now["spec_hash"] != then["spec_hash"]


@pytest.mark.parametrize(("name", "value"), [("cpu", "D"), ("cores", 4), ("python", "3.11")])
def test_another_machine_stops_it(name: str, value: object) -> None:
    with pytest.raises(NotComparableError, match=f"{name}: was .*, is {value}") as caught:
        continue_manifest(make_manifest(), make_manifest(**{name: value}))
    assert "--results" in (caught.value.hint or "")


def test_another_avbench_stops_it() -> None:
    then = {**make_manifest(), "avbench_version": "0.0.0"}
    with pytest.raises(NotComparableError, match=r"avbench: was 0\.0\.0"):
        continue_manifest(then, make_manifest())


TABLE: dict[str, Any] = {
    "schema": 1,
    "name": "a table",
    "source": "made up",
    "notes": ["drafting is free"],
    "unit": "ms",
    "verify": [[1, 5.0], [64, 8.0]],
    "graph_limit": 0,
}


def make_emulated_manifest(folder: Path, **changes: Any) -> dict[str, Any]:
    (folder / "costs.json").write_text(json.dumps(TABLE | changes))
    spec = dataclasses.replace(SPEC, path=folder / "x.yaml", engine=EngineSpec(clock="emulated", costs="costs.json"))
    return new_manifest(spec, "a: 1\n", {}, engine_command=None)


def test_real_time_has_no_cost_table() -> None:
    assert make_manifest()["costs"] is None


def test_it_says_what_virtual_time_was_taken_from(tmp_path: Path) -> None:
    manifest = make_emulated_manifest(tmp_path)
    costs = manifest["costs"]
    assert {**costs, "sha256": None} == {
        "name": "a table",
        "source": "made up",
        "notes": ["drafting is free"],
        "sha256": None,
    }
    assert len(costs["sha256"]) == 64
    assert manifest["spec"]["engine"]["clock"] == "emulated"
    assert str(tmp_path) not in str(manifest)


def test_another_cost_table_stops_it(tmp_path: Path) -> None:
    then = make_emulated_manifest(tmp_path)
    renamed = make_emulated_manifest(tmp_path, name="renamed")
    assert continue_manifest(then, renamed)["costs"]["name"] == "renamed"
    other = make_emulated_manifest(tmp_path, name="other", verify=[[1, 5.0], [64, 9.0]])
    with pytest.raises(NotComparableError, match="clock: was emulated with `a table`, is emulated with `other`"):
        continue_manifest(then, other)


def test_another_clock_stops_it(tmp_path: Path) -> None:
    emulated, real = make_emulated_manifest(tmp_path), {**make_manifest(), "environment": {}}
    with pytest.raises(NotComparableError, match="clock: was real, is emulated with `a table`"):
        continue_manifest(real, emulated)
    older = {key: value for key, value in real.items() if key != "costs"}  # written before there were clocks
    assert continue_manifest(older, real)["costs"] is None
    with pytest.raises(NotComparableError, match="clock: was emulated with `a table`, is real"):
        continue_manifest(emulated, real)


def test_engine_version_is_kept_and_compared() -> None:
    manifest = with_engine_version(make_manifest(), "1.0")
    assert manifest["engine_version"] == "1.0"
    assert with_engine_version(manifest, "1.0") == manifest
    with pytest.raises(NotComparableError, match=r"engine: was 1\.0, is 2\.0"):
        with_engine_version(manifest, "2.0")


def test_facts_about_this_machine() -> None:
    facts = environment()
    assert set(COMPARED) <= set(facts)
    assert isinstance(facts["cores"], int)
    assert facts["cores"] >= 1
    assert facts["cpu"]
    assert facts["aiohttp"]
