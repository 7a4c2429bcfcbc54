"""Every mistake gets one error that names file, line, key, value and expectation, and a hint."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from avbench.errors import UsageError
from avbench.spec.reader import read_sweep

CASES = yaml.safe_load(Path(__file__).with_name("bad_sweeps.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_message_and_hint(case: dict[str, str], valid: str, sweep_folder: Path) -> None:
    assert case["replace"] in valid
    Path("x.yaml").write_text(valid.replace(case["replace"], case["by"], 1))
    with pytest.raises(UsageError) as caught:
        read_sweep(Path("x.yaml"))
    assert caught.value.message == case["error"].replace("{folder}", str(sweep_folder.resolve()))
    assert caught.value.hint == case["hint"].replace("{folder}", str(sweep_folder.resolve()))
    assert caught.value.exit_code == 2


def _error(path: Path) -> tuple[str, str | None]:
    with pytest.raises(UsageError) as caught:
        read_sweep(path)
    return caught.value.message, caught.value.hint


def test_missing_file_names_the_nearest_one(sweep_folder: Path) -> None:
    Path("quickstart.yaml").write_text("")
    assert _error(Path("quikstart.yaml")) == (
        "quikstart.yaml: there is no such file",
        "did you mean `quickstart.yaml`?",
    )
    assert _error(Path("nofolder/x.yaml"))[0] == "nofolder/x.yaml: there is no such file"


def test_folder_instead_of_file(sweep_folder: Path) -> None:
    Path("sweeps").mkdir()
    Path("sweeps/a.yaml").write_text("")
    assert _error(Path("sweeps")) == (
        "sweeps: a folder, expected a sweep file",
        "give one of its files: sweeps/a.yaml.",
    )


def test_part_of_the_path_is_a_file(sweep_folder: Path) -> None:
    assert _error(Path("words.jsonl/x.yaml")) == (
        "words.jsonl/x.yaml: cannot be read: Not a directory",
        "check the path and its rights.",
    )


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n"])
def test_empty_file(text: str, sweep_folder: Path) -> None:
    Path("x.yaml").write_text(text)
    message, hint = _error(Path("x.yaml"))
    assert message == "x.yaml:1: the file is empty, expected the keys of a sweep"
    assert hint == "start from `sweeps/quickstart.yaml`; `avbench schema` prints all keys."


@pytest.mark.parametrize("text", ["- none\n", "just text\n", "3\n"])
def test_top_is_no_mapping(text: str, sweep_folder: Path) -> None:
    Path("x.yaml").write_text("# a comment\n" + text)
    assert _error(Path("x.yaml"))[0] == ("x.yaml:2: the top of the file is not a mapping, expected the keys of a sweep")


def test_not_utf8(valid: str, sweep_folder: Path) -> None:
    Path("x.yaml").write_bytes(valid.encode() + b"# caf\xe9\n")
    assert _error(Path("x.yaml")) == ("x.yaml:14: not UTF-8: byte 0xe9", "save the file in the encoding UTF-8.")


def test_name_unfit_for_the_results_folder(valid: str, sweep_folder: Path) -> None:
    Path("my sweep.yaml").write_text(valid)
    assert _error(Path("my sweep.yaml"))[0] == (
        "my sweep.yaml:1: the file's name gives the results folder its name, and `my sweep` is unfit for that"
    )


def test_problems_are_counted_and_the_first_by_line_is_told(valid: str, sweep_folder: Path) -> None:
    Path("x.yaml").write_text(valid.replace("passes: 2", "passes: 0\nseed: x").replace("[1, 8]", "[0, 8]"))
    assert _error(Path("x.yaml"))[0] == (
        "x.yaml:12: `load.concurrency[0]`: got `0`, expected a whole number from 1 to 16384 "
        "(and 2 more problems, lines 13, 14)"
    )
    Path("x.yaml").write_text(valid.replace("[1, 8]", "[8, 8]").replace("prompts: words", "prompts: wrods"))
    assert _error(Path("x.yaml"))[0].endswith("wrods.jsonl (and 1 more problem, line 12)")


def test_duplicate_workload_names_ignore_case(valid: str, sweep_folder: Path) -> None:
    second = "max_tokens: 48\n  - {prompts: words.jsonl, max_tokens: 8, name: WORDS}"
    Path("x.yaml").write_text(valid.replace("max_tokens: 48", second))
    assert _error(Path("x.yaml")) == (
        "x.yaml:11: `workloads[1].name`: two workloads have the name `words`",
        "give each workload its own `name`.",
    )


def test_shipped_weights_that_are_not_installed(
    valid: str, sweep_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("avbench.spec.models.shipped_weights", lambda: sweep_folder / "nothing")
    Path("x.yaml").write_text(valid.replace("target: target", "target: avbench:target"))
    assert _error(Path("x.yaml")) == (
        "x.yaml:2: `pair.target`: model `avbench:target`: its weights are missing from this installation "
        f"({sweep_folder / 'nothing' / 'target'})",
        "install avbench again, or train them with `python -m avbench.reference.train`.",
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("~nobody-of-this-name/m", "'~nobody-of-this-name/m' is not a path that can be read: Could not determine home"),
        ('"a\\0b"', "'a\\x00b' is not a path that can be read: "),
        ("m" * 300, f"'{'m' * 57}...' is not a path that can be read: File name too long"),
    ],
)
def test_names_that_no_file_can_have(name: str, said: str, valid: str, sweep_folder: Path) -> None:
    Path("x.yaml").write_text(valid.replace("target: target", f"target: {name}"))
    assert _error(Path("x.yaml"))[0].startswith(f"x.yaml:2: `pair.target`: {said}")
    Path("x.yaml").write_text(valid.replace("words.jsonl", name))
    assert _error(Path("x.yaml"))[0].startswith(f"x.yaml:9: `workloads[0].prompts`: {said}")


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_mangled_files_never_end_in_a_traceback(data: st.DataObject, valid: str, sweep_folder: Path) -> None:
    start = data.draw(st.integers(0, len(valid)))
    end = data.draw(st.integers(start, min(len(valid), start + 12)))
    pieces = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
        [
            "{",
            "}",
            "[",
            "]",
            ": ",
            "- ",
            "\t",
            "&a ",
            "*a",
            "<<: ",
            "!!int ",
            "!!set ",
            "? ",
            "'",
            '"',
            "|\n",
            "%",
            "\x00",
            "~",
            "/",
            "\\0",
        ]
    )
    Path("x.yaml").write_text(valid[:start] + data.draw(pieces) + valid[end:], newline="")
    try:
        assert read_sweep(Path("x.yaml")).name == "x"
    except UsageError as error:
        problem = error
    else:
        return
    assert problem.message.startswith("x.yaml:")
    assert problem.hint
