"""A browser for the tests of pages, and the pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from avbench.analysis.results import read_results
from avbench.report.page import write_report
from tests.folders import write_sweep
from tests.real.chromium import Browser, find_chromium
from tests.real.view import View

DRAWN = "document.documentElement.dataset.drawn !== undefined"

Show = Callable[..., View]


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.Runner]:
    """One event loop for all: the browser's connections belong to it."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def browser(loop: asyncio.Runner) -> Iterator[Browser]:
    executable = find_chromium()
    if executable is None:
        pytest.skip("no chromium or chrome on PATH (Debian: apt-get install chromium)")
    browser = Browser(executable)
    loop.run(browser.start())
    yield browser
    loop.run(browser.stop())


@pytest.fixture(scope="session")
def show(loop: asyncio.Runner, browser: Browser) -> Show:
    """Opens a page and waits for its plots; one tab for each page, width and theme."""
    tabs: dict[tuple[Path, int, bool], View] = {}

    def open_page(path: Path, *, width: int, dark: bool = False) -> View:
        key = (path, width, dark)
        if key not in tabs:
            page = loop.run(browser.new_page(width=width, dark=dark))
            loop.run(page.open(path))
            loop.run(page.until(DRAWN))
            tabs[key] = View(loop, page)
        return tabs[key]

    return open_page


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_sweep(tmp_path_factory.mktemp("results") / "toy")
    return write_report(read_results(root), root / "report.html")
