"""The page as text: one file, nothing fetched, no name executed, nothing missing in silence."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from avbench.analysis.advice import advise
from avbench.analysis.frontier import build_frontier
from avbench.analysis.results import read_results, results_of
from avbench.errors import UsageError
from avbench.record.quantities import QUANTITIES
from avbench.report.figures import coefficient_figure, front_figure
from avbench.report.html import Html, code_text, element, join, table
from avbench.report.page import render_page, write_report
from avbench.report.palette import arm_looks
from avbench.spec.arm import Arm
from tests.factories import (
    ADAPTIVE,
    ARMS,
    FIXED_3,
    NONE,
    PAIR,
    failed_cell,
    make_emulated,
    make_manifest,
    make_measurements,
    make_results,
)
from tests.folders import write_results, write_sweep

EVIL = "<script>alert('x')</script><img src=x onerror=alert(1)>"


class Elements(HTMLParser):
    """Start tags with their attributes, and the text outside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text.append(data)

    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def figures_of(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert match
    figures: dict[str, Any] = json.loads(match[1])
    return figures


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sweep(tmp_path_factory.mktemp("results") / "toy")


@pytest.fixture(scope="module")
def page(sweep: Path) -> str:
    return write_report(read_results(sweep), sweep / "report.html").read_text(encoding="utf-8")


def test_it_is_one_file_that_asks_for_nothing(page: str) -> None:
    for tag, attributes in Elements(page).tags:
        assert "src" not in attributes, tag
        assert tag not in ("link", "iframe", "object", "embed", "img", "form")
        href = attributes.get("href")
        assert href is None or href.startswith("#")
    assert "url(" not in re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert "default-src &#x27;none&#x27;" in page


def test_plotly_is_there_once(page: str) -> None:
    assert page.count("* plotly.js v") == 1


def test_it_holds_every_section_and_links_to_it(page: str) -> None:
    elements = Elements(page)
    sections = [attributes["id"] for tag, attributes in elements.tags if tag == "section"]
    links = [str(attributes["href"])[1:] for tag, attributes in elements.tags if tag == "a"]
    assert sections == links
    assert sections[0] == "recommendation"
    assert {"fronts", "table", "coefficients", "cautions", "definitions", "environment", "commands"} <= set(sections)


def test_the_headline_has_the_ready_flag(page: str) -> None:
    words = Elements(page).words()
    assert "If one setting must serve all these loads: run AV 7 ." in words
    assert """--speculative-config '{"method":"draft_model","model":"/models/toy-draft",""" in words
    assert '"enable_adaptive_verification":true}' in words


def test_it_says_what_the_engine_command_was_and_where_it_ran(page: str) -> None:
    words = Elements(page).words()
    assert "OMP_NUM_THREADS=1 python -m avbench.reference --model /models/toy" in words
    assert "a CPU" in words
    assert "pair: {name: toy}" in words
    assert "refit interval 25" in words


def test_it_quotes_every_definition(page: str) -> None:
    words = Elements(page).words()
    for quantity in QUANTITIES.values():
        assert " ".join(quantity.definition.replace("`", " ").split()) in words


def test_it_has_a_front_for_each_workload_and_coefficients_for_each_server(page: str) -> None:
    figures = figures_of(page)
    assert set(figures) == {"front-0", "front-1", "coefficients-0", "coefficients-1"}
    ids = {attributes.get("id") for tag, attributes in Elements(page).tags if tag == "div"}
    assert set(figures) <= ids


def resolved(value: Any) -> Any:
    """Theme colours replaced as the page does it."""
    if isinstance(value, str):
        return "#123456" if value.startswith("@") else value
    if isinstance(value, list):
        return [resolved(entry) for entry in value]
    if isinstance(value, dict):
        return {key: resolved(entry) for key, entry in value.items()}
    return value


def test_plotly_accepts_every_figure(page: str) -> None:
    for figure in figures_of(page).values():
        go.Figure(data=resolved(figure["data"]), layout=resolved(figure["layout"]))


def test_the_front_plot_marks_the_front_and_hovers_all_figures() -> None:
    results = make_results(noise=0.002)
    figure = front_figure(results, advise(results, unranked={}), build_frontier(results, "code"))
    band, *lines = figure["data"]
    assert band["name"] == "front"
    assert [line["name"] for line in lines] == ["none", "K=1", "K=3", "K=7", "AV 7"]
    adaptive = lines[-1]
    assert adaptive["marker"]["symbol"] == ["star-open", "star", "star"]
    assert adaptive["text"] == ["", "C=8", "C=64"]
    hover = adaptive["customdata"][1]
    for part in (
        "AV 7 · C=8",
        "steady throughput",
        "tok/s/user",
        "TTFT",
        "TPOT",
        "acceptance length",
        "2 passes",
        "front",
    ):
        assert part in hover
    assert re.search(r"steady throughput [\d,]+ tok/s \([\d,]+ to [\d,]+\)", hover)
    assert all(value > 0 for value in adaptive["error_y"]["array"] + adaptive["error_y"]["arrayminus"])


def test_the_legend_calls_nested_depth_an_extension() -> None:
    results = make_results(arms=(NONE, ADAPTIVE, dataclasses.replace(ADAPTIVE, depth="nested")))
    figure = front_figure(results, advise(results, unranked={}), build_frontier(results, "code"))
    assert [line["name"] for line in figure["data"][1:]] == ["none", "AV 7", "AV 7 nested (extension of avbench)"]


def test_the_band_joins_the_upper_edge_and_leaves_out_what_is_on_the_front_only_within_noise() -> None:
    results = make_results(noise=0.3, seed=4)
    frontier = build_frontier(results, "code")
    band = front_figure(results, advise(results, unranked={}), frontier)["data"][0]
    assert len(band["x"]) < len(frontier.front)
    assert band["x"] == sorted(band["x"], reverse=True)
    assert band["y"] == sorted(band["y"])


def test_coefficient_figures_hold_slope_intercepts_and_cell_borders(sweep: Path) -> None:
    from avbench.analysis.coefficients import coefficient_traces

    results = read_results(sweep)
    trace = coefficient_traces(results)[0]
    figure = coefficient_figure(results, trace)
    assert "title" not in figure["layout"]
    assert [row["name"] for row in figure["data"]] == ["slope", *(f"b{k}" for k in range(1, 8)), "log-loss"]
    lines = [shape for shape in figure["layout"]["shapes"] if shape["type"] == "line"]
    assert [shape["x0"] for shape in lines] == [cell.start for cell in trace.cells]


def test_colours_are_okabe_and_itos_and_every_arm_has_another_marker() -> None:
    okabe_ito = {"@ink", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"}
    arms = [NONE, *(Arm(kind="fixed", k=k) for k in (1, 2, 3, 5, 6, 7)), ADAPTIVE, dataclasses.replace(ADAPTIVE, k=5)]
    looks = list(arm_looks(arms).values())
    assert {look.colour for look in looks} <= okabe_ito
    assert len({look.symbol for look in looks}) == len(looks)
    many = arm_looks([Arm(kind="fixed", k=k) for k in range(1, 13)])
    assert len({(look.colour, look.symbol, look.dash) for look in many.values()}) == 12


def test_an_emulated_page_says_so_wherever_figures_stand() -> None:
    page = str(render_page(make_emulated()))
    words = Elements(page).words()
    said = "(emulated: toy table)"
    for title in ("Recommendation", "Best arm at each load", "Throughput against interactivity", "All figures", "toy",
                  "Shortfall against the best arm of each load", "What cannot be told", "code", "prose"):  # fmt: skip
        assert f"{title} {said}" in words, title
    assert f"<title>avbench: toy {said}</title>" in page
    assert "clock emulated: real models in virtual time, every step lasts what toy table says" in words
    assert "steady tok/s (virtual)" in words
    assert "Emulated steps: tokens and acceptance are real" in words
    assert "cost table notes drafting is free" in words
    for figure in figures_of(page).values():
        assert figure["layout"]["title"]["text"] == "emulated: toy table"
        assert "tok/s (virtual)" in figure["layout"]["yaxis"]["title"]["text"]


def test_a_real_page_does_not_speak_of_emulation(page: str) -> None:
    assert "emulated" not in Elements(page).words()
    assert all("title" not in figure["layout"] for figure in figures_of(page).values())


def test_the_variables_of_a_recommended_arm_stand_beside_its_flag() -> None:
    nested = dataclasses.replace(ADAPTIVE, depth="nested")
    arms = (NONE, FIXED_3, nested)
    cells = make_measurements(arms=arms, truth=lambda arm, *_: 2000.0 if arm == nested else 1000.0)
    words = Elements(str(render_page(results_of(Path("x"), make_manifest(arms=arms), cells)))).words()
    assert "AV 7 nested: on the embedded engine also set AVBENCH_DEPTH=nested ; an extension of avbench" in words
    assert "AV 7 nested: nested depth is an extension of avbench." in words


def test_heads_have_no_coefficients() -> None:
    head = Arm(kind="adaptive", k=7, source="head")
    words = Elements(str(render_page(make_results(arms=(NONE, head))))).words()
    assert "Every adaptive arm uses a confidence head: nothing is fitted." in words


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    pair = dataclasses.replace(PAIR, name=EVIL, target=EVIL, draft=EVIL)
    workloads = (EVIL, "prose")
    cells = [
        dataclasses.replace(cell, cell_id=f"cell-{i}", notes=(EVIL,))
        for i, cell in enumerate(make_measurements(workloads=workloads))
    ]
    manifest = make_manifest(workloads=workloads, pair=pair, name=EVIL, spec_text=EVIL, environment={EVIL: EVIL})
    page = str(render_page(read_results(write_results(tmp_path / "evil", cells, manifest))))
    assert EVIL not in page
    assert "<img" not in page
    scripts = [attributes for tag, attributes in Elements(page).tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "figures"}, {}, {}]


def test_missing_data_is_said_and_breaks_nothing(tmp_path: Path) -> None:
    def words(results: Any) -> str:
        return Elements(str(render_page(results))).words()

    empty = words(results_of(tmp_path, {}, []))
    for said in (
        "No arm can be recommended",
        "Nothing to compare",
        "has no adaptive arm",
        "says nothing about the machine",
    ):
        assert said in empty

    fixed = words(make_results(tmp_path, arms=(NONE, FIXED_3)))
    assert "This sweep has no adaptive arm." in fixed

    untraced = words(make_results(tmp_path))
    assert "No adaptive server wrote a trace with a refit" in untraced
    assert "No command was kept." in untraced

    one_pass = words(make_results(tmp_path, passes=1))
    assert "one pass, no noise estimate" in one_pass
    assert "With one pass no difference can be told from noise." in one_pass

    failed = words(results_of(tmp_path, make_manifest(), [failed_cell(cell) for cell in make_measurements()]))
    assert "engine_died" in failed
    assert "No point of this workload has both axes." in failed


@pytest.mark.parametrize("absent", ["interactivity", "ttft", "tpot", "e2el", "acceptance_length"])
def test_a_figure_that_is_absent_everywhere_breaks_nothing(tmp_path: Path, absent: str) -> None:
    cells = [
        dataclasses.replace(cell, summary=dataclasses.replace(cell.summary, **{absent: None}))
        for cell in make_measurements()
        if cell.summary is not None
    ]
    assert "<section" in render_page(results_of(tmp_path, make_manifest(), cells))


def test_a_report_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="cannot write the report"):
        write_report(make_results(tmp_path), blocked / "report.html")


def test_the_report_replaces_an_older_one_whole(tmp_path: Path) -> None:
    out = tmp_path / "sub" / "report.html"
    assert write_report(make_results(tmp_path), out) == out
    out.write_text("old")
    write_report(make_results(tmp_path), out)
    assert out.read_text(encoding="utf-8").endswith("</html>\n")
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


def test_text_is_escaped_and_markup_is_not() -> None:
    assert join("<b>", Html("<i>x</i>"), None, ["&", "y"]) == "&lt;b&gt;<i>x</i>&amp;y"
    assert element("a", "x", href='"><script>', class_="n", hidden=True, id=None) == (
        '<a href="&quot;&gt;&lt;script&gt;" class="n" hidden>x</a>'
    )
    assert code_text("say `<a>` twice") == "say <code>&lt;a&gt;</code> twice"
    assert "<td>&lt;</td>" in table(["h"], [["<"]])
    assert len(ARMS) == 5
