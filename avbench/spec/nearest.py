"""What was probably meant by a word that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known word that is most similar, None if none is (`cutoff`: least similarity, from 0 to 1)."""
    return next(iter(get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(near: str | None, rest: str = "") -> str:
    """The hint: the near word, if there is one, and then `rest`, such as all that is known."""
    return f"did you mean `{near}`? {rest}".rstrip() if near else rest
