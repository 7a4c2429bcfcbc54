"""Plotly figures as plain data. Colours that begin with `@` belong to the page's theme (see `assets/report.js`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from avbench.analysis.advice import Advice
from avbench.analysis.coefficients import CoefficientTrace
from avbench.analysis.estimate import Estimate
from avbench.analysis.frontier import Frontier, FrontPoint
from avbench.analysis.passes import Point
from avbench.analysis.results import Results
from avbench.report.palette import DASHES, POSITION_COLOURS, Look, arm_looks
from avbench.report.rows import BEST, EQUAL, figure, mark_of
from avbench.units import format_decimal, format_interval, format_ms, format_percent, format_rate, format_significant

Figure = dict[str, Any]
HOVERED = {"ttft": "TTFT (median)", "tpot": "TPOT (median)", "e2el": "request time (median)"}


def front_figure(results: Results, advice: Advice, frontier: Frontier) -> Figure:
    """Throughput over interactivity: one line an arm through its loads, the front as a band under them."""
    looks = arm_looks(results.arms)
    traces = [_front_band(frontier)] if frontier.front else []
    for arm in results.arms:
        points = [entry for entry in frontier.points if entry.arm.id == arm.id]
        if points:
            traces.append(_arm_line(results, advice, frontier, points, looks[arm.id]))
    unit = results.throughput_unit
    return {
        "data": traces,
        "layout": base_layout(
            height=520,
            **_title(results),
            xaxis=base_axis("interactivity, tok/s/user (median over requests)", rangemode="tozero"),
            yaxis=base_axis(f"steady throughput, {unit}", rangemode="tozero"),
            legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 13}},
            hovermode="closest",
        ),
        "log": True,
    }


def _title(results: Results) -> Figure:
    """A figure that leaves the page alone still says that its seconds are virtual."""
    if results.costs is None:
        return {}
    place = {"x": 0, "xref": "paper", "y": 1, "yref": "container", "yanchor": "top", "automargin": True}
    return {
        "title": {"text": escape(f"emulated: {results.costs}"), "font": {"size": 13}, "pad": {"t": 6, "b": 6}, **place}
    }


def _front_band(frontier: Frontier) -> Figure:
    """Joins the front's upper edge; points that are on the front only within noise lie below it."""
    edge: list[FrontPoint] = []
    for entry in sorted(frontier.front, key=lambda entry: (-entry.interactivity, -entry.throughput)):
        if not edge or entry.throughput > edge[-1].throughput:
            edge.append(entry)
    return {
        "type": "scatter",
        "name": "front",
        "mode": "lines",
        "x": [entry.interactivity for entry in edge],
        "y": [entry.throughput for entry in edge],
        "line": {"color": "@front", "width": 16, "shape": "linear"},
        "hoverinfo": "skip",
    }


def _arm_line(results: Results, advice: Advice, frontier: Frontier, points: Sequence[FrontPoint], look: Look) -> Figure:
    on_front = [frontier.holds(entry.point) for entry in points]
    rates = [figure(results, "steady_throughput", entry.point) for entry in points]
    extension = " (extension of avbench)" if points[0].arm.depth == "nested" else ""
    return {
        "type": "scatter",
        "name": escape(results.label(points[0].arm.id)) + extension,
        "mode": "lines+markers+text",
        "x": [entry.interactivity for entry in points],
        "y": [entry.throughput for entry in points],
        "text": [f"C={entry.point.concurrency}" if entry in _named(frontier) else "" for entry in points],
        "textposition": "top center",
        "cliponaxis": False,
        "textfont": {"color": "@ink", "size": 11},
        "customdata": [_hover(results, advice, frontier, entry) for entry in points],
        "hovertemplate": "%{customdata}<extra></extra>",
        "error_y": _error_bars(rates, results.gpus, look),
        "error_x": _error_bars([figure(results, "interactivity", entry.point) for entry in points], 1, look),
        "line": {"color": look.colour, "width": look.width, "dash": look.dash},
        "marker": {
            "color": look.colour,
            "symbol": [look.symbol if kept else f"{look.symbol}-open" for kept in on_front],
            "size": [13 if kept else 9 for kept in on_front],
            "line": {"color": ["@ink" if kept else look.colour for kept in on_front], "width": 1.5},
        },
    }


def _named(frontier: Frontier) -> list[FrontPoint]:
    """The front's highest point of each load: only these carry their load as text, so that labels do not collide."""
    highest: dict[int, FrontPoint] = {}
    for entry in sorted(frontier.front, key=lambda entry: entry.throughput):
        highest[entry.point.concurrency] = entry
    return list(highest.values())


def _error_bars(estimates: Sequence[Estimate | None], divisor: int, look: Look) -> Figure:
    def reach(estimate: Estimate | None, *, up: bool) -> float:
        if estimate is None or estimate.low is None or estimate.high is None:
            return 0.0
        return (estimate.high - estimate.value if up else estimate.value - estimate.low) / divisor

    return {
        "type": "data",
        "symmetric": False,
        "array": [reach(estimate, up=True) for estimate in estimates],
        "arrayminus": [reach(estimate, up=False) for estimate in estimates],
        "color": look.colour,
        "thickness": 1,
        "width": 0,
    }


def _hover(results: Results, advice: Advice, frontier: Frontier, entry: FrontPoint) -> str:
    """All figures of a point; Plotly reads a little HTML here, so names are escaped."""
    return "<br>".join(_hover_lines(results, advice, frontier, entry))


