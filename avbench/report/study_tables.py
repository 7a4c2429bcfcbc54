"""The study in the terminal: 80 columns, no colour needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from avbench.analysis.study.coefficients import Coefficient, Coefficients
from avbench.analysis.study.features import ESTIMATOR, LEADING
from avbench.analysis.study.lockin import LockIn
from avbench.analysis.study.scoring import Part, Subject
from avbench.analysis.study.study import PoolStudy, Study
from avbench.report.study_words import (
    BY_ID,
    censoring,
    emulated,
    entropy_words,
    number,
    pool_facts,
    relation_words,
    share,
    signed,
    spread,
    summary,
)
from avbench.units import MISSING, format_count

if TYPE_CHECKING:
    from rich.console import RenderableType

LEGEND = (
    "lossless: a function of the draft distribution alone; trimming by the drawn token would bias the output",
    "±: half the 95 % interval by request; ECE: 15 bins of equal width, weighted by occupancy",
    "fitted sources are scored online: each prediction was made before its own label was used",
)


def render_study(study: Study) -> Group:
    """Findings in words, then the tables of each pool."""
    parts: list[RenderableType] = []
    for name, lines in summary(study):
        parts += [_title(emulated(name, study)), *(_paragraph(f"- {line}") for line in lines), Text("")]
    for pool in study.pools:
        parts += _pool(study, pool)
    if study.notes:
        parts += [_title("Notes"), *(_paragraph(f"- {note}") for note in study.notes)]
    return Group(*parts)


def _pool(study: Study, pool: PoolStudy) -> Iterator[RenderableType]:
    yield _title(emulated(pool.name, study))
    yield _paragraph(f"{pool_facts(pool)}. {censoring(pool)}")
    yield Text("")
    for index, subject in enumerate(pool.subjects):
        yield from _subject(study, subject, whole=index == 0)
    yield from (_paragraph(line) for line in LEGEND)
    yield Text("")
    yield _coefficients(pool)
    yield from (_paragraph(relation_words(each)) for each in study.relations if each.pool == pool.name)
    yield from (Text(""), _offline(pool), Text(""))
    yield _ablations(pool)
    yield Text("")
    for way in pool.lock_in.ways:
        yield from (_lock_in(way), Text(""))
    if pool.lock_in.reason:
        yield _paragraph(f"Never-admitted positions: {pool.lock_in.reason}")
    yield from _order(pool)
    yield _convergence(pool)
    yield Text("")


def _subject(study: Study, subject: Subject, *, whole: bool) -> Iterator[RenderableType]:
    """The first subject in full; of the others the feature table."""
    yield from (_features(f"{subject.name}: all positions", subject.whole), Text(""))
    if not whole:
        return
    yield from (_features(f"{subject.name}: without position 1", subject.without_first), Text(""))
    yield from (_positions(subject), Text(""))
    yield from (_reliability(subject), Text(""))


def _features(title: str, part: Part) -> RenderableType:
    observed = next((number(score.observed.value, 3) for score in part.scores), MISSING)
    table = _table(f"{title} ({format_count(part.n)} labels, {observed} accepted)")
    _columns(table, "source", "loss-\nless", "AUC", "log-loss", "ECE", "pred.")
    for score in part.scores:
        feature = BY_ID[score.source]
        table.add_row(
            feature.name,
            "yes" if feature.lossless else "no",
            spread(score.auc),
            spread(score.log_loss),
            spread(score.ece),
            number(score.predicted.value, 3),
            style="bold" if feature is ESTIMATOR else "",
        )
    return Group(table, *(_paragraph(line) for line in part.missing))


def _positions(subject: Subject) -> RenderableType:
    table = _table(f"{subject.name}: by position")
    _columns(table, "pos.", "source", "labels", "AUC", "log-loss", "ECE", "pred.", "obs.")
    for index, part in enumerate(subject.positions, start=1):
        table.add_section()
        for place, score in enumerate(part.scores):
            table.add_row(
                str(index) if not place else "",
                BY_ID[score.source].name,
                format_count(part.n) if not place else "",
                spread(score.auc, 3),
                spread(score.log_loss, 3),
                spread(score.ece, 3),
                number(score.predicted.value, 3),
                number(score.observed.value, 3) if not place else "",
            )
        if not part.scores:
            table.add_row(str(index), "no labels", "0")
    return table


def _reliability(subject: Subject) -> RenderableType:
    shown = [each for each in subject.reliability if BY_ID[each.source] in LEADING]
    table = _table(f"{subject.name}: reliability (share of drafts, mean predicted, accepted)")
    _columns(table, "confidence", *(BY_ID[each.source].name for each in shown))
    for rows in zip(*(each.bins for each in shown), strict=True):
        cells = [
            f"{share(own.n, sum(each.n for each in diagram.bins)):>7} {number(own.predicted, 3):>5} "
            f"{number(own.observed, 3):>5}"
            for own, diagram in zip(rows, shown, strict=True)
        ]
        table.add_row(f"{number(rows[0].low, 2)}-{number(rows[0].high, 2)}", *cells)
    return table


def _coefficients(pool: PoolStudy) -> RenderableType:
    table = _table(f"Coefficients on {pool.name}")
    _columns(table, "data set", "entropy\nnats", "slope", "intercepts, by position")
    for each in pool.coefficients:
        table.add_row(each.data_set, entropy_words(each.entropy), _coefficient(each.slope, 3), intercept_words(each))
    settled = "mean ± sd over the later half of the refits of a fit of that data set alone, from the cold start"
    unseen = (_paragraph(_never_seen(each)) for each in pool.coefficients if each.never_seen)
    return Group(table, _paragraph(settled), *unseen)


def _never_seen(each: Coefficients) -> str:
    places = ", ".join(str(position) for position in each.never_seen)
    return f"{each.data_set}: no labels at position {places}: the intercept stays at -0.2"


def _offline(pool: PoolStudy) -> RenderableType:
    table = _table("Online fit against an offline logistic regression, nats per draft")
    _columns(table, "data set", "online", "offline", "", "settled:\nonline", "offline", "")
    for each in pool.coefficients:
        table.add_row(
            each.data_set,
            number(each.online_loss),
            number(each.offline_loss),
            signed(_minus(each.online_loss, each.offline_loss)),
            number(each.settled_loss),
            number(each.settled_offline_loss),
            signed(_minus(each.settled_loss, each.settled_offline_loss)),
        )
    return table


def _minus(value: float, other: float | None) -> float | None:
    return None if other is None else value - other


def intercept_words(each: Coefficients) -> str:
    """`0.62 0.20 -0.11`."""
    return " ".join(number(intercept.mean, 2) for intercept in each.intercepts)


def _coefficient(value: Coefficient, digits: int) -> str:
    return number(value.mean, digits) + (f" ±{number(value.sd, digits)}" if value.sd is not None else "")


def _ablations(pool: PoolStudy) -> RenderableType:
    table = _table(f"One thing changed, on {pool.name}")
    _columns(table, "what", "setting", "log-loss", "", "first\n1000", "AUC", "ECE")
    topic = ""
    for each in pool.ablations:
        if topic and each.topic != topic:
            table.add_section()
        table.add_row(
            each.topic if each.topic != topic else "",
            each.name,
            number(each.log_loss),
            "as is" if each.usual else signed(each.log_loss_difference),
            number(each.early_loss),
            number(each.auc),
            number(each.ece),
            style="bold" if each.usual else "",
        )
        topic = each.topic
    return table


def _lock_in(way: LockIn) -> RenderableType:
    table = _table(f"Lock-in: {way.hiding}")
    _columns(
        table,
        "pos.",
        "seen",
        "hidden",
        "intercept\nopen",
        "locked",
        "inherited",
        "log-loss\nopen",
        "locked",
        "inherited",
    )
    for place in way.positions:
        table.add_row(
            str(place.position),
            format_count(place.seen),
            format_count(place.hidden),
            number(place.intercept_open, 2),
            number(place.intercept_locked, 2),
            number(place.intercept_inherited, 2),
            *(number(loss) for loss in (place.loss_open, place.loss_locked, place.loss_inherited)),
        )
    table.add_row("all", "", format_count(way.hidden), "", "", "", number(way.loss_open), number(way.loss_locked),
                  number(way.loss_inherited), style="bold")  # fmt: skip
    return table


def _order(pool: PoolStudy) -> Iterator[RenderableType]:
    if pool.order.reason:
        yield _paragraph(f"Order: {pool.order.reason}")
        yield Text("")
        return
    table = _table("Order: log-loss with a fresh estimator and one that served something else before")
    _columns(table, "first", "then", "fresh", "carried", "", "first 10\nrefits", "carried")
    for case in pool.order.cases:
        table.add_row(
            case.first,
            case.second,
            number(case.fresh),
            number(case.carried),
            signed(case.carried - case.fresh),
            number(case.fresh_early),
            number(case.carried_early),
        )
    yield from (table, Text(""))


def _convergence(pool: PoolStudy) -> RenderableType:
    table = _table("Convergence from the cold start, in engine steps")
    _columns(
        table, "data set", "within 2 % of\nits final loss", "within 2 % of\nthe offline fit", "refits", "final loss"
    )
    for each in pool.convergence:
        steps = [format_count(value) if value is not None else MISSING for value in (each.steps, each.steps_to_offline)]
        table.add_row(each.data_set, *steps, format_count(each.rounds), number(each.final))
    return table


def _table(title: str) -> Table:
    return Table(title=Text(title, style="bold"), title_justify="left", box=None, padding=(0, 1, 0, 0))


# Words, which may be folded; figures never are.
_WORDS = ("source", "data set", "what", "setting", "first", "then", "confidence", "intercepts, by position")


def _columns(table: Table, *names: str) -> None:
    for name in names:
        words = name in _WORDS
        table.add_column(
            name, justify="left" if words else "right", no_wrap=not words, overflow="fold", header_style="dim"
        )


def _title(text: str) -> Text:
    return Text(text, style="bold underline")


def _paragraph(text: str) -> Table:
    """Text that wraps at words whatever the console's own setting."""
    grid = Table.grid(padding=(0, 0))
    grid.add_column(overflow="fold")
    grid.add_row(Text(text, style="dim"))
    return grid
