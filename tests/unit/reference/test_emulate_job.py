"""What an emulation is to run, as JSON, and what the engine core gets of it."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from avbench.errors import UsageError
from avbench.reference.emulate_job import Draw, Walk, read_job
from avbench.reference.emulate_prompts import PromptDesk
from avbench.reference.fields import ApiError
from avbench.reference.tokens import ModelTokenizer

WALK: dict[str, Any] = {"prompts": ["a", "b"], "rounds": 2, "first_seed": 8, "seed_step": 3, "seed_modulus": 12}


def job(**changes: Any) -> dict[str, Any]:
    cell = {
        "id": "c",
        "prompts": "set",
        "chat": False,
        "concurrency": 2,
        "request": {"max_tokens": 4, "temperature": 0.001, "top_p": 0.5},
        "seconds": 1.0,
        "min_requests": 0,
        "warmup_seconds": 0.5,
        "warmup": {**WALK, "rounds": None},
        "measured": WALK,
    }
    return {
        "schema": 1,
        "prompts": {"set": {"a": {"prompt": "the fox"}, "b": {"prompt": "the dog"}}},
        "cells": [{**cell, **changes}],
    }


def write(folder: Path, data: object) -> Path:
    path = folder / "job.json"
    path.write_text(json.dumps(data))
    return path


def test_a_walk_goes_round_with_seeds_in_steps(tmp_path: Path) -> None:
    (cell,) = read_job(write(tmp_path, job())).cells
    assert list(cell.measured.draws()) == [Draw("a", 0, 8), Draw("b", 0, 11), Draw("a", 1, 2), Draw("b", 1, 5)]
    assert [draw.sample for draw in islice(cell.warmup.draws(), 7)] == [0, 0, 1, 1, 2, 2, 3]
    assert list(Walk(prompts=(), rounds=None, first_seed=0, seed_step=1, seed_modulus=9).draws()) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "no emulation job"),
        ({"schema": 2}, "schema 2, expected 1"),
        ({"schema": 1}, "'cells' is missing"),
        ({**job(), "prompts": {"set": {"a": {}}}}, "'b' is missing"),
        (job(warmup={**WALK, "prompts": []}), "cell `c` has no warm-up prompts"),
        ({"schema": 1, "prompts": {}, "cells": [{"id": "c"}]}, "'warmup' is missing"),
    ],
)
def test_a_file_that_is_no_job(tmp_path: Path, data: object, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_job(write(tmp_path, data))
    assert "job.json" in caught.value.message


def desk(echo_model: Path, folder: Path, *, context: int = 40, prompts: Any = None, **changes: Any) -> PromptDesk:
    (cell,) = read_job(write(folder, job(**changes))).cells
    return PromptDesk(cell, prompts or job()["prompts"]["set"], ModelTokenizer(echo_model), context=context)


def test_requests_are_checked_and_tokenised_as_over_http(echo_model: Path, tmp_path: Path) -> None:
    submit = desk(echo_model, tmp_path).submit(Draw("a", 0, 7), 3)
    plain = ModelTokenizer(echo_model).encode("the fox", special=True)
    assert (submit.prompt, submit.prompt[0]) == (plain, 0)  # with the begin token
    assert (submit.request_id, submit.max_tokens, submit.seed, submit.top_p) == (3, 4, 7, 0.5)
    assert submit.temperature == 0.01  # raised, as the server does
    assert not submit.ignore_eos


def test_chats_go_through_the_template(echo_model: Path, tmp_path: Path) -> None:
    prompts = {"a": {"messages": [{"role": "user", "content": "fox"}]}}
    submit = desk(echo_model, tmp_path, prompts=prompts, chat=True).submit(Draw("a", 0, 7), 0)
    tokenizer = ModelTokenizer(echo_model)
    assert submit.prompt == tokenizer.encode("<s>[user] fox\n", special=False)


def test_what_a_server_would_refuse_is_refused(echo_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="maximum context length is 5 tokens") as caught:
        desk(echo_model, tmp_path, context=5).submit(Draw("a", 0, 7), 0)
    assert caught.value.too_long
    with pytest.raises(ApiError, match="temperature must be non-negative") as refused:
        desk(echo_model, tmp_path, request={"max_tokens": 4, "temperature": -1}).submit(Draw("a", 0, 7), 0)
    assert not refused.value.too_long
