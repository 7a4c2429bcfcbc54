from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers.models import BPE

from avbench.errors import UsageError
from avbench.reference.text import TextStream
from avbench.reference.tokens import ModelTokenizer, byte_alphabet

IN_STEPS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)


@pytest.fixture(scope="session")
def tokenizer(echo_model: Path) -> ModelTokenizer:
    return ModelTokenizer(echo_model)


def deltas(stream: TextStream, ids: list[int], cuts: list[int]) -> list[str]:
    """Push ids in steps of the given sizes until they end or a stop string is found."""
    out: list[str] = []
    at = 0
    for size in [*cuts, len(ids)]:
        last = at + size >= len(ids)
        out.append(stream.push(ids[at : at + size], last))
        at += size
        if last or stream.stop_reason is not None:
            break
    return out


@IN_STEPS
@given(ids=st.lists(st.integers(0, 299), max_size=60), cuts=st.lists(st.integers(0, 5), max_size=60))
def test_joined_deltas_are_the_decode_of_all_ids(
    echo_model: Path, tokenizer: ModelTokenizer, ids: list[int], cuts: list[int]
) -> None:
    """Random ids are mostly invalid UTF-8: the replacement characters must be those of `tokenizers` too."""
    whole = Tokenizer.from_file(str(echo_model / "tokenizer.json")).decode(ids, skip_special_tokens=True)
    assert "".join(deltas(TextStream(tokenizer.pieces), ids, cuts)) == whole


@IN_STEPS
@given(text=st.text(max_size=40), cuts=st.lists(st.integers(1, 3), max_size=80))
def test_no_delta_shows_part_of_a_character(tokenizer: ModelTokenizer, text: str, cuts: list[int]) -> None:
    ids = list(tokenizer.encode(text, special=False))
    parts = deltas(TextStream(tokenizer.pieces), ids, cuts)
    assert "".join(parts) == text
    assert "\ufffd" in text or not any("\ufffd" in part for part in parts)


def test_a_character_over_three_steps_comes_whole_with_its_last_byte(tokenizer: ModelTokenizer) -> None:
    alphabet = {value: key for key, value in byte_alphabet().items()}
    vocabulary = {piece: id_ for id_, piece in tokenizer.pieces.items()}
    assert len(alphabet) == 256
    stream = TextStream(tokenizer.pieces)
    ids = [vocabulary[bytes([byte])] for byte in "€".encode()]
    assert [stream.push([token], last=False) for token in ids] == ["", "", "€"]


@IN_STEPS
@given(text=st.text("abc", max_size=40), stop=st.text("abc", min_size=1, max_size=4), cuts=st.lists(st.integers(1, 4)))
def test_text_ends_before_the_stop_string(tokenizer: ModelTokenizer, text: str, stop: str, cuts: list[int]) -> None:
    ids = list(tokenizer.encode(text, special=False))
    stream = TextStream(tokenizer.pieces, [stop])
    assert "".join(deltas(stream, ids, cuts)) == text.partition(stop)[0]
    assert stream.stop_reason == (stop if stop in text else None)


@IN_STEPS
@given(text=st.text("abc", max_size=40), stop=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_no_part_of_any_stop_string_is_shown(tokenizer: ModelTokenizer, text: str, stop: list[str]) -> None:
    stream = TextStream(tokenizer.pieces, stop)
    shown = "".join(deltas(stream, list(tokenizer.encode(text, special=False)), [1] * 40))
    assert not any(string in shown for string in stop)
    assert text.startswith(shown + (stream.stop_reason or ""))


def test_ids_without_text_are_silent(tokenizer: ModelTokenizer) -> None:
    assert TextStream(tokenizer.pieces).push([0, 1, 399, 10_000], last=True) == ""


def test_byte_fallback_pieces(tmp_path: Path) -> None:
    tokens = ["<unk>", "<s>", "\u2581the", "<0xE2>", "<0x82>", "<0xAC>"]
    tokenizer = Tokenizer(BPE({token: id_ for id_, token in enumerate(tokens)}, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    stream = TextStream(ModelTokenizer(tmp_path).pieces)
    assert [stream.push([id_], last=False) for id_ in (1, 2, 3, 4, 5)] == ["", " the", "", "", "€"]


def test_an_added_token_outside_the_alphabet_is_its_own_text(echo_model: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(echo_model / "tokenizer.json"))
    tokenizer.add_tokens(["two words"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (id_,) = tokenizer.encode("two words", add_special_tokens=False).ids
    assert TextStream(ModelTokenizer(tmp_path).pieces).push([id_], last=True) == "two words" == tokenizer.decode([id_])


def test_unknown_decoder_is_a_clear_error(tmp_path: Path) -> None:
    tokenizer = Tokenizer(BPE({"a": 0}, []))
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UsageError, match=r"tokenizer.json`: the decoder \['WordPiece'\] is not supported"):
        ModelTokenizer(tmp_path)


def test_missing_tokenizer_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no `tokenizer\.json`"):
        ModelTokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{"),
        ("tokenizer.json", '{"model": {"type": "None"}}'),
        ("tokenizer_config.json", "["),
        ("chat_template.jinja", "{% for %}"),
    ],
)
def test_broken_files_are_a_clear_error(echo_model: Path, tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes((echo_model / "tokenizer.json").read_bytes())
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=f"^the tokenizer of `{tmp_path}` cannot be read: ."):
        ModelTokenizer(tmp_path)


def test_chat_template_of_an_older_checkpoint(echo_model: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((echo_model / "tokenizer.json").read_bytes())
    template = "{{ eos_token }}{{ messages[0]['content'] | tojson }}{% if add_generation_prompt %}>{% endif %}"
    templates = [{"name": "tools", "template": "no"}, {"name": "default", "template": template}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": templates}))
    assert ModelTokenizer(tmp_path).render([{"role": "user", "content": "<a> ü"}]) == '</s>"<a> ü">'


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.append(1) }}", "access to attribute 'append' of 'list' object is unsafe"),
        ("{{ messages[5].content.x }}", "list object has no element 5"),
        (None, "no chat template; use /v1/completions"),
    ],
)
def test_chat_template_that_refuses(echo_model: Path, tmp_path: Path, template: str | None, message: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes((echo_model / "tokenizer.json").read_bytes())
    if template is not None:
        (tmp_path / "chat_template.jinja").write_text(template)
    with pytest.raises(ValueError, match=message):
        ModelTokenizer(tmp_path).render([{"role": "user", "content": "hi"}])
