"""How long it will take and what it will not be able to say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from avbench.plan import Plan, estimate_seconds, parse_only, plan_warnings, prompt_capacities, remaining_plan

MakePlan = Callable[..., Plan]


def _kinds(plan: Plan) -> list[str]:
    return [warning.kind for warning in plan_warnings(plan)]


def test_time_by_hand(make_plan: MakePlan) -> None:
    plan = make_plan(("[1, 8, 4]", "[8]"))
    # A request of 48 tokens at C=8 takes 48 x 2 x (2.8 + 8 x 0.45) ms = 0.6144 s, one of 16 tokens a third of it.
    # A cell: 1 s warm-up (longer than 1.25 requests), 3 s window, one request until the last ones have ended.
    words, greedy = 1 + 3 + 0.6144, 1 + 3 + 0.2048
    time = estimate_seconds(plan)
    assert time.groups[0].group == "none-p1"
    assert time.groups[0].total == pytest.approx(4 + words + greedy)
    assert time.total == pytest.approx(8 * (4 + words + greedy))


def test_time_with_long_requests_and_many_of_them(make_plan: MakePlan) -> None:
    cell = ("seconds: 3s, warmup_seconds: 1s", "seconds: 3s, warmup_seconds: 0, min_requests: 100")
    plan = make_plan(("[1, 8, 4]", "[8]"), cell)
    words = 2.25 * 0.6144 + 100 * 0.6144 / 8
    greedy = 2.25 * 0.2048 + 3  # 100 requests fit into 3 s
    assert estimate_seconds(plan).groups[0].cells == pytest.approx(words + greedy)


def test_replayed_cells_take_their_time(plan: Plan) -> None:
    choice = parse_only(["arm=adaptive-7-refit25", "pass=1", "concurrency=4", "workload=words"], plan)
    rest = remaining_plan(plan, set(), choice)
    assert estimate_seconds(rest).total > 4 + 3 * 4


EMULATED = ("passes: 2", "engine: {clock: emulated, costs: costs.json}\npasses: 2")


def test_virtual_time_takes_as_long_as_its_steps(make_plan: MakePlan) -> None:
    plan = make_plan(("[1, 8, 4]", "[8]"), EMULATED)
    # The table: 5 ms for 1 token, 8 ms for 64, so 5.333 ms for a step of 8; the machine needs 2 x 6.4 ms for it, and
    # 4.5 times as long with 7 drafts each.
    words, greedy = 1 + 3 + 48 * 0.0053333, 1 + 3 + 16 * 0.0053333
    steps = (words + greedy) / 0.0053333
    plain, _, deep, _ = estimate_seconds(plan).groups[:4]
    assert plain.cells == pytest.approx(steps * 0.0128, rel=1e-4)
    assert deep.cells == pytest.approx(steps * 0.0128 * 4.5, rel=1e-4)
    (capacity, _) = prompt_capacities(plan)
    assert capacity.needed == 235  # 2.5 x 8 / (48 x 5.333 ms) a second, for 3 s: 234.4


def test_a_good_plan_has_no_doubts_but_repeated_prompts(plan: Plan) -> None:
    assert _kinds(plan) == ["repeated_prompts"]


def test_virtual_time_does_not_drift(make_plan: MakePlan) -> None:
    assert "odd_passes" not in _kinds(make_plan(EMULATED, ("cell:", "passes: 3\ncell:"), ("passes: 2\n", "")))


def test_labels_cost_no_virtual_time(make_plan: MakePlan) -> None:
    assert "labels" not in _kinds(make_plan(EMULATED, ("cell:", "labels: true\ncell:")))


@pytest.mark.parametrize(
    ("replacement", "kind", "text", "advice"),
    [
        (("passes: 2", "labels: true"), "labels", "takes time in every arm that drafts", "use these results for"),
        (("passes: 2", "observe: true"), "observe", "will not be ranked", "use these results for a study"),
        (("passes: 2", "passes: 1"), "one_pass", "no noise estimate", "set `passes: 2`, better 4."),
        (("passes: 2", "passes: 3"), "odd_passes", "drift does not cancel", "set `passes: 4`."),
        (("[1, 7]", "[1]"), "no_rival", "K=7 has no arm with the same K and AV off", "add 7 to `fixed`."),
        (("  - none\n", ""), "no_plain", "no arm without speculation", "add `none` to `arms`."),
        (("max_tokens: 48", "max_tokens: 48, ignore_eos: true"), "ignore_eos", "`words`: `ignore_eos`", "remove"),
        (("[1, 8, 4]", "[35]"), "same_prompts_in_flight", "at concurrency 35 the same prompt", "use a larger set"),
    ],
)
def test_doubts(replacement: tuple[str, str], kind: str, text: str, advice: str, make_plan: MakePlan) -> None:
    warning = next(warning for warning in plan_warnings(make_plan(replacement)) if warning.kind == kind)
    assert text in warning.text
    assert warning.advice.startswith(advice)


def test_exactly_as_many_prompts_as_requests_in_flight_are_enough(make_plan: MakePlan) -> None:
    assert "same_prompts_in_flight" not in _kinds(make_plan(("[1, 8, 4]", "[34]")))


def test_too_few_prompts_and_how_many_would_do(make_plan: MakePlan) -> None:
    few = make_plan(("samples_per_prompt: 40}\n", "samples_per_prompt: 1}\n"), ("[1, 8, 4]", "[1, 8]"))
    (capacity, _) = prompt_capacities(few)
    # C=8: 8 / 0.3072 s, half as fast again with a good draft, for 3 s = 117.2 requests.
    assert (capacity.measured, capacity.samples, capacity.requests) == (34, 1, 34)
    assert (capacity.needed, capacity.needed_at) == (118, 8)
    warning = next(warning for warning in plan_warnings(few) if warning.kind == "too_few_prompts")
    assert "concurrency 8 needs about 118 measured requests and has 34 (34 prompts x 1)" in warning.text
    assert warning.advice == "set `samples_per_prompt: 4`, or use a larger set."
    enough = make_plan(("samples_per_prompt: 40}\n", "samples_per_prompt: 4}\n"), ("[1, 8, 4]", "[1, 8]"))
    assert [w.text.split("`")[1] for w in plan_warnings(enough) if w.kind == "too_few_prompts"] == []


def test_a_least_number_of_requests_is_not_multiplied_by_the_pace(make_plan: MakePlan) -> None:
    plan = make_plan(("[1, 8, 4]", "[8]"), ("seconds: 3s", "min_requests: 200, seconds: 3s"))
    assert [capacity.needed for capacity in prompt_capacities(plan)] == [200, 352]  # the short ones: 3 x 117.2 in 3 s


def test_replays_are_said(plan: Plan) -> None:
    adaptive = [cell for cell in plan.cells if cell.arm.kind == "adaptive"]
    rest = remaining_plan(plan, {adaptive[0].identity, adaptive[1].identity})
    warning = next(warning for warning in plan_warnings(rest) if warning.kind == "replays")
    assert warning.text.startswith("2 cells of adaptive arms are run again unmeasured")