def _hover_lines(results: Results, advice: Advice, frontier: Frontier, entry: FrontPoint) -> Iterator[str]:
    point = entry.point
    yield f"<b>{escape(results.label(point.arm))} · C={point.concurrency}</b>"
    rate, speed = figure(results, "steady_throughput", point), figure(results, "interactivity", point)
    yield f"steady throughput {format_rate(_value(rate))}{_interval(rate)}"
    yield f"interactivity {format_significant(_value(speed))} tok/s/user{_interval(speed)}"
    for quantity in ("ttft", "tpot", "e2el"):
        estimate = figure(results, quantity, point)
        yield f"{HOVERED[quantity]} {format_ms(_value(estimate))}{_interval(estimate, 1000)}"
    length, verified = figure(results, "acceptance_length", point), figure(results, "verified_per_request_step", point)
    if length is not None:
        yield f"acceptance length {format_decimal(length.value)}{_interval(length)}"
    if verified is not None:
        yield f"verified drafts per request-step {format_decimal(verified.value)}"
    if rate is not None:
        passes = (
            f"{rate.n} passes, {format_percent(rate.spread)} apart" if rate.n > 1 else "one pass, no noise estimate"
        )
        yield passes
    mark = mark_of(advice, point)
    yield {BEST: f"{BEST} highest of its load", EQUAL: f"{EQUAL} not told from the highest of its load"}.get(mark, "")
    yield _standing(results, frontier, point)


def _standing(results: Results, frontier: Frontier, point: Point) -> str:
    if frontier.holds(point):
        return "on the front"
    other = frontier.dominated_by[point]
    return f"off the front: {escape(results.label(other.arm))} at C={other.concurrency} is better"


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value


def _interval(estimate: Estimate | None, factor: float = 1) -> str:
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    return f" ({format_interval(estimate.low * factor, estimate.high * factor)})"


def coefficient_figure(results: Results, trace: CoefficientTrace) -> Figure:
    """Slope, intercepts and log-loss over the life of one server; steady windows of its cells are shaded."""
    rows: list[Figure] = [_step_line(trace, trace.slopes, "slope", "@ink", "solid", axis="y")]
    for position, values in enumerate(zip(*trace.intercepts, strict=True), start=1):
        lap, place = divmod(position - 1, len(POSITION_COLOURS))
        name = f"b{position}"
        rows.append(_step_line(trace, values, name, POSITION_COLOURS[place], DASHES[lap % len(DASHES)], axis="y2"))
    rows.append(_step_line(trace, trace.log_losses, "log-loss", "@muted", "solid", axis="y3"))
    shapes, notes = _cell_marks(trace)
    layout = base_layout(
        **_title(results),
        height=640,
        xaxis=base_axis("seconds since the server's trace began", anchor="y3", rangemode="tozero"),
        yaxis=base_axis("slope", domain=[0.72, 1.0]),
        yaxis2=base_axis("intercepts", domain=[0.28, 0.68]),
        yaxis3=base_axis("log-loss", domain=[0.0, 0.24]),
        hovermode="x unified",
        shapes=shapes,
        annotations=notes,
        legend={"orientation": "h", "x": 0, "y": -0.1, "yanchor": "top"},
    )
    layout["margin"]["t"] = 96
    return {"data": rows, "layout": layout}


def _step_line(
    trace: CoefficientTrace, values: Sequence[float | None], name: str, colour: str, dash: str, *, axis: str
) -> Figure:
    """Coefficients hold from one refit to the next: a step line with a mark at each refit."""
    return {
        "type": "scatter",
        "name": name,
        "mode": "lines+markers",
        "x": [round(time, 3) for time in trace.times],
        "y": [None if value is None else round(value, 5) for value in values],
        "yaxis": axis,
        "line": {"color": colour, "shape": "hv", "width": 1.5, "dash": dash},
        "marker": {"color": colour, "size": 4},
        "hovertemplate": "%{y:.4f}",
    }


def _cell_marks(trace: CoefficientTrace) -> tuple[list[Figure], list[Figure]]:
    shapes: list[Figure] = []
    notes: list[Figure] = []
    for cell in trace.cells:
        shapes.append(
            {
                "type": "line",
                "x0": cell.start,
                "x1": cell.start,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": "@muted", "width": 1, "dash": "dot"},
            }
        )
        if cell.window is not None:
            start, end = cell.window
            area = {"type": "rect", "x0": start, "x1": end, "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
            shapes.append(area | {"fillcolor": "@shade", "line": {"width": 0}})
        notes.append(
            {
                "x": cell.start,
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "xanchor": "left",
                "text": escape(cell.label),
                "textangle": -50,
                "showarrow": False,
                "font": {"size": 10, "color": "@ink"},
            }
        )
    return shapes, notes


def base_layout(**parts: Any) -> Figure:
    """Of every plot of the page; `parts` replace or add."""
    base = {
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "@ink"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 68, "r": 28, "t": 48, "b": 60},
        "hoverlabel": {"bgcolor": "@paper", "bordercolor": "@muted", "font": {"color": "@ink"}, "align": "left"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "@muted", "activecolor": "@accent"},
        "autosize": True,
    }
    return base | parts


def base_axis(title: str, **parts: Any) -> Figure:
    """An axis in the page's manner; `parts` replace or add."""
    base = {
        "title": {"text": title, "standoff": 8, "font": {"size": 13}},
        "gridcolor": "@grid",
        "zerolinecolor": "@grid",
        "linecolor": "@muted",
        "automargin": True,
    }
    return base | parts
