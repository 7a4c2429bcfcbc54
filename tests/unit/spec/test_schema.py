"""The JSON schema for editors says what the reader does."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from avbench.spec.schema import SweepFile, json_schema
from avbench.spec.yaml_loader import SweepLoader

ROOT = Path(__file__).parents[3]
SWEEPS = sorted((ROOT / "sweeps").rglob("*.yaml"))
VALIDATOR = Draft202012Validator(json_schema())
DOCUMENT: dict[str, Any] = {
    "pair": {"name": "p", "target": "t", "draft": "d", "method": "draft_model", "draft_sampling": "greedy"},
    "engine": {"kind": "reference", "args": {"dtype": "float32", "n": 3}, "env": {"A": "1"}, "start_timeout": "2m",
               "clock": "emulated", "costs": "costs.json"},
    "arms": ["none", {"fixed": 3}, {"fixed": [1, 7]}, {"adaptive": 7}, {"adaptive": {"k": 5, "refit_interval": 25}},
             {"adaptive": {"k": 5, "source": "head", "depth": "nested"}}],
    "workloads": [{"prompts": "code", "max_tokens": 48, "chat": False, "sampling": {"temperature": 0.5}}],
    "sampling": {"temperature": 1.0, "top_p": 0.9},
    "load": {"concurrency": [1, 8]},
    "passes": 2,
    "cell": {"seconds": "3s", "min_requests": 0, "warmup_seconds": 1.5, "timeout": 60},
    "labels": True,
    "observe": False,
    "seed": 0,
}  # fmt: skip


def _reader_accepts(document: object) -> bool:
    try:
        SweepFile.model_validate(document)
    except ValidationError:
        return False
    return True


def test_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(json_schema())
    assert json_schema()["title"] == "avbench sweep"


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_accepts_the_shipped_sweeps(path: Path) -> None:
    document = yaml.load(path.read_text(), SweepLoader)
    assert list(VALIDATOR.iter_errors(document)) == []
    assert _reader_accepts(document)


def _properties(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    sections = [("", schema), *schema["$defs"].items()]
    return [(f"{name}.{key}", value) for name, section in sections for key, value in section["properties"].items()]


@pytest.mark.parametrize(
    ("key", "value"), _properties(json_schema()), ids=lambda part: part if isinstance(part, str) else ""
)
def test_every_key_is_described(key: str, value: dict[str, Any]) -> None:
    reference = value.get("$ref", "").rsplit("/", 1)[-1]
    described = value.get("description") or json_schema()["$defs"].get(reference, {}).get("description")
    assert described, key


VALUES = st.one_of(
    st.integers(-2, 70),
    st.sampled_from([0.5, 1.5, -0.25, 100.5, 0.005]),
    st.booleans(),
    st.sampled_from(["", "none", "8", "10s", "0s", "1h30m", "s", "fast", "reference", "vllm", "draft_model", "greedy"]),
    st.sampled_from(["dspark", "head", "nested", "full", "emulated"]),
    st.sampled_from([[], {}, ["none"], [0], [3], [1, "x"], {"fixed": 3}, {"fixed": []}, {"adaptive": {"k": 3}}]),
    st.sampled_from([{"adaptive": 7, "fixed": 3}, {"temperature": 0.5}, {"schedule": "auto"}, {"k": 0}, {"k": 4}]),
)


def _containers(value: object) -> list[Any]:
    below = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value, *(inner for item in below for inner in _containers(item))] if isinstance(value, dict | list) else []


@settings(max_examples=600, deadline=None)
@given(data=st.data())
def test_agrees_with_the_reader_on_structure(data: st.DataObject) -> None:
    """Change, drop or add values at random: both accept or both refuse. (Repeated entries, which only the schema sees
    as structure, are left out; so is 8.0, which JSON does not tell from 8.)"""
    document = copy.deepcopy(DOCUMENT)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from([part for part in _containers(document) if part] or [document]))
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from([*keys, "extra", "k", "env"] if isinstance(place, dict) else keys))
        if data.draw(st.booleans()) or not isinstance(place, dict) or key not in place:
            place[key] = copy.deepcopy(data.draw(VALUES))
        else:
            del place[key]
    if _repeats(document):
        return
    assert VALIDATOR.is_valid(document) == _reader_accepts(document), document


def _repeats(document: object) -> bool:
    lists = [part for part in _containers(document) if isinstance(part, list)]
    return any(len({repr(item) for item in part}) < len(part) for part in lists)


def test_disagreement_would_be_noticed() -> None:
    assert not VALIDATOR.is_valid({**DOCUMENT, "pases": 2})
    assert not _reader_accepts({**DOCUMENT, "pases": 2})
    assert VALIDATOR.is_valid(DOCUMENT)
    assert _reader_accepts(DOCUMENT)


def test_repeated_concurrency_is_refused_by_the_schema_too() -> None:
    assert not VALIDATOR.is_valid({**DOCUMENT, "load": {"concurrency": [8, 8]}})
    assert not VALIDATOR.is_valid({**DOCUMENT, "arms": [{"fixed": [3, 3]}]})
