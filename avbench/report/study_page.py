"""The study as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from avbench import __version__
from avbench.analysis.study.study import Study
from avbench.report import study_appendix as appendix
from avbench.report import study_changes as changes
from avbench.report import study_fits as fits
from avbench.report import study_sections as sections
from avbench.report.figures import Figure
from avbench.report.html import Html, element, join
from avbench.report.page import document, write_page
from avbench.report.study_figures import (
    convergence_figure,
    entropy_figure,
    intercepts_figure,
    positions_figure,
    reliability_figure,
)
from avbench.report.study_words import emulated, pool_facts

TITLE = "Estimator study"
PARTS = {
    "short": "In short",
    "features": "Features",
    "positions": "By position",
    "leads": "Head against estimator",
    "reliability": "Reliability",
    "coefficients": "Coefficients",
    "ablations": "One thing changed",
    "lock-in": "Never admitted",
    "order": "Order",
    "convergence": "Convergence",
    "definitions": "Definitions",
    "labels": "Labels",
}


def write_study(study: Study, out: Path) -> Path:
    """Writes the page in one step and returns its path. Raises UsageError if `out` cannot be written."""
    return write_page(render_page(study), out)


def render_page(study: Study) -> Html:
    """The whole document. What is missing is said where it would stand."""
    main = element(
        "main",
        sections.short(study),
        sections.features(study),
        sections.positions(study),
        sections.head_against_estimator(study),
        sections.reliability(study),
        fits.coefficients(study),
        changes.ablations(study),
        changes.lock_in(study),
        changes.order(study),
        fits.convergence(study),
        appendix.definitions(),
        appendix.labels(study),
        element("footer", f"avbench {__version__}. Every figure can be computed again from the labels."),
    )
    return document(f"avbench: {emulated(TITLE.lower(), study)}", join(_header(study), main), dict(_figures(study)))


def _header(study: Study) -> Html:
    links = element("nav", (element("a", title, href=f"#{anchor}") for anchor, title in PARTS.items()))
    facts = (element("li", element("b", pool.name), f" {pool_facts(pool)}") for pool in study.pools)
    clock = element("li", element("b", "clock"), " emulated: steps lasted what a cost table says")
    question = (
        "How well do confidences foretell which drafts the target accepts, and what should they be computed from?"
    )
    return element(
        "header",
        element(
            "div",
            element("h1", emulated(TITLE, study)),
            element("p", question, class_="sub"),
            element("ul", clock if study.emulated else None, facts, class_="facts"),
            links,
        ),
        class_="top",
    )


def _figures(study: Study) -> Iterator[tuple[str, Figure]]:
    for index, pool in enumerate(study.pools):
        yield sections.positions_id(index), positions_figure(pool.subjects[0])
        yield sections.reliability_id(index), reliability_figure(pool.subjects[0])
        yield fits.intercepts_id(index), intercepts_figure(pool.coefficients)
        yield fits.convergence_id(index), convergence_figure(pool.convergence)
    if fits.has_entropy(study):
        found = [each for pool in study.pools for each in pool.coefficients]
        yield fits.ENTROPY_ID, entropy_figure(found)
