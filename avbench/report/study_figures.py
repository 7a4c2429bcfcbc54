"""The study's plots as plain data, in the manner of the report's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import cycle
from typing import Any

from avbench.analysis.study.calibration import Reliability
from avbench.analysis.study.coefficients import Coefficients
from avbench.analysis.study.convergence import Convergence
from avbench.analysis.study.features import ESTIMATOR, HEAD, LEADING, RAW_Q_MAX
from avbench.analysis.study.leads import METRICS, Metric
from avbench.analysis.study.scoring import Subject
from avbench.analysis.study.values import Value
from avbench.report.figures import Figure, base_axis, base_layout
from avbench.report.palette import DASHES, INK, VERMILLION
from avbench.report.study_words import BY_ID, METRIC_NAMES, score_of
from avbench.units import format_count, format_decimal

COLOURS = {
    RAW_Q_MAX.id: "#56B4E9",
    HEAD.id: "#009E73",
    ESTIMATOR.id: VERMILLION,
    "entropy": "#E69F00",
    "margin": "#0072B2",
    "log_q_max": "#CC79A7",
    "logit_q_sampled": "@muted",
    "log_log_q_sampled": "@muted",
}
SYMBOLS = {RAW_Q_MAX.id: "square", HEAD.id: "triangle-up", ESTIMATOR.id: "circle"}
SET_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SET_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "star", "pentagon")
_LEGEND = {"orientation": "h", "x": 0, "y": -0.14, "yanchor": "top", "font": {"size": 12}}


def reliability_figure(subject: Subject) -> Figure:
    """Accepted share over mean confidence in 15 bins; below, the share of the drafts that each bin holds."""
    traces = [_diagonal()]
    for diagram in subject.reliability:
        traces += list(_reliability_lines(diagram))
    return {
        "data": traces,
        "layout": base_layout(
            height=620,
            xaxis=base_axis("mean confidence of the bin", range=[0, 1], anchor="y2"),
            yaxis=base_axis("accepted share", range=[0, 1.02], domain=[0.32, 1.0]),
            yaxis2=base_axis("share of drafts", domain=[0.0, 0.24], rangemode="tozero", tickformat=".0%"),
            hovermode="closest",
            legend=_LEGEND,
        ),
    }


def _diagonal() -> Figure:
    return {
        "type": "scatter",
        "name": "calibrated",
        "mode": "lines",
        "x": [0, 1],
        "y": [0, 1],
        "line": {"color": "@muted", "width": 1, "dash": "dot"},
        "hoverinfo": "skip",
    }


def _reliability_lines(diagram: Reliability) -> Iterator[Figure]:
    feature = BY_ID[diagram.source]
    bins = [each for each in diagram.bins if each.n]
    total = sum(each.n for each in bins)
    shown = True if feature in LEADING else "legendonly"
    line = {"color": COLOURS[feature.id], "width": 2, "dash": "solid" if feature.lossless else "dot"}
    shared = {"type": "scatter", "legendgroup": feature.id, "visible": shown, "line": line}
    hover = [
        f"{escape(feature.name)}, {each.low:.2f} to {each.high:.2f}<br>{format_count(each.n)} drafts"
        f"<br>predicted {format_decimal(each.predicted, 3)}, accepted {format_decimal(each.observed, 3)}"
        for each in bins
    ]
    yield shared | {
        "name": escape(feature.name),
        "mode": "lines+markers",
        "x": [_round(each.predicted) for each in bins],
        "y": [_round(each.observed) for each in bins],
        "marker": {"color": COLOURS[feature.id], "symbol": SYMBOLS.get(feature.id, "diamond"), "size": 8},
        "customdata": hover,
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    yield shared | {
        "name": escape(feature.name),
        "showlegend": False,
        "mode": "lines",
        "x": [round((each.low + each.high) / 2, 4) for each in diagram.bins],
        "y": [round(each.n / total, 5) for each in diagram.bins],
        "yaxis": "y2",
        "line": line | {"shape": "hvh"},
        "hovertemplate": "%{y:.1%}<extra>" + escape(feature.name) + "</extra>",
    }


def positions_figure(subject: Subject) -> Figure:
    """AUC, log-loss and ECE by position, for the leading sources."""
    axes: dict[Metric, str] = {"auc": "y", "log_loss": "y2", "ece": "y3"}
    traces = [
        trace for metric in METRICS for trace in _position_lines(subject, metric, axes[metric], first=metric == "auc")
    ]
    return {
        "data": traces,
        "layout": base_layout(
            height=640,
            xaxis=base_axis("draft position", dtick=1, anchor="y3"),
            yaxis=base_axis("AUC", domain=[0.7, 1.0]),
            yaxis2=base_axis("log-loss, nats", domain=[0.36, 0.64]),
            yaxis3=base_axis("ECE", domain=[0.0, 0.3], rangemode="tozero"),
            hovermode="x unified",
            legend=_LEGEND,
        ),
    }


def _position_lines(subject: Subject, metric: Metric, axis: str, *, first: bool) -> Iterator[Figure]:
    for feature in LEADING:
        points: list[tuple[int, Value]] = []
        for position, part in enumerate(subject.positions, start=1):
            score = score_of(part, feature.id)
            value = None if score is None else getattr(score, metric)
            if value is not None:
                points.append((position, value))
        if points:
            yield {
                "type": "scatter",
                "name": escape(feature.name),
                "legendgroup": feature.id,
                "showlegend": first,
                "mode": "lines+markers",
                "x": [position for position, _ in points],
                "y": [_round(value.value) for _, value in points],
                "yaxis": axis,
                "error_y": _bars([value for _, value in points]),
                "line": {"color": COLOURS[feature.id], "width": 2},
                "marker": {"color": COLOURS[feature.id], "symbol": SYMBOLS[feature.id], "size": 8},
                "hovertemplate": f"{METRIC_NAMES[metric]} %{{y:.4f}}",
            }


def _bars(values: Sequence[Value]) -> Figure:
    return {
        "type": "data",
        "symmetric": False,
        "array": [0 if value.high is None else _round(value.high - value.value) for value in values],
        "arrayminus": [0 if value.low is None else _round(value.value - value.low) for value in values],
        "thickness": 1,
        "width": 0,
    }


def intercepts_figure(found: Sequence[Coefficients]) -> Figure:
    """Intercepts by position, one line a data set; bars are the standard deviation over settled refits."""
    traces = []
    for index, each in enumerate(found):
        known = [(place, b) for place, b in enumerate(each.intercepts, start=1) if b.mean is not None]
        traces.append(
            {
                "type": "scatter",
                "name": escape(each.data_set),
                "mode": "lines+markers",
                "x": [place for place, _ in known],
                "y": [_round(b.mean) for _, b in known],
                "error_y": {
                    "type": "data",
                    "array": [_round(b.sd) or 0 for _, b in known],
                    "thickness": 1,
                    "width": 0,
                },
                "line": _set_line(index),
                "marker": _set_marker(index),
                "hovertemplate": "%{y:.3f}",
            }
        )
    return {
        "data": traces,
        "layout": base_layout(
            height=420,
            xaxis=base_axis("draft position", dtick=1),
            yaxis=base_axis("intercept"),
            hovermode="x unified",
            legend=_LEGEND | {"y": -0.2},
        ),
    }


def entropy_figure(found: Sequence[Coefficients]) -> Figure:
    """Slope and first intercept over the mean draft entropy of the data sets, one mark a set, one colour a pool."""
    pools = list(dict.fromkeys(each.pool for each in found))
    traces = [
        trace
        for index, pool in enumerate(pools)
        for trace in _entropy_marks(index, pool, [each for each in found if each.pool == pool])
    ]
    return {
        "data": traces,
        "layout": base_layout(
            height=520,
            xaxis=base_axis("mean draft entropy, nats", anchor="y2"),
            yaxis=base_axis("slope", domain=[0.55, 1.0]),
            yaxis2=base_axis("first intercept", domain=[0.0, 0.45]),
            hovermode="closest",
            legend=_LEGEND,
        ),
    }


def _entropy_marks(index: int, pool: str, found: Sequence[Coefficients]) -> Iterator[Figure]:
    for axis, coefficients in (("y", [each.slope for each in found]), ("y2", [each.intercepts[0] for each in found])):
        known = [
            (each, value)
            for each, value in zip(found, coefficients, strict=True)
            if each.entropy is not None and value.mean is not None
        ]
        yield {
            "type": "scatter",
            "name": escape(pool),
            "legendgroup": pool,
            "showlegend": axis == "y",
            "mode": "markers+text",
            "x": [_round(each.entropy) for each, _ in known],
            "y": [_round(value.mean) for _, value in known],
            "yaxis": axis,
            "text": [escape(each.data_set) for each, _ in known],
            "textposition": [f"{side} right" for _, side in zip(known, cycle(("top", "bottom")))],
            "textfont": {"color": INK, "size": 11},
            "cliponaxis": False,
            "error_y": {
                "type": "data",
                "array": [_round(value.sd) or 0 for _, value in known],
                "thickness": 1,
                "width": 0,
            },
            "marker": _set_marker(index) | {"size": 10},
            "hovertemplate": "%{text}: %{y:.3f} at %{x:.2f} nats<extra></extra>",
        }


def convergence_figure(found: Sequence[Convergence]) -> Figure:
    """Rolling log-loss from the cold start; dashed, the offline fit's on the same drafts."""
    traces: list[Figure] = []
    for index, each in enumerate(found):
        line: Figure = {
            "type": "scatter",
            "mode": "lines",
            "x": list(each.curve_steps),
            "legendgroup": each.data_set,
            "hovertemplate": "%{y:.4f}",
        }
        name = escape(each.data_set)
        colour = SET_COLOURS[index % len(SET_COLOURS)]
        traces.append(
            line
            | {
                "name": name,
                "y": [_round(loss) for loss in each.curve_online],
                "line": {"color": colour, "width": 2},
            }
        )
        if each.curve_offline:
            traces.append(
                line
                | {
                    "name": f"{name}, offline",
                    "showlegend": False,
                    "y": [_round(loss) for loss in each.curve_offline],
                    "line": {"color": colour, "width": 1, "dash": "dash"},
                }
            )
    return {
        "data": traces,
        "layout": base_layout(
            height=440,
            xaxis=base_axis("engine steps since the cold start", rangemode="tozero"),
            yaxis=base_axis("rolling log-loss, nats per draft"),
            hovermode="x unified",
            legend=_LEGEND | {"y": -0.2},
        ),
    }


def _set_line(index: int) -> dict[str, Any]:
    lap, place = divmod(index, len(SET_COLOURS))
    return {"color": SET_COLOURS[place], "width": 2, "dash": DASHES[lap % len(DASHES)]}


def _set_marker(index: int) -> dict[str, Any]:
    colour = SET_COLOURS[index % len(SET_COLOURS)]
    return {"color": colour, "symbol": SET_SYMBOLS[index % len(SET_SYMBOLS)], "size": 7}


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 5)
