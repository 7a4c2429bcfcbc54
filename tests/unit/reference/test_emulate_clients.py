"""The closed loop in virtual time, worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from avbench.adaptive.cost_file import CostFile
from avbench.load import client, driver
from avbench.reference import emulate_clients, emulate_window
from avbench.reference.clock import VirtualClock
from avbench.reference.core import Emit
from avbench.reference.emulate_clients import ClosedLoop
from avbench.reference.emulate_counters import Counters
from avbench.reference.emulate_job import CellJob, Draw, Walk
from avbench.reference.fields import ApiError
from avbench.reference.messages import RequestTokens, SpecStep, StepOutput, Submit
from avbench.reference.protocol import fitting_max_tokens
from avbench.reference.step_costs import StepCosts

TABLE = CostFile(
    path=Path("t"), name="flat", source="made up", verify=((1, 10.0), (99, 10.0)), draft={"pass": ((1, 2.0), (9, 2.0))}
)


def walk(*prompts: str, rounds: int | None = None, first: int = 0) -> Walk:
    return Walk(prompts=prompts, rounds=rounds, first_seed=first, seed_step=2, seed_modulus=1000)


def cell(**changes: Any) -> CellJob:
    values: dict[str, Any] = {
        "id": "c",
        "prompts": "p",
        "chat": False,
        "concurrency": 2,
        "request": {"max_tokens": 2},
        "seconds": 0.030,
        "min_requests": 2,
        "warmup_seconds": 0.0,
        "warmup": walk("w"),
        "measured": walk("a", "b", rounds=9, first=1),
    }
    return CellJob(**values | changes)


class OneTokenEngine:
    """10 ms for one token of every request, then 2 ms for one draft of those that go on."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.left: dict[int, int] = {}
        self.aborted: list[int] = []

    @property
    def idle(self) -> bool:
        return not self.left

    def add(self, submit: Submit) -> None:
        self.left[submit.request_id] = submit.max_tokens

    def abort(self, request_id: int) -> None:
        self.aborted.append(request_id)
        del self.left[request_id]

    def step(self, emit: Emit) -> None:
        self._clock.begin()
        self._clock.verified(len(self.left))
        outputs = []
        for request_id in list(self.left):
            self.left[request_id] -= 1
            finish = "length" if self.left[request_id] == 0 else None
            outputs.append(RequestTokens(request_id=request_id, tokens=(7,), finish=finish))
            if finish:
                del self.left[request_id]
        spec = SpecStep(drafts=1, draft_tokens=1, verified=1, accepted=1, accepted_per_position=(1,))
        emit(StepOutput(requests=tuple(outputs), running=len(self.left), waiting=0, prompt_tokens=0, spec=spec))
        self._clock.drafted(len(self.left), 1)


class Bench:
    """A loop over `OneTokenEngine`; prompts called `long` are refused, `bad` ones too."""

    def __init__(self, job: CellJob) -> None:
        self.clock = VirtualClock(StepCosts(TABLE, "draft_model", k=1, requests=9, tokens=99))
        self.engine = OneTokenEngine(self.clock)
        self.counters, self.numbers = Counters(), count(100)
        self.phases: list[str] = []
        self.run(job)

    def run(self, job: CellJob) -> dict[str, Any]:
        self.job = job
        loop = ClosedLoop(job, self.engine, self.clock, self.counters, self.make, self.numbers, self.phases.append)
        loop.run()
        self.result: dict[str, Any] = loop.result()
        return self.result

    def make(self, draw: Draw, number: int) -> Submit:
        if draw.prompt_id == "bad":
            raise ApiError("The prompt is bad")
        length = 99 if draw.prompt_id == "long" else 5
        limit = fitting_max_tokens(self.job.request["max_tokens"], length, 50)
        return Submit(
            request_id=number,
            prompt=(0,) * length,
            max_tokens=limit,
            temperature=1.0,
            top_p=1.0,
            seed=draw.seed,
            ignore_eos=False,
        )

    def rows(self, phase: str) -> Iterator[tuple[float, list[float], int | None]]:
        for row in self.result["requests"]:
            if row["phase"] == phase:
                yield ms(row["sent"]), [ms(time) for time in row["chunk_times"]], row["output_tokens"]


def ms(seconds: float) -> float:
    return round(1000 * seconds, 6)


