"""What a person sees of a page."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.real.chromium import Page

STICKING_OUT = """[...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, pre, .plot')
    && e.getBoundingClientRect().right > window.innerWidth + 1).map((e) => e.outerHTML.slice(0, 120))"""
CONTRASTS = """(() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const rgb = numbers(getComputedStyle(e).backgroundColor);
      if (rgb.length < 4 || rgb[3] === 1) return rgb;
    }
    return [255, 255, 255];
  };
  const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const words = [...document.querySelectorAll('p, td, th, h1, h2, h3, dt, dd, a, code, .shown, .unshown')]
    .filter((e) => e.textContent.trim())
    .map((e) => contrast(light(numbers(getComputedStyle(e).color)), light(ground(e))));
  const plot = [...document.querySelectorAll('.plot text')]
    .map((e) => contrast(light(numbers(getComputedStyle(e).fill)), light(ground(e.closest('section')))));
  return [Math.min(...words), Math.min(...plot), light(ground(document.body))];
})()"""


class View:
    """A tab that shows a page; every call waits for the browser."""

    def __init__(self, loop: asyncio.Runner, page: Page) -> None:
        self._loop, self.page = loop, page

    def run(self, expression: str) -> Any:
        return self._loop.run(self.page.run(expression))

    def until(self, expression: str) -> None:
        self._loop.run(self.page.until(expression))

    def sticking_out(self) -> list[str]:
        """Elements that end to the right of the window and do not scroll."""
        return list(self.run(STICKING_OUT))

    def contrasts(self) -> tuple[float, float, float]:
        """Smallest WCAG contrast of words and of the plots' text to their ground, and how light the page is."""
        words, plot, ground = self.run(CONTRASTS)
        return words, plot, ground
