"""The study's page: what the online fit came to, and how soon."""

from __future__ import annotations

from collections.abc import Iterator

from avbench.analysis.study.coefficients import Coefficient, Coefficients
from avbench.analysis.study.study import PoolStudy, Study
from avbench.report.html import Child, Html, element, join, table
from avbench.report.sections import missing, section
from avbench.report.study_words import emulated, number, relation_words, signed
from avbench.units import MISSING, format_count, format_plural

SETTLED = (
    "A fresh online fit of logit(q_max) over each data set alone, from slope 0.5 and intercepts -0.2: mean ± standard "
    "deviation over the later half of its refits. Offline: scikit-learn's logistic regression on the same labels at "
    "once, with one slope, one intercept per position and the estimator's ridge."
)


def coefficients(study: Study) -> Html:
    """Tables and plots of slope and intercepts, and their relation to the draft entropy."""
    return section(
        "coefficients",
        emulated("Coefficients", study),
        element("p", SETTLED, class_="note"),
        *(_pool_coefficients(study, index, pool) for index, pool in enumerate(study.pools)),
        element("h3", "Against the mean draft entropy"),
        _entropy(study),
    )


def intercepts_id(index: int) -> str:
    """The element that holds a pool's intercepts."""
    return f"intercepts-{index}"


ENTROPY_ID = "entropy"


def has_entropy(study: Study) -> bool:
    """Whether coefficients can be drawn over an entropy."""
    return any(each.entropy is not None for pool in study.pools for each in pool.coefficients)


def _pool_coefficients(study: Study, index: int, pool: PoolStudy) -> Html:
    places = [f"b{position}" for position in range(1, pool.k + 1)]
    head = ["data set", "labels", "entropy", "slope", *places]
    rows = [row for each in pool.coefficients for row in _coefficient_rows(each)]
    fits = ["data set", "refits", "online", "settled", "offline, all", "offline, settled drafts", "online - offline"]
    return join(
        element("h3", emulated(pool.name, study)),
        element("div", id=intercepts_id(index), class_="plot"),
        table(head, rows, class_="matrix", caption=f"coefficients of {pool.name}"),
        *(missing(text) for each in pool.coefficients for text in _unseen(each)),
        element("h4", "Online against offline, log-loss in nats per draft"),
        table(fits, (_fit_row(each) for each in pool.coefficients), class_="matrix", caption="online against offline"),
    )


def _coefficient_rows(each: Coefficients) -> Iterator[list[Child]]:
    entropy, labels = number(each.entropy, 2), format_count(each.labels)
    yield [each.data_set, labels, entropy, _online(each.slope, 3), *(_online(b, 2) for b in each.intercepts)]
    if each.offline_loss is not None:
        intercepts = (number(b.offline, 2) for b in each.intercepts)
        yield ["offline", "", "", number(each.slope.offline, 3), *intercepts]


def _online(value: Coefficient, digits: int) -> str:
    return number(value.mean, digits) + (f" ±{number(value.sd, digits)}" if value.sd is not None else "")


def _unseen(each: Coefficients) -> Iterator[str]:
    if each.never_seen:
        places = ", ".join(map(str, each.never_seen))
        yield f"{each.data_set}: no labels at position {places}; the intercept stays at -0.2 there."


def _fit_row(each: Coefficients) -> list[Child]:
    gap = None if each.offline_loss is None else each.online_loss - each.offline_loss
    losses = (each.online_loss, each.settled_loss, each.offline_loss, each.settled_offline_loss)
    return [each.data_set, format_count(each.refits), *(number(loss) for loss in losses), signed(gap)]


def _entropy(study: Study) -> Html:
    if not has_entropy(study):
        return missing("The labels have no entropies.")
    lines = (element("p", f"{emulated(each.pool, study)}: {relation_words(each)}") for each in study.relations)
    return join(element("div", id=ENTROPY_ID, class_="plot"), *lines)


def convergence(study: Study) -> Html:
    """Rolling log-loss from the cold start."""
    head = [
        "data set",
        "within 2 % of its final value",
        "within 2 % of the offline fit",
        "refits",
        "refit interval",
        "final",
    ]
    blocks = []
    for index, pool in enumerate(study.pools):
        rows: list[list[Child]] = [
            [
                each.data_set,
                _steps(each.steps),
                _steps(each.steps_to_offline),
                format_count(each.rounds),
                format_plural(each.refit_interval, "step"),
                number(each.final),
            ]
            for each in pool.convergence
        ]
        blocks.append(
            join(
                element("h3", emulated(pool.name, study)) if len(study.pools) > 1 else None,
                element("div", id=convergence_id(index), class_="plot"),
                table(head, rows, class_="matrix", caption="convergence"),
            )
        )
    note = (
        "Log-loss over the last 5 refit rounds of a fresh fit of each data set; dashed, the offline fit on "
        "the same drafts."
    )
    return section("convergence", emulated("Convergence", study), element("p", note, class_="note"), *blocks)


def convergence_id(index: int) -> str:
    """The element that holds a pool's convergence plot."""
    return f"convergence-{index}"


def _steps(value: int | None) -> str:
    return MISSING if value is None else format_plural(value, "step")
