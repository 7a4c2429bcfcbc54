"""The study's page: what the labels say about sources of confidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from avbench.analysis.study.features import ESTIMATOR, FEATURES, LEADING
from avbench.analysis.study.leads import METRICS, Lead
from avbench.analysis.study.scoring import Part, Score, Subject
from avbench.analysis.study.study import PoolStudy, Study
from avbench.analysis.study.values import Value
from avbench.report.html import Html, element, join, table
from avbench.report.sections import missing, section
from avbench.report.study_words import (
    BY_ID,
    CONDITIONAL,
    GREEDY,
    METRIC_NAMES,
    emulated,
    ends,
    number,
    signed,
    spread,
    summary,
)
from avbench.units import MISSING, format_count, format_plural

ONLINE = (
    "Fitted sources go through avbench's online estimator: each prediction was made before its own label was used, "
    "with a refit after every round of engine steps. 95 %: by request; the fit itself is not repeated for it."
)


def short(study: Study) -> Html:
    """The findings in sentences."""
    blocks = (
        join(
            element("h3", emulated(name, study)),
            element("ul", (element("li", line) for line in lines)),
        )
        for name, lines in summary(study)
    )
    return section("short", "In short", *blocks)


def features(study: Study) -> Html:
    """The feature tables: over all positions and without the first; the pool open, its data sets folded."""
    return section(
        "features",
        emulated("Features", study),
        element("p", ONLINE, class_="note"),
        *(join(_pool_head(study, pool), *_feature_tables(pool)) for pool in study.pools),
        _definitions(),
    )


def _pool_head(study: Study, pool: PoolStudy) -> Html | None:
    return element("h3", emulated(pool.name, study)) if len(study.pools) > 1 else None


def _feature_tables(pool: PoolStudy) -> Iterator[Html]:
    if pool.info.draft_sampling == "greedy":
        yield element("p", GREEDY, class_="note")
    for index, subject in enumerate(pool.subjects):
        tables = join(_feature_table(subject, subject.whole), _feature_table(subject, subject.without_first))
        yield tables if index == 0 else _folded(subject.name, tables)


def _folded(title: str, *body: Html | None) -> Html:
    return element("details", element("summary", title), *body)


def _feature_table(subject: Subject, part: Part) -> Html:
    title = f"{subject.name}, {part.name}"
    head = ["source", "lossless", "AUC", "95 %", "log-loss", "95 %", "ECE", "95 %", "mean predicted", "observed"]
    best = _best(part)
    return join(
        element("h4", f"{title} ({format_plural(part.n, 'label')} of {format_plural(part.requests, 'request')})"),
        table(head, (_feature_row(score, best) for score in part.scores), class_="matrix", caption=title)
        if part.scores
        else None,
        *(missing(f"{line}.") for line in part.missing),
    )


def _best(part: Part) -> dict[str, float]:
    """Best value of each metric among lossless sources."""
    lossless = [score for score in part.scores if BY_ID[score.source].lossless]
    found: dict[str, float] = {}
    for metric, sign in METRICS.items():
        values = [value.value * sign for score in lossless if (value := getattr(score, metric)) is not None]
        if values:
            found[metric] = max(values) * sign
    return found


def _feature_row(score: Score, best: dict[str, float]) -> Html:
    feature = BY_ID[score.source]
    cells = [
        element("td", element("b", feature.name) if feature is ESTIMATOR else feature.name),
        element("td", "yes" if feature.lossless else element("span", "no", class_="unshown")),
    ]
    for metric in METRICS:
        value: Value | None = getattr(score, metric)
        wins = feature.lossless and value is not None and value.value == best.get(metric)
        cells += [
            element("td", MISSING if value is None else number(value.value), class_="best" if wins else None),
            element("td", ends(value), class_="note"),
        ]
    cells += [element("td", number(score.predicted.value)), element("td", number(score.observed.value))]
    return element("tr", *cells)


def _definitions() -> Html:
    entries = (
        join(
            element("dt", feature.name),
            element("dd", f"{feature.definition}{'' if feature.fitted else '; not fitted'}."),
        )
        for feature in FEATURES
    )
    return _folded("What the sources are", element("dl", entries))


def positions(study: Study) -> Html:
    """By position, for the leading sources: a plot of the pool, tables of all."""
    return section(
        "positions",
        emulated("By position", study),
        element("p", CONDITIONAL, class_="note"),
        *(
            join(
                _pool_head(study, pool), element("div", id=positions_id(index), class_="plot"), *_position_tables(pool)
            )
            for index, pool in enumerate(study.pools)
        ),
    )


def positions_id(index: int) -> str:
    """The element that holds a pool's plot by position."""
    return f"positions-{index}"


