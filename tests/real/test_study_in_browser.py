"""The study's page in a real browser, and what every page of avbench has to pass there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from avbench.analysis.study.load import load_labels
from avbench.analysis.study.study import make_study
from avbench.report.study_page import write_study
from tests.label_factories import INFO, Truth, make_labels, write_labels
from tests.real.conftest import Show

EVIL = "<img src=x onerror='window.executed=1'>"  # a path has no slash in its last part
SETS = {"code": Truth(mean=2.2), "prose": Truth(mean=0.4)}
PAGES = ("report", "study")
SIZES = (1400, 420)
HOVER = """[...document.querySelectorAll('.plot')].map((plot) => {
    const last = plot.data.findLastIndex((curve) => curve.hoverinfo !== 'skip' && curve.visible !== 'legendonly');
    const { xaxis = 'x', yaxis = 'y' } = plot.data[last];
    Plotly.Fx.hover(plot, [{ curveNumber: last, pointNumber: 0 }], xaxis + yaxis);
    return plot.id;
})"""


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two data sets of a pair whose name wants to be executed."""
    root = tmp_path_factory.mktemp("labels")
    paths = [
        write_labels(
            root / f"{name}.parquet",
            make_labels(truth, steps=800, seed=n),
            INFO | {"source": "estimator", "observe": True, "target": EVIL},
        )
        for n, (name, truth) in enumerate(SETS.items())
    ]
    return write_study(make_study(load_labels(paths), replicates=50), root / "study.html")


@pytest.fixture(params=PAGES)
def document(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("width", SIZES)
def test_plots_are_drawn_without_errors_or_requests(document: Path, show: Show, width: int) -> None:
    view = show(document, width=width)
    assert view.page.problems == []
    assert view.page.requests == [document.resolve().as_uri()]
    drawn = view.run("[...document.querySelectorAll('.plot')].map((p) => p.querySelectorAll('.trace').length)")
    assert len(drawn) >= 4
    assert all(drawn)
    content, window = view.run("[document.documentElement.scrollWidth, window.innerWidth]")
    assert content <= window == width


def test_nothing_sticks_out_of_its_box_on_a_phone(document: Path, show: Show) -> None:
    assert show(document, width=420).sticking_out() == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground_in_both_themes(document: Path, show: Show, dark: bool) -> None:
    """WCAG contrast of at least 4.5 for words and 3 for the plots' text."""
    words, plot, ground = show(document, width=1400, dark=dark).contrasts()
    assert words >= 4.5
    assert plot >= 3.0
    assert (ground < 0.1) is dark


def test_every_plot_of_the_study_answers_to_hovering(study: Path, show: Show) -> None:
    view = show(study, width=1400)
    for place in view.run(HOVER):
        view.until(f"document.querySelector('#{place} .hovertext text') !== null")


def test_names_from_labels_are_never_executed(study: Path, show: Show) -> None:
    view = show(study, width=1400)
    assert view.run("document.body.textContent.includes('window.executed=1')") is True
    assert view.run("window.executed ?? null") is None
