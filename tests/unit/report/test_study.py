"""The study's page, tables and JSON: everything said, nothing executed, nothing missing in silence."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from rich.console import Console

from avbench.analysis.study.features import FEATURES
from avbench.analysis.study.load import load_labels
from avbench.analysis.study.study import Study, make_study
from avbench.errors import UsageError
from avbench.report.study_json import study_json, write_json
from avbench.report.study_page import PARTS, render_page, write_study
from avbench.report.study_tables import render_study
from tests.label_factories import INFO, Columns, Truth, make_labels, write_labels
from tests.unit.report.test_page import EVIL, Elements, figures_of

SETS = {"code": Truth(mean=2.2), "chat": Truth(mean=1.2), "prose": Truth(mean=0.4)}


def study_of(root: Path, info: dict[str, Any] | None = None, **sets: Columns) -> Study:
    paths = [write_labels(root / f"{name}.parquet", columns, INFO | (info or {})) for name, columns in sets.items()]
    return make_study(load_labels(paths), replicates=50)


def text_of(study: Study, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False, no_color=True).print(render_study(study), crop=False)
    return out.getvalue()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    columns = {name: make_labels(truth, steps=800, seed=n, budget=0.2) for n, (name, truth) in enumerate(SETS.items())}
    info = {"source": "estimator", "observe": True, "refit_interval": 40}
    return study_of(tmp_path_factory.mktemp("labels"), info, **columns)


@pytest.fixture(scope="module")
def page(study: Study) -> str:
    return render_page(study)


def test_it_is_one_file_that_asks_for_nothing(page: str) -> None:
    for tag, attributes in Elements(page).tags:
        assert "src" not in attributes, tag
        assert tag not in ("link", "iframe", "object", "embed", "img", "form")
        href = attributes.get("href")
        assert href is None or href.startswith("#")
    assert "default-src &#x27;none&#x27;" in page


def test_every_part_is_there_and_linked(page: str) -> None:
    elements = Elements(page)
    sections = [attributes["id"] for tag, attributes in elements.tags if tag == "section"]
    links = [str(attributes["href"])[1:] for tag, attributes in elements.tags if tag == "a"]
    assert sections == links == list(PARTS)


def test_every_figure_has_its_place_and_is_one_that_plotly_draws(page: str) -> None:
    figures = figures_of(page)
    places = [attributes["id"] for _, attributes in Elements(page).tags if attributes.get("class") == "plot"]
    assert sorted(figures) == sorted(str(place) for place in places)
    assert set(figures) == {"positions-0", "reliability-0", "intercepts-0", "convergence-0", "entropy"}
    for figure in figures.values():
        text = re.sub(r'"@\w+"', '"#123456"', json.dumps(figure))
        go.Figure(json.loads(text))  # raises for what is no plotly figure
        assert all(trace["x"] for trace in figure["data"])


def test_the_reliability_diagram_shows_every_source_and_its_occupancy(page: str) -> None:
    traces = figures_of(page)["reliability-0"]["data"]
    assert {trace["name"] for trace in traces} == {"calibrated", *(feature.name for feature in FEATURES)}
    shares = [sum(trace["y"]) for trace in traces if trace.get("yaxis") == "y2"]
    assert len(shares) == len(FEATURES)
    assert shares == pytest.approx([1.0] * len(FEATURES), abs=1e-3)


def test_the_page_says_what_was_found(page: str, study: Study) -> None:
    words = Elements(page).words()
    whole = study.pools[0].subjects[0].whole
    own = next(score for score in whole.scores if score.source == "logit_q_max")
    assert own.auc is not None
    assert f"AUC {own.auc.value:.4f}, log-loss {own.log_loss.value:.4f}, ECE {own.ece.value:.4f}" in words
    assert "ranks better and is out all the same, for trimming by it would bias the output" in words
    assert "Nothing was trimmed: every draft has a label up to the first rejection" in words
    assert "Per-position figures are conditional" in words
    assert "the intercept of position 5, 6, 7 stays at -0.2" in words
    assert "what the engine's budget would have trimmed" in words
    assert re.search(r"The slope against the mean draft entropy: r = -?\d\.\d\d \(n = 3 data sets\)", words)
    for data_set in SETS:
        assert words.count(data_set) > 5
    assert "emulated" not in words


def test_emulated_labels_are_marked_everywhere(study: Study) -> None:
    page = render_page(dataclasses.replace(study, emulated=True))
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert [title for title in titles if "(emulated)" not in title] == ["In short", "Definitions", "Labels"]
    assert "Estimator study (emulated)" in page
    assert "emulated: steps lasted what a cost table says" in page
    assert "· probabilistic (emulated)" in text_of(dataclasses.replace(study, emulated=True))


def test_names_are_never_markup(tmp_path: Path) -> None:
    columns = make_labels(steps=120)
    study = study_of(tmp_path, {"target": EVIL.replace("/", ""), "engine": EVIL}, **{"evil <b>": columns})
    page = render_page(study)
    tags = [tag for tag, _ in Elements(page).tags]
    assert "img" not in tags
    assert "<script>alert" not in page
    assert "&lt;b&gt;" in page


def test_the_terminal_holds_the_tables_at_80_columns(study: Study) -> None:
    text = text_of(study)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    for words in (
        "all data sets: all positions",
        "all data sets: without position 1",
        "all data sets: by position",
        "reliability",
        "code: all positions",
        "Coefficients on",
        "Online fit against an offline logistic regression",
        "One thing changed",
        "Lock-in: positions 5 to 7 never admitted",
        "Lock-in: what the engine's budget would have trimmed",
        "Order: log-loss",
        "Convergence from the cold start",
        "-log(-log q_sampled)    no",
    ):
        assert words in text, words


def test_long_names_are_folded_and_not_cut(tmp_path: Path) -> None:
    names = ["a-workload-with-a-very-long-name-indeed", "another-one-that-is-nearly-as-long-as-that"]
    study = study_of(tmp_path, **{name: make_labels(steps=100, seed=len(name)) for name in names})
    text = text_of(study)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text


def test_json_holds_everything_and_no_nan(study: Study, tmp_path: Path) -> None:
    path = write_json(study, tmp_path / "deep" / "study.json")
    data = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))
    assert data == json.loads(json.dumps(study_json(study)))
    assert data["schema"] == 1
    assert [feature["id"] for feature in data["features"]] == [feature.id for feature in FEATURES]
    (pool,) = data["pools"]
    assert {"subjects", "coefficients", "convergence", "ablations", "lock_in", "order", "replay"} <= set(pool)
    score = pool["subjects"][0]["whole"]["scores"][0]
    assert set(score) == {"source", "n", "auc", "log_loss", "ece", "predicted", "observed"}
    assert score["auc"]["low"] < score["auc"]["value"] < score["auc"]["high"]


def test_what_cannot_be_written_is_a_usage_error(study: Study, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for write in (write_json, write_study):
        with pytest.raises(UsageError) as caught:
            write(study, tmp_path / "file" / "out")
        assert caught.value.hint


# What is left of a study when something is missing.


def test_without_head_entropy_and_requests(tmp_path: Path) -> None:
    columns = make_labels(steps=300)
    for name in ("head", "entropy", "request"):
        del columns[name]
    study = study_of(tmp_path, code=columns)
    page, text = render_page(study), text_of(study)
    words = Elements(page).words()
    for said in (words, text):
        assert "There is no confidence head in these labels to compare with." in " ".join(said.split())
        assert "no column `entropy`, `head`, `request`" in " ".join(said.split())
        assert "of unnamed requests" in said
    assert "The labels have no entropies." in words
    assert "entropy" not in figures_of(page)
    assert [score.source for score in study.pools[0].subjects[0].whole.scores] == [
        feature.id for feature in FEATURES if feature.needs not in ("head", "entropy")
    ]


def test_one_class_leaves_losses_and_means(tmp_path: Path) -> None:
    columns = make_labels(steps=300)
    columns["label"] = np.ones_like(columns["label"])
    study = study_of(tmp_path, code=columns)
    whole = study.pools[0].subjects[0].whole
    assert all(score.auc is None and math.isfinite(score.log_loss.value) for score in whole.scores)
    words = Elements(render_page(study)).words()
    assert "every label is accepted: no ranking to measure, so there is no AUC" in words
    assert "every label is accepted" in " ".join(text_of(study).split())
    assert study.pools[0].coefficients[0].offline_loss is None


def test_no_labels_at_some_positions_and_trimmed_ones(tmp_path: Path) -> None:
    columns = make_labels(steps=300, budget=0.3, trim=True)
    columns["labelled"] &= columns["position"] < 5
    study = study_of(tmp_path, {"source": "estimator"}, code=columns)
    for said in (Elements(render_page(study)).words(), " ".join(text_of(study).split())):
        assert "no labels at position 6, 7" in said
        assert "adaptive verification trimmed these" in said
        assert "not possible: these labels were trimmed" in said
    assert study.pools[0].k == 7


def test_one_label_is_still_a_study(tmp_path: Path) -> None:
    columns = {name: values[:1] for name, values in make_labels(steps=1).items()}
    study = study_of(tmp_path, code=columns)
    assert "1 label of 1 request" in Elements(render_page(study)).words()
    assert "1 request, fewer than the 20 that intervals need" in " ".join(text_of(study).split())


def test_greedy_drafts_are_said_to_be(tmp_path: Path) -> None:
    columns = make_labels(steps=200)
    columns["q_sampled"] = columns["q_max"]
    study = study_of(tmp_path, {"draft_sampling": "greedy"}, code=columns)
    assert "would not bias the output here" in Elements(render_page(study)).words()


def test_a_fit_that_ran_away_is_said_to(tmp_path: Path) -> None:
    easy = Truth(mean=3.0, intercepts=(2.5, *(2.0,) * 6))
    hard = Truth(mean=0.0, intercepts=(-1.0,) * 7)
    study = study_of(tmp_path, easy=make_labels(easy, steps=1500, seed=2), hard=make_labels(hard, steps=1500, seed=1))
    for said in (Elements(render_page(study)).words(), " ".join(text_of(study).split())):
        assert "served easy and then hard did not hold: its Newton step overshot" in said
