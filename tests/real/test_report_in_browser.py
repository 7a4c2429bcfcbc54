"""The report in a real browser, from a file: plots answer, nothing of the results is executed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from avbench.analysis.results import read_results
from avbench.report.page import write_report
from tests.factories import ADAPTIVE, FIXED_3, NONE, PAIR, make_manifest, make_measurements
from tests.folders import write_results
from tests.real.conftest import Show

EVIL = "<script>window.executed=1</script><img src=x onerror='window.executed=1'>"


def test_the_report_has_all_its_traces(report: Path, show: Show) -> None:
    view = show(report, width=1400)
    assert view.run("document.querySelectorAll('.plot').length") == 4
    # Fronts: the band and 5 arms; coefficients: slope, 7 intercepts, log-loss.
    assert view.run("document.querySelectorAll('.plot .scatterlayer .trace').length") == 2 * 6 + 2 * 9


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