def test_two_clients_by_hand() -> None:
    """Steps begin every 12 ms and hand out a token to each request after 10. The first request of client 0 is cut to
    one token. A client sends the moment its request ends; the engine takes it up with the next step, 2 ms later."""
    bench = Bench(cell())
    assert list(bench.rows("warmup")) == [
        (0.0, [10.0], 1),
        (0.0, [10.0, 22.0], 2),
        (10.0, [22.0, 34.0], 2),
        # 22 ms: two have ended, after 10 and 22 ms, but 10 + 16 ms have not passed
        (22.0, [34.0, 46.0], 2),
    ]
    # 34 ms: later than 10 + (10 + 22 + 24) / 3; the window opens with this request
    assert list(bench.rows("measured")) == [
        (34.0, [46.0, 58.0], 2),
        (46.0, [58.0, 70.0], 2),
        (58.0, [70.0, 82.0], 2),
        (70.0, [82.0, 94.0], 2),  # 36 ms after the opening and more than two: the last one
    ]
    assert [ms(time) for time in bench.result["window"]] == [34.0, 70.0]
    assert bench.result["steps"] == [3, 5]  # those that handed out tokens at 46, 58 and 70 ms
    assert bench.result["counters"]["generation_tokens"] == 6
    assert bench.result["counters"]["accepted_per_position"] == [3]
    assert bench.phases == ["warmup", "measure", "drain"]
    assert not bench.result["exhausted"]
    # The load is kept up until 94 ms; what was sent at 82 and 94 ms for that is no record and is cut off.
    assert bench.engine.aborted
    assert bench.engine.idle


def test_a_later_cell_has_its_own_clock_and_counts() -> None:
    bench = Bench(cell())
    first = bench.result
    again = bench.run(cell())
    assert again["origin"] == pytest.approx(0.096)
    assert again["window"] == first["window"]
    assert again["requests"] == first["requests"]
    assert again["counters"] == first["counters"]
    assert again["steps"] == [first["steps"][0] + 8, first["steps"][1] + 8]


def test_seeds_and_prompts_are_those_of_the_walks() -> None:
    rows = Bench(cell()).result["requests"]
    measured = [(row["prompt_id"], row["seed"], row["sample"], row["index"]) for row in rows[4:]]
    assert measured == [("a", 1, 0, 0), ("b", 3, 0, 1), ("a", 5, 1, 2), ("b", 7, 1, 3)]
    assert [row["seed"] for row in rows[:4]] == [0, 2, 4, 6]


def test_the_window_is_long_in_seconds_and_in_requests() -> None:
    bench = Bench(cell(seconds=0.001, min_requests=6))
    assert len(list(bench.rows("measured"))) == 6
    assert [ms(time) for time in bench.result["window"]] == [34.0, 94.0]


def test_warmup_lasts_as_long_as_it_is_told() -> None:
    assert ms(Bench(cell(warmup_seconds=0.1)).result["window"][0]) == 106.0


def test_prompts_that_run_out_end_the_window() -> None:
    bench = Bench(cell(measured=walk("a", "b", rounds=1)))
    assert bench.result["exhausted"]
    assert [ms(time) for time in bench.result["window"]] == [34.0, 46.0]


def test_clients_are_spread_over_the_length_of_a_request() -> None:
    bench = Bench(cell(concurrency=4, request={"max_tokens": 8}))
    assert [tokens for _, _, tokens in bench.rows("warmup")][:4] == [2, 4, 6, 8]


def test_prompts_that_are_too_long_take_time_and_are_no_failure() -> None:
    bench = Bench(cell(concurrency=1, measured=walk("long", "a", rounds=3), seconds=0.2))
    assert bench.result["failure"] is None
    refused = [row for row in bench.result["requests"] if row["prompt_id"] == "long"]
    assert len(refused) == 3
    assert all(row["status"] == 400 and "maximum context length" in row["error"] for row in refused)
    assert all(row["output_tokens"] is None for row in refused)
    sent = [ms(row["sent"]) for row in bench.result["requests"] if row["phase"] == "measured"]
    assert sent[1] - sent[0] == pytest.approx(50.0)


def test_only_too_long_prompts_still_end() -> None:
    bench = Bench(cell(warmup=walk("long"), measured=walk("long", rounds=4), seconds=9.0))
    assert bench.result["window"] is not None
    assert bench.result["exhausted"]


def test_nothing_but_refusals_is_a_failure() -> None:
    failure = Bench(cell(warmup=walk("bad"))).result["failure"]
    assert failure["kind"] == "all_requests_failed"
    assert failure["reason"] == "20 requests in a row failed; the last one: The prompt is bad"


def test_refusals_after_successes_are_a_failure_of_another_kind() -> None:
    bench = Bench(cell(measured=walk("bad", rounds=99), seconds=9.0))
    assert bench.result["failure"]["kind"] == "requests_failed"
    assert bench.result["window"] is None
    assert bench.result["counters"] is None


def test_no_prompt_to_measure_with() -> None:
    result = Bench(cell(measured=walk(rounds=1))).result
    assert result["failure"]["kind"] == "no_prompts"
    assert result["requests"] == []


def test_the_rules_are_those_of_the_load_driver() -> None:
    assert emulate_window.FAILURES_IN_A_ROW == driver.FAILURES_IN_A_ROW
    assert emulate_clients.FAILURE_PAUSE == driver.FAILURE_PAUSE
    with pytest.raises(ApiError) as refused:
        fitting_max_tokens(10, 99, 50)
    assert refused.value.too_long
    assert client.CONTEXT_WORDS in str(refused.value)
