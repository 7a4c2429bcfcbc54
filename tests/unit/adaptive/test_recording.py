"""Bad recordings end with exit code 2 and say what is wrong where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from avbench.adaptive.__main__ import main

Arrays = dict[str, NDArray]


def estimate() -> Arrays:
    rng = np.random.default_rng(0)
    return {
        "logits": rng.standard_normal((6, 2, 3, 5)),
        "accepted": np.ones((6, 2), dtype=int),
        "rejected": np.ones((6, 2), dtype=int),
        "refit_interval": np.array(2),
    }


def budget() -> Arrays:
    return {"conf": np.full((2, 3), 0.5), "capacities": np.array([3, 2]), "draft_budget": np.array(2)}


def cost() -> Arrays:
    return {
        "draft_curve": np.array([[1.0, 1.0]]),
        "verify_curve": np.array([[1.0, 1.0], [8.0, 2.0]]),
        "max_num_reqs": np.array(2),
        "max_batch_tokens": np.array(8),
    }


def manager() -> Arrays:
    return {
        **cost(),
        "conf": np.full((4, 2, 3), 0.5),
        "drafts": np.full((4, 2), 3),
        "nondraft": np.ones((4, 2), dtype=int),
    }


GOOD = {"estimate": estimate, "budget": budget, "cost": cost, "manager": manager}


def run(command: str, arrays: Arrays, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    np.savez(folder / "in.npz", **arrays)
    code = main([command, str(folder / "in.npz"), str(folder / "out.npz")])
    captured = capsys.readouterr()
    assert captured.out == ""
    return code, captured.err


@pytest.mark.parametrize("command", GOOD)
def test_good_recordings_are_replayed(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, GOOD[command](), tmp_path, capsys) == (0, "")
    assert (tmp_path / "out.npz").exists()


BAD = [
    ("estimate", {"accepted": None}, "array `accepted` is missing"),
    ("estimate", {"logits": None}, "array `features` is missing"),
    ("estimate", {"accepted": np.ones((6, 3), dtype=int)}, "`accepted` has shape (6, 3), expected [T, R] = (6, 2)"),
    ("estimate", {"rejected": np.ones(6, dtype=int)}, "`rejected` has shape (6,), expected [T, R] = (6, 2)"),
    ("estimate", {"logits": np.ones((6, 2, 3))}, "`logits` has shape (6, 2, 3), expected [T, R, K, V]"),
    ("estimate", {"logits": np.ones((6, 2, 3, 0))}, "empty vocabulary"),
    ("estimate", {"logits": np.ones((6, 2, 0, 4))}, "no draft position"),
    ("estimate", {"accepted": np.full((6, 2), 0.5)}, "`accepted` must hold whole numbers"),
    ("estimate", {"accepted": np.full((6, 2), "one")}, "`accepted` has type <U3, expected numbers"),
    ("estimate", {"temperature": np.ones(3)}, "`temperature` has shape (3,), expected [R] = (2)"),
    ("estimate", {"draft_active": np.ones(6, dtype=bool)}, "`draft_active` has shape (6,)"),
    ("estimate", {"refit_interval": np.array(0)}, "`refit_interval` is 0, expected a number of at least 1"),
    ("estimate", {"refit_interval": np.array(1.5)}, "`refit_interval` is 1.5, expected a whole number"),
    ("estimate", {"refit_interval": np.array([1, 2])}, "`refit_interval` has shape (2,)"),
    ("estimate", {"intercepts0": np.zeros(2)}, "`intercepts0` has shape (2,), expected [K] = (3)"),
    ("estimate", {"damping": np.array(np.nan)}, "`damping` is nan"),
    ("budget", {"draft_budget": None}, "array `draft_budget` is missing"),
    ("budget", {"draft_budget": np.array(-1)}, "`draft_budget` is -1"),
    ("budget", {"capacities": np.array([3, 2, 1])}, "`capacities` has shape (3,), expected [R] = (2)"),
    ("budget", {"capacities": np.array([4, 2])}, "`capacities` must lie between 0 and the 3 draft positions"),
    ("budget", {"conf": np.full((2, 3), 1.5)}, "`conf` must hold probabilities"),
    ("budget", {"conf": np.full((2, 3), np.nan)}, "`conf` must hold probabilities"),
    ("cost", {"draft_curve": np.zeros((0, 2))}, "`draft_curve` must hold at least one (size, cost) point"),
    ("cost", {"verify_curve": np.zeros((3, 3))}, "`verify_curve` has shape (3, 3), expected [m, 2]"),
    ("cost", {"verify_curve": np.full((3, 2), np.inf)}, "`verify_curve` must hold at least one"),
    ("cost", {"max_batch_tokens": np.array(-1)}, "`max_batch_tokens` is -1"),
    ("manager", {"conf": np.full((4, 2), 0.5)}, "`conf` has shape (4, 2), expected [T, R, K]"),
    ("manager", {"drafts": np.full((4, 2), 4)}, "`drafts` must lie between 0 and the 3 draft positions"),
    ("manager", {"drafts": np.full((4, 2), -1)}, "`drafts` must lie between 0 and the 3 draft positions"),
    ("manager", {"max_batch_tokens": np.array(7)}, "up to 8 tokens is larger than the cost tables"),
    ("manager", {"max_num_reqs": np.array(1)}, "a step of 2 requests"),
    ("manager", {"sampling": np.ones((3, 2), dtype=bool)}, "`sampling` has shape (3, 2)"),
]


@pytest.mark.parametrize(("command", "change", "message"), BAD)
def test_bad_recordings_are_explained(
    command: str, change: dict[str, NDArray | None], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = {name: array for name, array in (GOOD[command]() | change).items() if array is not None}
    code, err = run(command, arrays, tmp_path, capsys)
    assert code == 2
    assert err.startswith("error: ")
    assert message in err
    assert not (tmp_path / "out.npz").exists()


def test_a_missing_array_names_those_that_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = run("budget", {"conf": np.ones((1, 1)), "other": np.ones(1)}, tmp_path, capsys)
    assert "hint: the file holds `conf`, `other`" in err


@pytest.mark.parametrize("content", [None, b"", b"not an archive", "cut", "single", "pickle"])
def test_unreadable_files_are_explained(
    content: bytes | str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, **budget())
    if content is None:
        path.unlink()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "cut":
        path.write_bytes(path.read_bytes()[:300])
    elif content == "single":
        with path.open("wb") as file:
            np.save(file, np.ones(3))
    else:
        np.savez(path, conf=np.array([{"a": 1}], dtype=object))
    assert main(["budget", str(path), str(tmp_path / "out.npz")]) == 2
    assert str(path) in capsys.readouterr().err


def test_unwritable_output_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "in.npz", **budget())
    assert main(["budget", str(tmp_path / "in.npz"), str(tmp_path / "no" / "out.npz")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_floats_and_one_element_arrays_are_taken_for_what_they_are(tmp_path: Path) -> None:
    arrays = estimate() | {"accepted": np.ones((6, 2)), "refit_interval": np.array([2.0]), "temperature": np.array(0.0)}
    np.savez(tmp_path / "in.npz", **arrays)
    assert main(["estimate", str(tmp_path / "in.npz"), str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as file:
        assert file["refit_row"].tolist() == [1, 3, 5]


def test_curves_that_vllm_would_not_measure_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = run("cost", cost() | {"verify_curve": np.array([[8.0, 2.0], [1.0, 1.0]])}, tmp_path, capsys)
    assert code == 0
    assert err.startswith("note: ")
    assert "the sizes of `verify_curve` do not rise" in err


def test_nan_confidences_are_refused_only_where_they_are_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Slot 1 has no confidences until step 2 and no drafts until they are sized from, in step 4; or too early."""
    arrays = manager()
    arrays["conf"] = np.full((6, 2, 3), 0.5)
    arrays["conf"][:2, 1] = np.nan
    arrays["nondraft"], arrays["drafts"] = np.ones((6, 2), dtype=int), np.full((6, 2), 3)
    arrays["drafts"][:4, 1] = 0
    assert run("manager", arrays, tmp_path, capsys) == (0, "")
    arrays["drafts"][3, 1] = 1
    code, err = run("manager", arrays, tmp_path, capsys)
    assert code == 2
    assert "step 3 needs confidences that `conf` gives as NaN" in err


@pytest.mark.parametrize("steps", [0, 1])
def test_recordings_without_a_refit_have_empty_rounds(steps: int, tmp_path: Path) -> None:
    arrays = {"features": np.zeros((steps, 2, 3)), "accepted": np.zeros((steps, 2)), "rejected": np.zeros((steps, 2))}
    np.savez(tmp_path / "in.npz", **arrays)
    assert main(["estimate", str(tmp_path / "in.npz"), str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as file:
        assert file["counts"].shape == (0, 3)
        assert file["slope"].tolist() == [0.5]
        assert file["predictions"].shape == (steps, 2, 3)


def test_it_runs_as_a_module_without_torch(tmp_path: Path) -> None:
    """torch would cost seconds; the engine and this command need numpy alone."""
    np.savez(tmp_path / "in.npz", **budget())
    arguments = ["budget", str(tmp_path / "in.npz"), str(tmp_path / "out.npz")]
    code = (
        "import runpy, sys\n"
        "try:\n    runpy.run_module('avbench.adaptive', run_name='__main__', alter_sys=True)\n"
        "finally:\n    assert not {'torch', 'pandas', 'scipy'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "out.npz").exists()
