from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from avbench.reference.messages import SpecStep, StepOutput
from avbench.reference.metrics import EngineMetrics, RequestTimes

COMMON = {"model_name": "m", "engine": "0"}
SPEC = (
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "avbench:spec_decode_num_verified_tokens_total",
)


def samples(metrics: EngineMetrics) -> dict[tuple[str, str], float]:
    """Value by name and the one label beyond the common two."""
    out: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            assert sample.labels.items() >= COMMON.items()
            own = [value for key, value in sample.labels.items() if key not in COMMON]
            out[sample.name, "".join(own)] = sample.value
    return out


def step(spec: SpecStep | None = None, prompt_tokens: int = 0) -> StepOutput:
    return StepOutput(requests=(), running=2, waiting=3, prompt_tokens=prompt_tokens, spec=spec)


def test_all_counters_stand_at_zero_from_the_start() -> None:
    values = samples(EngineMetrics("m", 3))
    assert [values[name, ""] for name in SPEC] == [0, 0, 0, 0]
    per_position = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    assert {label: value for (name, label), value in values.items() if name == per_position} == {"0": 0, "1": 0, "2": 0}
    assert values["vllm:generation_tokens_total", ""] == 0
    assert values["vllm:num_preemptions_total", ""] == 0
    assert values["vllm:request_success_total", "length"] == 0
    assert not any(name.endswith("_created") for name, _ in values)


def test_without_speculation_there_are_no_such_counters() -> None:
    assert not any("spec_decode" in name for name, _ in samples(EngineMetrics("m", None)))


def test_help_and_type_of_every_family() -> None:
    text = EngineMetrics("m", 1).exposition().decode()
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {*SPEC, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "vllm:num_requests_running"} <= names
    assert {line.split()[2] for line in text.splitlines() if line.startswith("# HELP")} == names


def test_steps_are_added_up() -> None:
    metrics = EngineMetrics("m", 2)
    metrics.step(step(SpecStep(drafts=3, draft_tokens=6, verified=5, accepted=4, accepted_per_position=(3, 1)), 10))
    metrics.step(step(SpecStep(drafts=1, draft_tokens=2, verified=2, accepted=1, accepted_per_position=(1, 0)), 5))
    values = samples(metrics)
    assert [values[name, ""] for name in SPEC] == [4, 8, 5, 7]
    per_position = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    assert (values[per_position, "0"], values[per_position, "1"]) == (4, 1)
    assert values["vllm:prompt_tokens_total", ""] == 15
    assert (values["vllm:num_requests_running", ""], values["vllm:num_requests_waiting", ""]) == (2, 3)


def test_latencies_of_one_request() -> None:
    metrics, times = EngineMetrics("m", None), RequestTimes(100.0)
    metrics.tokens(0, times, 100.1)
    metrics.tokens(3, times, 100.25)
    metrics.tokens(2, times, 100.35)
    metrics.finished("stop", times, 101.0)
    values = samples(metrics)
    assert values["vllm:generation_tokens_total", ""] == 5
    ttft, itl = "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"
    assert (values[ttft + "_count", ""], values[ttft + "_sum", ""]) == (1, 0.25)
    # A bucket holds its own bound: 0.25 s is in `le="0.25"`.
    assert (values[ttft + "_bucket", "0.1"], values[ttft + "_bucket", "0.25"]) == (0, 1)
    assert values[ttft + "_bucket", "+Inf"] == 1
    assert values[itl + "_count", ""] == 1
    assert (values[itl + "_bucket", "0.075"], values[itl + "_bucket", "0.15"]) == (0, 1)
    assert values["vllm:e2e_request_latency_seconds_sum", ""] == 1.0
    assert values["vllm:request_success_total", "stop"] == 1


def test_a_label_is_escaped() -> None:
    assert b'model_name="a\\"b"' in EngineMetrics('a"b', None).exposition()
