"""The study's page: the same labels with one thing changed."""

from __future__ import annotations

from avbench.analysis.study.ablations import Ablation
from avbench.analysis.study.lockin import LockIn
from avbench.analysis.study.study import PoolStudy, Study
from avbench.report.html import Child, Html, element, join, table
from avbench.report.sections import missing, section
from avbench.report.study_words import emulated, lock_in_words, number, signed
from avbench.units import format_count


def ablations(study: Study) -> Html:
    """One thing changed at a time, on the same labels."""
    note = (
        "Log-loss, AUC and ECE over all scored drafts of the pool; the first 1000 engine steps of each process show "
        "how a change starts. The published setting stands in each group; differences are to it."
    )
    return section(
        "ablations",
        emulated("One thing changed", study),
        element("p", note, class_="note"),
        *(
            join(
                element("h3", emulated(pool.name, study)) if len(study.pools) > 1 else None,
                _ablation_table(pool),
            )
            for pool in study.pools
        ),
    )


def _ablation_table(pool: PoolStudy) -> Html:
    head = ["what", "setting", "log-loss", "difference", "first 1000 steps", "AUC", "difference", "ECE", "difference"]
    rows = []
    topic = ""
    for each in pool.ablations:
        cells = [each.topic if each.topic != topic else "", *_ablation_cells(each)]
        rows.append(element("tr", *(element("td", cell) for cell in cells), class_=_row_class(each, topic)))
        topic = each.topic
    return table(head, rows, class_="matrix settings", caption=f"ablations on {pool.name}")


def _row_class(each: Ablation, topic: str) -> str | None:
    names = [name for name, holds in (("first", each.topic != topic), ("highest", each.usual)) if holds]
    return " ".join(names) or None


def _ablation_cells(each: Ablation) -> list[str]:
    differences = [each.log_loss_difference, each.auc_difference, each.ece_difference]
    first, second, third = ["as is"] * 3 if each.usual else [signed(value) for value in differences]
    figures = number(each.log_loss), first, number(each.early_loss), number(each.auc), second, number(each.ece), third
    return [each.name, *figures]


def lock_in(study: Study) -> Html:
    """Never-admitted positions."""
    note = (
        "A position that is never admitted gets no labels, so its intercept stays at the cold start and it may never "
        "be admitted. Shown on labels that were not trimmed: some are hidden from the fit and used for grading only. "
        "Open: the fit saw them. Locked: it did not. Inherited: nor did it, but positions never seen take the "
        "intercept of the deepest one seen, which vLLM does not do. Intercepts are means over the later half of "
        "the refits."
    )
    blocks: list[Html] = []
    for pool in study.pools:
        blocks.append(element("h3", emulated(pool.name, study)))
        blocks += [join(element("p", lock_in_words(way)), _lock_in_table(way)) for way in pool.lock_in.ways]
        if pool.lock_in.reason:
            blocks.append(missing(f"Here {pool.lock_in.reason}"))
    return section("lock-in", emulated("Never-admitted positions", study), element("p", note, class_="note"), *blocks)


def _lock_in_table(way: LockIn) -> Html:
    head = ["position", "seen", "hidden", *(f"{what}, {how}" for what in ("intercept", "log-loss") for how in _FITS)]
    rows: list[list[Child]] = [
        [
            str(place.position),
            format_count(place.seen),
            format_count(place.hidden),
            *(number(b, 2) for b in (place.intercept_open, place.intercept_locked, place.intercept_inherited)),
            *(number(loss) for loss in (place.loss_open, place.loss_locked, place.loss_inherited)),
        ]
        for place in way.positions
    ]
    totals = [number(loss) for loss in (way.loss_open, way.loss_locked, way.loss_inherited)]
    rows.append(["all", "", format_count(way.hidden), "", "", "", *totals])
    means = [number(p, 3) for p in (way.predicted_open, way.predicted_locked, way.predicted_inherited)]
    words = (
        f"Mean predicted on the hidden labels: {', '.join(f'{how} {p}' for how, p in zip(_FITS, means, strict=True))}"
    )
    return join(
        table(head, rows, class_="matrix", caption=way.hiding),
        element("p", f"{words}; accepted {number(way.observed, 3)}.", class_="note"),
    )


_FITS = ("open", "locked", "inherited")


def order(study: Study) -> Html:
    """What serving one thing first does to the confidences on the next."""
    head = ["first", "then", "fresh", "carried", "difference", "fresh, first 10 refits", "carried", "difference"]
    blocks: list[Html] = []
    for pool in study.pools:
        blocks.append(element("h3", emulated(pool.name, study)))
        if pool.order.reason:
            blocks.append(missing(f"Here {pool.order.reason}"))
            continue
        rows: list[list[Child]] = [
            [
                case.first,
                case.second,
                number(case.fresh),
                number(case.carried),
                signed(case.carried - case.fresh),
                number(case.fresh_early),
                number(case.carried_early),
                signed(case.carried_early - case.fresh_early),
            ]
            for case in pool.order.cases
        ]
        blocks.append(table(head, rows, class_="matrix settings", caption="order"))
    note = (
        "The estimator's state outlives a run. Log-loss on the second data set of an estimator that starts there, and "
        "of one that has served the first before. Couples: least and most entropy, lowest and highest concurrency."
    )
    return section("order", emulated("Order of workloads", study), element("p", note, class_="note"), *blocks)
