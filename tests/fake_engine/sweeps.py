"""Small sweeps on the fake engine, and processes that run them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml

ROOT = Path(__file__).resolve().parents[2]
ENGINE = shlex.join([sys.executable, str(Path(__file__).with_name("__main__.py"))])


def write_sweep(folder: Path, **changes: Any) -> Path:
    """`folder/mini.yaml` with two stand-in models and 40 prompts; `changes` replace whole top-level keys."""
    for model in ("target", "draft"):
        (folder / model).mkdir(parents=True, exist_ok=True)
        (folder / model / "config.json").write_text(json.dumps({"model": model}))
    prompts = [{"id": f"p{number}", "prompt": f"prompt {number} " + "x" * (number * 7)} for number in range(40)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
    sweep = {
        "pair": {"name": "stand-in", "target": "target", "draft": "draft", "method": "draft_model"},
        "engine": {"kind": "reference", "start_timeout": 20},
        "arms": ["none", {"fixed": 3}],
        "workloads": [{"prompts": "prompts.jsonl", "name": "short", "max_tokens": 12, "samples_per_prompt": 20}],
        "load": {"concurrency": [1, 4]},
        "passes": 2,
        "cell": {"seconds": 0.3, "warmup_seconds": 0.1, "timeout": 20},
        **changes,
    }
    path = folder / "mini.yaml"
    path.write_text(yaml.safe_dump(sweep, sort_keys=False))
    return path


def environment(**fake: str) -> dict[str, str]:
    """This process's environment with the fake engine in place; names in lower case without `fake_`."""
    return {
        **os.environ,
        "AVBENCH_ENGINE_COMMAND": ENGINE,
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
        **{f"FAKE_{name.upper()}": value for name, value in fake.items()},
    }


def start_avbench(folder: Path, *arguments: str, env: Mapping[str, str]) -> subprocess.Popen[str]:
    """`python -m avbench` in `folder`, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "avbench", *arguments],
        cwd=folder,
        env=dict(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_avbench(folder: Path, *arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """The same, to its end."""
    with start_avbench(folder, *arguments, env=env) as process:
        out, err = process.communicate(timeout=240)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def engines(folder: Path) -> list[int]:
    """Living processes whose command line or environment names `folder`: engines and leashes of its sweeps."""
    return sorted(process.pid for process in psutil.process_iter() if _belongs(process, str(folder)))


def _belongs(process: psutil.Process, folder: str) -> bool:
    try:
        if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return any(folder in word for word in process.cmdline()) or folder in process.environ().get(
            "AVBENCH_TRACE_DIR", ""
        )
    except (psutil.Error, OSError):
        return False


def journal(path: Path) -> Iterator[dict[str, Any]]:
    """Events that engines wrote to `FAKE_JOURNAL`."""
    for line in path.read_text().splitlines():
        yield json.loads(line)
