"""The sections of the page that answer the question: what to run, how sure, what each point measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from avbench.analysis.advice import Advice, Pick
from avbench.analysis.compare import compare_points
from avbench.analysis.frontier import Frontier
from avbench.analysis.passes import Point
from avbench.analysis.results import Results
from avbench.report.html import Html, code_text, element, join, table
from avbench.report.rows import BEST, EQUAL, mark_of, table_rows, telling_differences
from avbench.report.titles import titled
from avbench.report.words import (
    behind_words,
    environment_words,
    extension_words,
    gain_words,
    ratio_words,
    refit_words,
    told_words,
)
from avbench.spec.arm import Arm
from avbench.spec.speculative import SpeculativeConfig, config_flag
from avbench.units import MISSING, format_interval, format_percent, format_plural, format_rate


def section(anchor: str, title: str, *body: Html | None) -> Html:
    """One block of the page."""
    return element("section", element("h2", title), *body, id=anchor)


def missing(text: str) -> Html:
    """Says what is not there."""
    return element("p", text, class_="missing")


def recommendation(results: Results, advice: Advice) -> Html:
    """The headline: the least-regret arm with its flag, then the best arm at each load."""
    if not advice.picks:
        text = "No arm can be recommended: no load has an arm that was measured and is comparable."
        return section("recommendation", "Recommendation", missing(text))
    return section(
        "recommendation",
        titled("Recommendation", results.costs),
        _headline(advice),
        element("h3", titled("Best arm at each load", results.costs)),
        _pick_table(results, advice),
        *_load_flags(results, advice),
        *(element("p", code_text(line), class_="note") for line in _remarks(results, advice)),
    )


def _headline(advice: Advice) -> Html:
    least = advice.least_regret
    if least is None:
        return missing("No arm was measured at every load, so none has a regret over all of them.")
    return join(
        element(
            "p",
            "If one setting must serve all these loads: run ",
            element("b", advice.label(least.arm)),
            ".",
            class_="headline",
        ),
        element("p", behind_words(advice, least)),
        command_box(least.arm, least.config),
        _environment(advice.label(least.arm), least.environment),
    )


def command_box(arm: Arm, config: SpeculativeConfig | None) -> Html:
    """The flag, ready to copy."""
    if arm.kind == "none":
        return element("p", "Plain decoding: leave ", element("code", "--speculative-config"), " away.")
    if config is None:
        return missing("The results do not say which pair this is, so no configuration can be written.")
    return copy_box(config_flag(config))


def _environment(label: str, environment: Mapping[str, str]) -> Html:
    return join(element("p", code_text(line), class_="note") for line in environment_words(label, environment))


def copy_box(text: str) -> Html:
    """Text with a button that copies it."""
    return element(
        "div", element("button", "copy", type="button"), element("pre", element("code", text)), class_="command"
    )


def _load_flags(results: Results, advice: Advice) -> Iterator[Html]:
    """The other arms that win somewhere, each with its flag."""
    least = advice.least_regret
    others: dict[Arm, list[Pick]] = {}
    for pick in advice.picks:
        if least is None or pick.arm != least.arm:
            others.setdefault(pick.arm, []).append(pick)
    for arm, picks in others.items():
        title = element("p", f"For {_places(picks)} alone: ", element("b", results.label(arm.id)))
        remark = _environment(results.label(arm.id), picks[0].environment)
        yield join(title, command_box(arm, picks[0].config), remark)


def _places(picks: Sequence[Pick]) -> str:
    """`code C=1, 8 and prose C=64`."""
    loads: dict[str, list[str]] = {}
    for pick in picks:
        loads.setdefault(pick.workload, []).append(str(pick.concurrency))
    return " and ".join(f"{workload} C={', '.join(found)}" for workload, found in loads.items())


def _pick_table(results: Results, advice: Advice) -> Html:
    head = ["workload", "C", "run", "steady throughput (95 %)", "against the best other arm", "difference", "why"]
    rows = [
        [
            pick.workload,
            str(pick.concurrency),
            results.label(pick.arm.id),
            _throughput(pick),
            gain_words(advice, pick) or MISSING,
            _verdict(pick),
            pick.reason,
        ]
        for pick in advice.picks
    ]
    return table(head, rows, class_="picks", caption="best arm at each load")


def _throughput(pick: Pick) -> str:
    estimate = pick.throughput
    text = format_rate(estimate.value)
    return text if estimate.low is None else f"{text} ({format_interval(estimate.low, estimate.high)})"


def _verdict(pick: Pick) -> Html | str:
    if pick.gain is None:
        return MISSING
    return element("span", pick.gain.verdict, class_="shown" if pick.gain.shown else "unshown")


def _remarks(results: Results, advice: Advice) -> Iterator[str]:
    yield (
        "Highest steady throughput at each load; the gain is read against all rivals at once (Bonferroni), because the "
        "best was chosen for being the best. Where rivals cannot be told from it, the simplest is recommended."
    )
    yield from extension_words(results)
    yield from refit_words(results)
    for arm, absent in advice.incomplete.items():
        loads = format_plural(len(advice.picks), "load")
        yield f"{results.label(arm.id)} has no figure at {absent} of {loads}, so it has no regret."
    for point, reason in advice.unranked.items():
        yield f"Not ranked: {results.label(point.arm)} · {point.workload} · C={point.concurrency}: {reason}."


def fronts(results: Results, frontiers: tuple[Frontier, ...]) -> Html:
    """One plot a workload; the figures themselves travel in the page's data block."""
    blocks = [_front(results, index, frontier) for index, frontier in enumerate(frontiers)]
    note = (
        "Up and to the right is better. Filled marks with a rim are on the front: no other point beats them on one "
        "axis beyond noise without losing on the other. Hollow ones are not. The band joins the front's upper edge; "
        "bars are 95 % intervals. Hover or tap for all figures."
    )
    title = titled("Throughput against interactivity", results.costs)
    return section("fronts", title, element("p", note, class_="note"), *blocks)


