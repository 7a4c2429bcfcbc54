"""The sections of the page that let a reader check it: coefficients, cautions, definitions, environment, commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from avbench.analysis.caution import Caution
from avbench.analysis.coefficients import CoefficientTrace
from avbench.analysis.results import Results
from avbench.record.quantities import QUANTITIES
from avbench.report.html import Child, Html, code_text, element, join
from avbench.report.sections import copy_box, missing, section
from avbench.report.titles import titled
from avbench.report.words import refit_words
from avbench.units import format_decimal, format_plural

SHOWN_PLACES = 6


def coefficients(results: Results, traces: Sequence[CoefficientTrace]) -> Html:
    """Slope and intercepts over the life of each adaptive server."""
    title = titled("Estimator coefficients", results.costs)
    adaptive = [arm for arm in results.arms if arm.kind == "adaptive"]
    if not adaptive:
        return section("coefficients", title, missing("This sweep has no adaptive arm."))
    if all(arm.source == "head" for arm in adaptive):
        return section("coefficients", title, missing("Every adaptive arm uses a confidence head: nothing is fitted."))
    if not traces:
        text = "No adaptive server wrote a trace with a refit: coefficients over time are not known."
        return section("coefficients", title, missing(text))
    note = (
        "The estimator predicts the acceptance of a draft as sigmoid(slope x logit(q_max) + intercept of its position) "
        "and starts at slope 0.5 and intercepts -0.2. Dotted lines mark where a cell began, shaded "
        "spans are steady windows; the state is carried from one cell to the next."
    )
    return section(
        "coefficients",
        title,
        element("p", note, class_="note"),
        *(element("p", code_text(line)) for line in refit_words(results)),
        *(_server(results, index, trace) for index, trace in enumerate(traces)),
    )


def coefficient_id(index: int) -> str:
    """The element that holds one server's plot."""
    return f"coefficients-{index}"


def _server(results: Results, index: int, trace: CoefficientTrace) -> Html:
    labels = sum(sum(counts) for counts in trace.counts)
    last = ", ".join(format_decimal(value) for value in trace.intercepts[-1])
    cells = ", ".join(cell.label for cell in trace.cells) or "none recorded"
    return join(
        element("h3", titled(f"{results.label(trace.arm.id)}, pass {trace.pass_number}", results.costs)),
        element("div", id=coefficient_id(index), class_="plot"),
        element(
            "p",
            f"{format_plural(len(trace.times), 'refit')} from {format_plural(labels, 'label')}; last slope "
            f"{format_decimal(trace.slopes[-1], 3)}, last intercepts {last}. Cells in order: {cells}.",
            class_="note",
        ),
    )


def cautions(found: Sequence[Caution]) -> Html:
    """Every doubt, with what to do about it."""
    if not found:
        return section("cautions", "Cautions", element("p", "None of the checks found a reason for doubt."))
    return section("cautions", f"Cautions ({len(found)})", *(_caution(caution) for caution in found))


def _caution(caution: Caution) -> Html:
    return element(
        "div",
        element("h3", caution.kind.replace("_", " ")),
        element("p", code_text(caution.text)),
        element("p", code_text(caution.advice), class_="note"),
        *_places(caution.where),
        class_="caution",
    )


def _places(where: Sequence[str]) -> Iterator[Html]:
    if len(where) <= SHOWN_PLACES:
        if where:
            yield element("ul", (element("li", place) for place in where))
        return
    summary = element("summary", format_plural(len(where), "place"))
    yield element("details", summary, element("ul", (element("li", place) for place in where)))


def definitions() -> Html:
    """Each quantity once, as the code defines it."""
    entries = (
        join(element("dt", f"{quantity.name} ({quantity.unit})"), element("dd", code_text(quantity.definition)))
        for quantity in QUANTITIES.values()
    )
    return section("definitions", "Definitions", element("dl", entries))


def environment(results: Results) -> Html:
    """The machine, the software and the sweep file."""
    manifest = results.manifest
    facts: dict[str, Any] = {
        "avbench": manifest.get("avbench_version"),
        "engine": manifest.get("engine_version"),
        "engine command replaced by": manifest.get("engine_command"),
        "measured": manifest.get("created_at"),
        "sweep hash": manifest.get("spec_hash"),
        "emulated with the cost table": results.costs,
        **{f"cost table {key}": value for key, value in results.cost_table.items() if key in ("source", "sha256")},
        "cost table notes": " ".join(str(note) for note in results.cost_table.get("notes") or ()) or None,
    }
    facts = {name: value for name, value in facts.items() if value is not None}
    machine = manifest.get("environment")
    flat = dict(_flat(machine)) if isinstance(machine, Mapping) else {}
    text = manifest.get("spec_text")
    return section(
        "environment",
        "Environment",
        element("dl", (_fact(name, value) for name, value in {**facts, **flat}.items())),
        missing("The manifest says nothing about the machine.") if not flat else None,
        element("h3", "Sweep file"),
        element("pre", element("code", str(text))) if text else missing("The sweep file was not kept."),
    )


def _fact(name: str, value: object) -> Child:
    return join(element("dt", name), element("dd", "not installed" if value is None else str(value)))


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} ")
        elif name == "ram_bytes" and isinstance(value, int):
            yield f"{prefix}RAM", f"{value / 2**30:.1f} GiB"
        else:
            yield f"{prefix}{name}", value


def commands(results: Results) -> Html:
    """The exact command of each arm's server, from its first pass."""
    blocks = []
    for arm in results.arms:
        servers = dict.fromkeys(cell.server for cell in results.measurements if cell.arm == arm.id)
        found = next((command for server in servers if (command := results.command(server)) is not None), None)
        if found is None:
            blocks.append(join(element("h3", results.label(arm.id)), missing("No command was kept.")))
            continue
        environ = [f"{name}={shlex.quote(value)}" for name, value in found.env.items()]
        blocks.append(
            join(element("h3", results.label(arm.id)), copy_box(" ".join([*environ, shlex.join(found.argv)])))
        )
    return section("commands", "Commands", *(blocks or [missing("No arm was measured.")]))
