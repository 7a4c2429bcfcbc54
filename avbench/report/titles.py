"""Titles over figures."""

from __future__ import annotations


def titled(title: str, costs: str | None) -> str:
    """`code (emulated: B300)`: a title over figures says when their seconds are virtual. `costs`: the table's name."""
    return title if costs is None else f"{title} (emulated: {costs})"
