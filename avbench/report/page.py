"""The report: one HTML file that needs nothing else, neither network nor server."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from avbench.analysis.advice import Advice, advise
from avbench.analysis.caution import Caution
from avbench.analysis.checks import check_results, unranked_points
from avbench.analysis.coefficients import coefficient_traces
from avbench.analysis.frontier import Frontier, build_frontier
from avbench.analysis.results import Results
from avbench.errors import UsageError
from avbench.report import appendix, sections
from avbench.report.figures import coefficient_figure, front_figure
from avbench.report.html import Html, element, join
from avbench.report.titles import titled
from avbench.units import format_plural

PARTS = {
    "recommendation": "Recommendation",
    "fronts": "Front",
    "regret": "Shortfall",
    "table": "All figures",
    "telling": "What cannot be told",
    "coefficients": "Coefficients",
    "cautions": "Cautions",
    "definitions": "Definitions",
    "environment": "Environment",
    "commands": "Commands",
}


def write_report(results: Results, out: Path) -> Path:
    """Writes the page in one step and returns its path. Raises UsageError if `out` cannot be written."""
    return write_page(render_page(results), out)


def write_page(page: Html, out: Path) -> Path:
    """Writes `page` in one step and returns its path. Raises UsageError if `out` cannot be written."""
    scratch = out.with_name(f".{out.name}.unfinished")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(page, encoding="utf-8")
        scratch.replace(out)
    except OSError as error:
        raise UsageError(
            f"{out}: cannot write the report: {os.strerror(error.errno) if error.errno else error}",
            hint="give a file in a folder that can be written to with `-o FILE`.",
        ) from error
    return out


def render_page(results: Results) -> Html:
    """The whole document. Missing data never breaks it: the page says what is missing."""
    advice = advise(results, unranked=unranked_points(results))
    frontiers = tuple(build_frontier(results, workload) for workload in results.workloads)
    traces = coefficient_traces(results)
    found = check_results(results)
    figures = {
        sections.front_id(index): front_figure(results, advice, frontier)
        for index, frontier in enumerate(frontiers)
        if frontier.points
    } | {appendix.coefficient_id(index): coefficient_figure(results, trace) for index, trace in enumerate(traces)}
    body = join(
        _header(results, advice, found),
        element("main", *_sections(results, advice, frontiers, traces, found), _footer(results)),
    )
    return document(titled(f"avbench: {results.name}", results.costs), body, figures)


def _sections(
    results: Results,
    advice: Advice,
    frontiers: tuple[Frontier, ...],
    traces: tuple[Any, ...],
    found: tuple[Caution, ...],
) -> Iterator[Html]:
    yield sections.recommendation(results, advice)
    yield sections.fronts(results, frontiers)
    yield sections.shortfalls(results, advice)
    yield sections.figures_table(results, advice)
    yield sections.telling(results, advice)
    yield appendix.coefficients(results, traces)
    yield appendix.cautions(found)
    yield appendix.definitions()
    yield appendix.environment(results)
    yield appendix.commands(results)


def _header(results: Results, advice: Advice, found: tuple[Caution, ...]) -> Html:
    links = element("nav", (element("a", title, href=f"#{anchor}") for anchor, title in PARTS.items()))
    facts = (element("li", element("b", name), f" {value}") for name, value in _facts(results, found))
    return element(
        "header",
        element(
            "div",
            element("h1", titled(results.name, results.costs)),
            element("p", "How should speculation run for this pair, this traffic and this load?", class_="sub"),
            element("ul", facts, class_="facts"),
            links,
        ),
        class_="top",
    )


def _facts(results: Results, found: tuple[Caution, ...]) -> Iterator[tuple[str, str]]:
    pair = results.pair
    if pair is not None:
        draft = f" + {pair.draft} ({pair.method}, {pair.draft_sampling})" if pair.draft else f" ({pair.method})"
        yield "pair", f"{pair.name}: {pair.target}{draft}"
    else:
        yield "pair", "not recorded"
    if results.costs is not None:
        yield "clock", f"emulated: real models in virtual time, every step lasts what {results.costs} says"
    yield "engine", str(results.manifest.get("engine_version") or "version not recorded")
    yield "arms", ", ".join(results.label(arm.id) for arm in results.arms) or "none measured"
    yield "workloads", ", ".join(_workload_words(results, name) for name in results.workloads) or "none measured"
    yield "C", ", ".join(str(load) for load in results.concurrencies) or "none measured"
    done = sum(cell.status == "done" for cell in results.measurements)
    cells = format_plural(done, "cell")
    yield (
        "measured",
        cells if results.passes is None else f"{cells} in {format_plural(results.passes, 'pass', 'passes')}",
    )
    yield "cautions", str(len(found))


def _workload_words(results: Results, name: str) -> str:
    spec = results.workload_spec(name)
    if spec is None:
        return name
    sampling = spec.sampling
    return f"{name} (T={sampling.temperature:g}, top-p {sampling.top_p:g}, at most {spec.max_tokens} tokens)"


def _footer(results: Results) -> Html:
    version = results.manifest.get("avbench_version") or "of unknown version"
    return element("footer", f"avbench {version}. Every figure can be computed again from the results folder.")


def document(title: str, body: Html, figures: dict[str, Any]) -> Html:
    """A page of avbench around `body`; `figures` by the id of the element that holds them."""
    scripts = (_plotly(), _asset("report.js"))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        # The scripts below and nothing else may run, and nothing may be fetched, whatever the results contain.
        element("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        element("title", title),
        element("style", Html(_asset("report.css"))),
    )
    data = element("script", Html(_script_json(figures)), type="application/json", id="figures")
    noscript = element("noscript", element("p", "Plots need JavaScript; all figures also stand in the tables."))
    code = join(*(element("script", Html(script)) for script in scripts))
    whole = element("html", head, element("body", noscript, body, data, code), lang="en")
    return join(Html("<!doctype html>\n"), whole, "\n")


def _policy(scripts: tuple[str, ...]) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"


def _script_json(figures: dict[str, Any]) -> str:
    """JSON that cannot end its script element."""
    text = json.dumps(figures, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _plotly() -> str:
    """plotly.js, about 4.8 MB: the reason why the page needs no network."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


@cache
def _asset(name: str) -> str:
    return (files("avbench.report") / "assets" / name).read_text(encoding="utf-8")
