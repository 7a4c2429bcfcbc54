"""The report in a real browser, from a file: plots drawn, nothing fetched, no error, no sideways scrolling."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from avbench.analysis.results import read_results
from avbench.report.page import write_report
from tests.factories import ADAPTIVE, FIXED_3, NONE, PAIR, make_manifest, make_measurements
from tests.folders import write_results, write_sweep
from tests.real.chromium import Browser, Page, find_chromium

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium or chrome on PATH (Debian: apt-get install chromium)"
)

DRAWN = "document.documentElement.dataset.drawn !== undefined"
EVIL = "<script>window.executed=1</script><img src=x onerror='window.executed=1'>"


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    """One event loop for the whole module: the browser's connections belong to it."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def browser(loop: asyncio.Runner) -> Iterator[Browser]:
    assert CHROMIUM is not None
    browser = Browser(CHROMIUM)
    loop.run(browser.start())
    yield browser
    loop.run(browser.stop())


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_sweep(tmp_path_factory.mktemp("results") / "toy")
    return write_report(read_results(root), root / "report.html")


Show = Callable[..., "View"]


class View:
    """A tab that shows a report; every call waits for the browser."""

    def __init__(self, loop: asyncio.Runner, page: Page) -> None:
        self._loop, self.page = loop, page

    def run(self, expression: str) -> Any:
        return self._loop.run(self.page.run(expression))

    def until(self, expression: str) -> None:
        self._loop.run(self.page.until(expression))


@pytest.fixture(scope="module")
def show(loop: asyncio.Runner, browser: Browser) -> Show:
    """Opens a report and waits for its plots; one tab for each report, width and theme."""
    tabs: dict[tuple[Path, int, bool], View] = {}

    def open_report(report: Path, *, width: int, dark: bool = False) -> View:
        key = (report, width, dark)
        if key not in tabs:
            page = loop.run(browser.new_page(width=width, dark=dark))
            loop.run(page.open(report))
            loop.run(page.until(DRAWN))
            tabs[key] = View(loop, page)
        return tabs[key]

    return open_report


@pytest.mark.parametrize("width", [1400, 420])
def test_plots_are_drawn_without_errors_or_requests(report: Path, show: Show, width: int) -> None:
    view = show(report, width=width)
    assert view.page.problems == []
    assert view.page.requests == [report.resolve().as_uri()]
    assert view.run("document.querySelectorAll('.plot').length") == 4
    # Fronts: the band and 5 arms; coefficients: slope, 7 intercepts, log-loss.
    assert view.run("document.querySelectorAll('.plot .scatterlayer .trace').length") == 2 * 6 + 2 * 9
    content, window = view.run("[document.documentElement.scrollWidth, window.innerWidth]")
    assert content <= window == width


def test_nothing_sticks_out_of_its_box_on_a_phone(report: Path, show: Show) -> None:
    sticking = """[...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, pre, .plot')
        && e.getBoundingClientRect().right > window.innerWidth + 1).map((e) => e.outerHTML.slice(0, 120))"""
    assert show(report, width=420).run(sticking) == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground_in_both_themes(report: Path, show: Show, dark: bool) -> None:
    """WCAG contrast of at least 4.5 for words and 3 for the plots' text."""
    measure = """(() => {
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
    words, plot, ground = show(report, width=1400, dark=dark).run(measure)
    assert words >= 4.5
    assert plot >= 3.0
    assert (ground < 0.1) is dark


def test_hovering_a_point_shows_its_figures(report: Path, show: Show) -> None:
    view = show(report, width=1400)
    view.run("void Plotly.Fx.hover(document.getElementById('front-0'), [{curveNumber: 5, pointNumber: 1}])")
    view.until("document.querySelector('#front-0 .hovertext text') !== null")
    shown = view.run("document.querySelector('#front-0 .hovertext').textContent")
    assert "AV 7 · C=8" in shown
    assert "acceptance length" in shown


def test_the_axes_button_switches_to_logarithms_and_back(report: Path, show: Show) -> None:
    view = show(report, width=1400)
    found = []
    for _ in range(2):
        view.run("document.querySelector('button[data-log=front-0]').click()")
        found.append(view.run("document.getElementById('front-0').layout.yaxis.type"))
    assert found == ["log", "linear"]


def test_the_flag_can_be_copied(report: Path, show: Show) -> None:
    view = show(report, width=1400)
    view.run("void (navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); })")
    view.run("document.querySelector('.command button').click()")
    view.until("window.copied !== undefined")
    copied = view.run("window.copied")
    assert copied.startswith("--speculative-config '{")
    assert json.loads(copied.split("'")[1])["enable_adaptive_verification"] is True


def test_names_from_the_results_are_never_executed(tmp_path: Path, show: Show) -> None:
    pair = dataclasses.replace(PAIR, name=EVIL, draft=EVIL)
    arms = (NONE, FIXED_3, ADAPTIVE)
    cells = [
        dataclasses.replace(cell, cell_id=f"cell-{i}", notes=(EVIL,))
        for i, cell in enumerate(make_measurements(arms=arms, workloads=(EVIL,)))
    ]
    manifest = make_manifest(arms=arms, workloads=(EVIL,), pair=pair, spec_text=EVIL, environment={EVIL: EVIL})
    root = write_results(tmp_path / "evil", cells, manifest)
    view = show(write_report(read_results(root), root / "report.html"), width=1400)
    view.run("void Plotly.Fx.hover(document.getElementById('front-0'), [{curveNumber: 1, pointNumber: 0}])")
    assert view.run("window.executed ?? null") is None
    assert view.page.problems == []
    assert len(view.page.requests) == 1
