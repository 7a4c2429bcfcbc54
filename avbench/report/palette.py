"""Colours and markers of arms: Okabe and Ito's palette (told apart by colour-blind people), and a shape for each arm.

`@ink` and the like are replaced by the page with the colours of its light or dark theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from avbench.spec.arm import Arm

INK = "@ink"  # Okabe-Ito's black, near white on a dark page
VERMILLION = "#D55E00"
FIXED_COLOURS = ("#56B4E9", "#009E73", "#E69F00", "#0072B2", "#CC79A7", "#F0E442")
FIXED_SYMBOLS = ("square", "triangle-up", "diamond", "triangle-down", "pentagon", "hexagon")
ADAPTIVE_COLOURS = (VERMILLION, "#0072B2", "#CC79A7")
ADAPTIVE_SYMBOLS = ("star", "hexagram", "star-diamond")
POSITION_COLOURS = ("#D55E00", "#E69F00", "#009E73", "#56B4E9", "#0072B2", "#CC79A7")
DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True, kw_only=True)
class Look:
    """How an arm is drawn."""

    colour: str
    symbol: str
    dash: str
    width: float


def arm_looks(arms: Sequence[Arm]) -> Mapping[str, Look]:
    """By arm id. Past six fixed arms colours come again with another dash and shape order."""
    looks: dict[str, Look] = {}
    fixed = adaptive = 0
    for arm in arms:
        if arm.kind == "none":
            looks[arm.id] = Look(colour=INK, symbol="circle", dash="dot", width=2)
        elif arm.kind == "fixed":
            looks[arm.id] = _look(fixed, FIXED_COLOURS, FIXED_SYMBOLS, width=2)
            fixed += 1
        else:
            looks[arm.id] = _look(adaptive, ADAPTIVE_COLOURS, ADAPTIVE_SYMBOLS, width=3.5)
            adaptive += 1
    return looks


def _look(index: int, colours: Sequence[str], symbols: Sequence[str], *, width: float) -> Look:
    lap, place = divmod(index, len(colours))
    symbol = symbols[(place + lap) % len(symbols)]
    return Look(colour=colours[place], symbol=symbol, dash=DASHES[lap % len(DASHES)], width=width)
