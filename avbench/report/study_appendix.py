"""The study's page: what its words mean, and what was read."""

from __future__ import annotations

from avbench.analysis.study.replay_check import CLOSE
from avbench.analysis.study.study import PoolStudy, Study
from avbench.report.html import Child, Html, element, join, table
from avbench.report.sections import section
from avbench.report.study_words import CENSORED, UNCENSORED, emulated, number, pool_facts, share
from avbench.units import format_count, format_percent, format_plural

WHAT = {
    "AUC": "Chance that an accepted draft has a higher confidence than a rejected one, ties half. 0.5 is blind.",
    "log-loss": "Mean of -ln of the probability that was given to what happened, nats per draft; at most 16.6, since "
    "confidences of exactly 0 and 1 count as 2^-24 away from them.",
    "ECE": "Expected calibration error: 15 bins of equal width in confidence; mean over drafts of the absolute "
    "difference between mean confidence and accepted share of their bin.",
    "mean predicted, observed": "Mean confidence and accepted share of the same drafts.",
    "95 %": "Requests are drawn anew 1,000 times, in at most 200 random groups. The quantiles are moved so that the "
    "mean of the replicates lies on the value. Coefficients are not fitted anew.",
    "lossless": "A function of the draft distribution alone. Trimming by a feature of the drawn token selects on the "
    "proposal: with p = (0.5, 0.5), q = (0.2, 0.8) and trimming when q(x) < 0.5 the output is (0.4, 0.6).",
    "entropy": "Mean entropy of the draft distributions of all drafts of a data set, labelled or not, nats.",
    "convergence": "Log-loss over the last 5 refit rounds; first engine step at which it is within 2 % of its value "
    "at the end, or of the offline fit's over the same rounds. Needs 15 refits.",
    "labels": "Accepted drafts and the first rejected one of each request-step. What lies behind it, and what was "
    "trimmed, has none.",
}


def definitions() -> Html:
    """Every word of the tables, once."""
    entries = (join(element("dt", name), element("dd", text)) for name, text in WHAT.items())
    return section("definitions", "Definitions", element("dl", entries))


def labels(study: Study) -> Html:
    """What was read, what was left out."""
    notes = element("ul", (element("li", note) for note in study.notes)) if study.notes else None
    return section(
        "labels",
        "Labels",
        *(_pool_labels(study, pool) for pool in study.pools),
        element("h3", "Notes") if study.notes else None,
        notes,
    )


def _pool_labels(study: Study, pool: PoolStudy) -> Html:
    head = ["data set", "drafts", "labels", "share labelled", "mean entropy, nats"]
    rows: list[list[Child]] = [
        [
            each.name,
            format_count(each.drafts),
            format_count(each.labels),
            share(each.labels, each.drafts),
            number(each.entropy, 3),
        ]
        for each in pool.data_sets
    ]
    engine = pool.info.engine or "not named"
    return join(
        element("h3", emulated(pool.name, study)),
        element("p", f"{pool_facts(pool)}. {CENSORED if pool.trimmed else UNCENSORED} Written by: {engine}."),
        table(head, rows, class_="matrix", caption=f"labels of {pool.name}"),
        element("p", replay_words(pool), class_="note"),
    )


def replay_words(pool: PoolStudy) -> str:
    """How well the replay gives what the engine itself predicted."""
    if pool.replay is None:
        return "The engine wrote no estimator predictions, so the replay cannot be checked against them."
    return (
        f"Of {format_plural(pool.replay.n, 'prediction')} that the engine wrote, {format_percent(pool.replay.close)} "
        f"are within {CLOSE:g} of this replay; the mean difference is {number(pool.replay.mean)}. They differ where "
        "the engine's estimator saw more than these labels."
    )