def front_id(index: int) -> str:
    """The element that holds a workload's plot."""
    return f"front-{index}"


def _front(results: Results, index: int, frontier: Frontier) -> Html:
    if not frontier.points:
        return join(element("h3", frontier.workload), missing("No point of this workload has both axes."))
    counts = ", ".join(
        f"{results.label(arm)} {kept} of {measured}" for arm, (kept, measured) in frontier.on_front.items()
    )
    return join(
        element("h3", titled(frontier.workload, results.costs)),
        element("div", element("button", "log axes", type="button", data_log=front_id(index)), class_="plot-bar"),
        element("div", id=front_id(index), class_="plot"),
        element("p", f"On the front at n of m concurrencies: {counts}.", class_="note"),
    )


def shortfalls(results: Results, advice: Advice) -> Html:
    """Every arm against the best of each load."""
    title = titled("Shortfall against the best arm of each load", results.costs)
    loads = [(pick.workload, pick.concurrency) for pick in advice.picks]
    if not loads:
        return section("regret", title, missing("Nothing to compare."))
    worst = {regret.arm: regret.worst for regret in advice.regrets}
    head = ["arm", "worst", *(f"{workload} C={load}" for workload, load in loads)]
    rows = [
        [
            results.label(arm.id),
            element("td", "highest everywhere" if worst[arm] == 0 else f"-{format_percent(worst[arm])}")
            if arm in worst
            else MISSING,
            *(_shortfall(results, advice, pick, arm) for pick in advice.picks),
        ]
        for arm in results.arms
    ]
    note = f"{BEST} highest figure of the load, {EQUAL} not told from it. The arm with the least worst case wins."
    return section(
        "regret",
        title,
        element("p", note, class_="note"),
        table(head, rows, class_="matrix", caption="shortfall against the best arm of each load"),
    )


def _shortfall(results: Results, advice: Advice, pick: Pick, arm: Arm) -> Html | str:
    own = Point(arm=arm.id, workload=pick.workload, concurrency=pick.concurrency)
    best = Point(arm=pick.fastest.id, workload=pick.workload, concurrency=pick.concurrency)
    if own in advice.unranked:
        return "not ranked"
    mark = mark_of(advice, own)
    if mark == BEST:
        return element("td", BEST, class_="best")
    gain = compare_points(results.table("steady_throughput"), own, best)
    if gain is None:
        return MISSING
    return element("td", f"{ratio_words(gain)} {mark}".rstrip(), class_="best" if mark == EQUAL else None)


def figures_table(results: Results, advice: Advice) -> Html:
    """The full table, one a workload."""
    virtual = " (virtual)" if results.emulated else ""
    head = (
        "C", "", "arm", f"steady tok/s{virtual}", "95 %", f"tok/s/user{virtual}", "TPOT ms", "TTFT ms",
        "acceptance length", "verified drafts per request-step", "between passes", "passes",
    )  # fmt: skip
    blocks = [
        join(
            element("h3", titled(workload, results.costs)),
            table(head, _figure_rows(results, advice, workload), class_="figures", caption=workload),
        )
        for workload in results.workloads
    ]
    note = (
        f"{BEST} highest steady throughput of its load, {EQUAL} not told from it. Latencies are medians over requests, "
        "their mean over passes geometric. 95 %: interval of the throughput, from value / (1 + x) to value * (1 + x). "
        "Between passes: (largest - smallest) / mean."
    )
    return section("table", titled("All figures", results.costs), element("p", note, class_="note"), *blocks)


def _figure_rows(results: Results, advice: Advice, workload: str) -> Iterator[Html]:
    load = None
    for row in table_rows(results, advice, workload):
        first = row.point.concurrency != load
        load = row.point.concurrency
        cells = [
            element("td", str(load), class_="load"),
            element("td", row.mark),
            element("td", row.label, class_="name"),
            *(
                element("td", text)
                for text in (
                    row.throughput,
                    row.half_width,
                    row.interactivity,
                    row.tpot,
                    row.ttft,
                    row.acceptance,
                    row.verified,
                    row.spread,
                    str(row.passes) if row.passes else MISSING,
                )
            ),
        ]
        names = [name for name, holds in (("first", first), ("highest", row.mark == BEST)) if holds]
        yield element("tr", *cells, class_=" ".join(names) or None)


def telling(results: Results, advice: Advice) -> Html:
    """What this sweep cannot tell."""
    unsure = [pick for pick in advice.picks if pick.equals]
    lines = [
        f"{pick.workload}, C={pick.concurrency}: {results.label(pick.fastest.id)} cannot be told from "
        + ", ".join(results.label(arm.id) for arm in pick.equals)
        for pick in unsure
    ]
    one_pass = [pick for pick in advice.picks if pick.gain is not None and pick.gain.low is None]
    if lines:
        listed = element("ul", (element("li", line) for line in lines))
    elif one_pass:
        listed = element("p", "With one pass no difference can be told from noise.")
    else:
        listed = element("p", "At every load the highest arm is beyond noise of all its rivals.")
    how = (
        "The pass (one server start that runs all loads) is the unit. Below six passes the variance between passes is "
        "pooled over all cells of one concurrency class (1-4, 5-16, 17 and more), with Satterthwaite's degrees of "
        "freedom for what a pass or a server start moves together; arms are compared within passes, so drift between "
        "them cancels."
    )
    return section(
        "telling",
        titled("What cannot be told", results.costs),
        element("p", told_words(telling_differences(results))),
        listed,
        element("p", how, class_="note"),
    )
