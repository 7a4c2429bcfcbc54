from __future__ import annotations

import pytest

from avbench.load.counters import count_between, parse_metrics

BEFORE = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 5.0
# HELP vllm:spec_decode_num_drafts_created Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_created gauge
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 100.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
"""
AFTER = """\
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 30.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 9.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 72.0
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 31.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 8.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 20.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 3.0
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",model_name="m",position="0"} 1.7e+09
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 160.0
"""
VERIFIED = """\
# TYPE avbench:spec_decode_num_verified_tokens_total counter
avbench:spec_decode_num_verified_tokens_total{engine="0",model_name="m"} 44.0
"""


def test_differences_are_summed_over_engines() -> None:
    counters = count_between(parse_metrics(BEFORE), parse_metrics(AFTER))
    assert counters.drafts == 20 + 4
    assert counters.draft_tokens == 72
    assert counters.accepted == 31
    assert counters.accepted_per_position == (23, 8)
    assert counters.generation_tokens == 60


def test_what_the_server_does_not_count_is_none() -> None:
    counters = count_between(parse_metrics(BEFORE), parse_metrics(AFTER))
    assert counters.verified is None
    assert counters.preemptions is None
    assert count_between(parse_metrics(BEFORE), parse_metrics(AFTER + VERIFIED)).verified == 44


def test_no_speculation() -> None:
    counters = count_between(parse_metrics(""), parse_metrics("vllm:generation_tokens_total 5\n"))
    assert (counters.drafts, counters.accepted_per_position, counters.generation_tokens) == (0, (), 5)


def test_fallen_counter_means_another_process() -> None:
    with pytest.raises(ValueError, match="drafts_total fell from 39 to 15"):
        count_between(parse_metrics(AFTER), parse_metrics(BEFORE))


def test_text_that_is_no_metrics() -> None:
    with pytest.raises(ValueError, match="invalid metric name"):
        parse_metrics("<html>not found</html>")