def _position_tables(pool: PoolStudy) -> Iterator[Html]:
    for subject in pool.subjects:
        head = ["position", "labels", "source", "AUC", "log-loss", "ECE", "mean predicted", "observed"]
        lines = [line for part in subject.positions for line in part.missing]
        yield _folded(
            f"Table: {subject.name}",
            table(head, _position_rows(subject), class_="matrix", caption=f"{subject.name} by position"),
            *(missing(f"{line}.") for line in lines),
        )


def _position_rows(subject: Subject) -> Iterator[Html]:
    for number_, part in enumerate(subject.positions, start=1):
        if not part.scores:
            yield element("tr", *(element("td", text) for text in (str(number_), "0", *[MISSING] * 6)))
        for place, score in enumerate(part.scores):
            cells = [
                str(number_),
                format_count(part.n),
                BY_ID[score.source].name,
                spread(score.auc),
                spread(score.log_loss),
                spread(score.ece),
                number(score.predicted.value),
                number(score.observed.value),
            ]
            yield element("tr", *(element("td", text) for text in cells), class_=None if place else "first")


def head_against_estimator(study: Study) -> Html:
    """Who leads on what, where."""
    title = emulated("Head against estimator", study)
    blocks = [join(_pool_head(study, pool), _lead_table(pool)) for pool in study.pools]
    note = (
        "Estimator minus head, with half its 95 % interval over the same draws of requests. A name is given where the "
        "interval does not hold 0; AUC is better when higher, log-loss and ECE when lower."
    )
    return section("leads", title, element("p", note, class_="note"), *blocks)


def _lead_table(pool: PoolStudy) -> Html:
    subject = pool.subjects[0]
    parts = [part for part in (subject.whole, subject.without_first, *subject.positions) if part.leads]
    if not parts:
        return missing("There is no confidence head in these labels to compare with.")
    head = ["drafts", *(f"{METRIC_NAMES[metric]}: {what}" for metric in METRICS for what in ("leads", "difference"))]
    rows = (element("tr", element("td", part.name), *_lead_cells(part.leads)) for part in parts)
    return table(head, rows, class_="matrix", caption="head against estimator")


def _lead_cells(leads: Sequence[Lead]) -> Iterator[Html]:
    for metric in METRICS:
        lead = next((each for each in leads if each.metric == metric), None)
        if lead is None:
            yield from (element("td", MISSING), element("td", MISSING))
            continue
        known = lead.difference.low is not None
        unsure = "not told apart" if known else f"{lead.ahead}, no interval"
        yield element("td", lead.leader or unsure, class_="best" if lead.leader == "estimator" else None)
        half = f" ±{number(lead.difference.half_width)}" if known else ""
        yield element("td", f"{signed(lead.difference.value)}{half}", class_="note")


def reliability(study: Study) -> Html:
    """One diagram a pool."""
    names = ", ".join(feature.name for feature in LEADING)
    note = (
        f"15 bins of equal width. On the dotted line what is predicted is what happens. Shown at first: {names}; the "
        "legend switches sources on and off. Below: where the confidences lie."
    )
    return section(
        "reliability",
        emulated("Reliability", study),
        element("p", note, class_="note"),
        *(
            join(_pool_head(study, pool), element("div", id=reliability_id(index), class_="plot"))
            for index, pool in enumerate(study.pools)
        ),
    )


def reliability_id(index: int) -> str:
    """The element that holds a pool's reliability diagram."""
    return f"reliability-{index}"
