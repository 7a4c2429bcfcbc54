"""Prompt sets from files: the forms that are read, and what is said about the others."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from avbench.errors import UsageError
from avbench.prompts import Message, Prompt, PromptSet, load_prompts
from avbench.spec.prompt_files import shipped_prompts, shipped_sets

PUBLIC = Path(__file__).parents[4] / "shared" / "data" / "prompts"
OTHER = '{"prompt": "another"}\n'


def _load(folder: Path, text: str, name: str = "set.jsonl") -> PromptSet:
    (folder / name).write_text(text)
    return load_prompts(name, folder)


@pytest.mark.parametrize(
    ("line", "prompt"),
    [
        ('{"prompt": "a"}', Prompt(id="1", text="a")),
        ('{"id": "x", "text": "a"}', Prompt(id="x", text="a")),
        ('{"task_id": "HumanEval/0", "prompt": "def f():", "test": "t"}', Prompt(id="HumanEval/0", text="def f():")),
        ('{"question_id": 81, "turns": ["first", "second"]}', Prompt(id="81", text="first")),
        ('{"question": "How many?", "answer": "3"}', Prompt(id="1", text="How many?")),
        (
            '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "prompt": "no"}',
            Prompt(id="1", messages=(Message(role="system", content="s"), Message(role="user", content="u"))),
        ),
        ('  {"prompt": " kept as it is \\n"}  ', Prompt(id="1", text=" kept as it is \n")),
        ('{"prompt": "a\u2028b\u0085c"}', Prompt(id="1", text="a\u2028b\u0085c")),
    ],
)
def test_forms(line: str, prompt: Prompt, tmp_path: Path) -> None:
    assert _load(tmp_path, f"{line}\n{OTHER}").prompts == (prompt, Prompt(id="2", text="another"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ('["a"]', "not a JSON object"),
        ("3", "not a JSON object"),
        ("{}", "no prompt: has no keys"),
        ('{"instruction": "a", "output": "b"}', "no prompt: has `instruction`, `output`"),
        ('{"prompt": 3}', "`prompt` is a number, expected text"),
        ('{"prompt": null}', "`prompt` is missing, expected text"),
        ('{"prompt": ["a"]}', "`prompt` is a list, expected text"),
        ('{"prompt": ""}', "`prompt` is blank"),
        ('{"prompt": " \\n"}', "`prompt` is blank"),
        ('{"prompt": "\\ud800"}', "`prompt` holds half a character (U+D800)"),
        ('{"turns": []}', "`turns` is an empty list, expected a list of texts"),
        ('{"turns": "a"}', "`turns` is text, expected a list of texts"),
        ('{"turns": [1]}', "`turns[0]` is a number, expected text"),
        ('{"messages": {}}', "`messages` is an empty mapping, expected a list of messages"),
        ('{"messages": ["a"]}', "`messages[0]` is text, expected a mapping with `role` and `content`"),
        ('{"messages": [{"role": "user"}]}', "`messages[0].content` is missing, expected text"),
        ('{"id": true, "prompt": "a"}', "`id` is true or false, expected text or a whole number"),
        ('{"id": 1.5, "prompt": "a"}', "`id` is a number, expected text or a whole number"),
        ('{"id": "1", "prompt": "a"}', "the id `1` is already on line 1"),
    ],
)
def test_bad_line(line: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        _load(tmp_path, f"{OTHER}\n{line}\n")
    assert caught.value.message == f"{tmp_path / 'set.jsonl'}:3: {said}"
    assert caught.value.hint


@pytest.mark.parametrize(("text", "count"), [("", 0), ("\n\n", 0), (OTHER, 1)])
def test_too_small(text: str, count: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"set.jsonl: {count} prompts, expected at least 2"):
        _load(tmp_path, text)


def test_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_bytes(OTHER.encode() + b'{"prompt": "caf\xe9"}\n')
    with pytest.raises(UsageError, match=r"set\.jsonl:2: not UTF-8"):
        load_prompts("set.jsonl", tmp_path)


def test_gzip_is_the_same_set(tmp_path: Path) -> None:
    text = '{"prompt": "a"}\n' + OTHER
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    packed = load_prompts("packed.jsonl.gz", tmp_path)
    assert packed.name == "packed"
    assert packed.fingerprint == _load(tmp_path, text).fingerprint


@pytest.mark.parametrize("raw", [b"plain text", gzip.compress(OTHER.encode() * 100)[:-20], b""])
def test_broken_gzip(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "set.jsonl.gz").write_bytes(raw)
    with pytest.raises(UsageError, match=r"set\.jsonl\.gz: (not a whole gzip file|0 prompts)"):
        load_prompts("set.jsonl.gz", tmp_path)


def test_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    plain = _load(tmp_path, '{"id": "a", "prompt": "x"}\n{"id": "b", "prompt": "y"}\n')
    same = _load(tmp_path, '\ufeff\n{"task_id": "a", "text": "x", "more": 1}\n{"text": "y", "id": "b"}', "other.jsonl")
    changed = _load(tmp_path, '{"id": "a", "prompt": "x"}\n{"id": "b", "prompt": "y "}\n')
    swapped = _load(tmp_path, '{"id": "b", "prompt": "y"}\n{"id": "a", "prompt": "x"}\n')
    chat = _load(
        tmp_path,
        '{"id": "a", "messages": [{"role": "user", "content": "x"}]}\n{"id": "b", "prompt": "y"}\n',
    )
    assert plain.fingerprint == same.fingerprint
    assert len({plain.fingerprint, changed.fingerprint, swapped.fingerprint, chat.fingerprint}) == 4


def test_text_as_messages(tmp_path: Path) -> None:
    assert Prompt(id="1", text="a").as_messages() == [{"role": "user", "content": "a"}]
    conversation = Prompt(id="1", messages=(Message(role="system", content="s"), Message(role="user", content="u")))
    assert conversation.as_messages() == [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


@pytest.mark.parametrize("name", ["code", "prose"])
def test_shipped_set(name: str, tmp_path: Path) -> None:
    prompts = load_prompts(name, tmp_path)
    texts = [prompt.text or "" for prompt in prompts.prompts]
    assert len(set(texts)) == 150
    assert all(len(text) >= 80 for text in texts)


def test_shipped_sets_are_small() -> None:
    assert set(shipped_sets()) >= {"code", "prose"}
    assert sum(path.stat().st_size for path in shipped_prompts().iterdir()) < 100_000


def test_a_shipped_name_wins_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "code").write_text(OTHER * 2)
    assert len(load_prompts("code", tmp_path).prompts) == 150


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="no public prompt sets beside the repository")
@pytest.mark.parametrize(
    ("file", "name", "count", "first"),
    [
        ("HumanEval.jsonl.gz", "HumanEval", 164, "HumanEval/0"),
        ("gsm8k_test.jsonl", "gsm8k_test", 1319, "1"),
        ("mt_bench_question.jsonl", "mt_bench_question", 80, "81"),
        ("spec_bench_question.jsonl", "spec_bench_question", 480, "81"),
    ],
)
def test_public_sets(file: str, name: str, count: int, first: str) -> None:
    prompts = load_prompts(file, PUBLIC)
    assert (prompts.name, len(prompts.prompts), prompts.prompts[0].id) == (name, count, first)
    raw = (PUBLIC / file).read_bytes()
    record = json.loads((gzip.decompress(raw) if file.endswith(".gz") else raw).split(b"\n")[0])
    assert prompts.prompts[0].text == (record.get("prompt") or record.get("question") or record["turns"][0])
