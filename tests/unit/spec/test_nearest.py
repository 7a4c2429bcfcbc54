"""The one form of `did you mean`."""

from __future__ import annotations

import pytest

from avbench.spec.nearest import did_you_mean, nearest


@pytest.mark.parametrize(
    ("word", "cutoff", "near"), [("gredy", 0.6, "greedy"), ("nil", 0.6, None), ("nil", 0.2, "none"), ("", 0.6, None)]
)
def test_the_most_similar_word(word: str, cutoff: float, near: str | None) -> None:
    assert nearest(word, ("none", "greedy"), cutoff=cutoff) == near


def test_the_hint() -> None:
    assert did_you_mean("none") == "did you mean `none`?"
    assert did_you_mean("none", "It can be: none.") == "did you mean `none`? It can be: none."
    assert did_you_mean(None, "It can be: none.") == "It can be: none."
    assert did_you_mean(None) == ""
