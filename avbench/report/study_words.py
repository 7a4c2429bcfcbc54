"""Sentences and numbers that the study's terminal tables and its page share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from avbench.analysis.study.ablations import Ablation
from avbench.analysis.study.coefficients import Coefficients, Relation
from avbench.analysis.study.features import ESTIMATOR, FEATURES, HEAD, RAW_Q_MAX, Feature
from avbench.analysis.study.leads import Lead, Metric
from avbench.analysis.study.lockin import LockIn
from avbench.analysis.study.scoring import Part, Score
from avbench.analysis.study.study import PoolStudy, Study
from avbench.analysis.study.values import Value
from avbench.units import MISSING, format_count, format_decimal, format_percent, format_plural

METRIC_NAMES: dict[Metric, str] = {"auc": "AUC", "log_loss": "log-loss", "ece": "ECE"}
BY_ID: dict[str, Feature] = {feature.id: feature for feature in FEATURES}
GREEDY = (
    "These drafts are greedy: the drawn token is the most likely one, so the two features of it say what q_max says "
    "and would not bias the output here."
)
CENSORED = (
    "Labels exist only where the budget admitted a draft: adaptive verification trimmed these. Figures say how good "
    "the confidences are on what was verified, not on all drafts."
)
UNCENSORED = "Nothing was trimmed: every draft has a label up to the first rejection of its request-step."
CONDITIONAL = (
    "Per-position figures are conditional: a draft is labelled only if all drafts before it in its step were accepted."
)


def emulated(title: str, study: Study) -> str:
    """A title over figures says when the clock of their engine was a cost table."""
    return f"{title} (emulated)" if study.emulated else title


def number(value: float | None, digits: int = 4) -> str:
    """`0.8259`."""
    return format_decimal(value, digits)


def signed(value: float | None, digits: int = 4) -> str:
    """`+0.0003`."""
    text = format_decimal(value, digits)
    return f"+{text}" if value is not None and round(value, digits) > 0 else text


def spread(value: Value | None, digits: int = 4) -> str:
    """`0.8259 ±0.0012`: with half its interval."""
    if value is None:
        return MISSING
    half = value.half_width
    return number(value.value, digits) if half is None else f"{number(value.value, digits)} ±{number(half, digits)}"


def ends(value: Value | None, digits: int = 4) -> str:
    """`0.8247 to 0.8271`."""
    if value is None or value.low is None:
        return MISSING
    return f"{number(value.low, digits)} to {number(value.high, digits)}"


def score_of(part: Part, source: str) -> Score | None:
    """One source's scores, if the part has them."""
    return next((score for score in part.scores if score.source == source), None)


def pool_facts(pool: PoolStudy) -> str:
    """One line about what was read."""
    parts = [
        f"K={pool.k}",
        format_plural(pool.labels, "label"),
        f"of {format_plural(pool.requests, 'request')}" if pool.requests else "of unnamed requests",
        f"from {format_plural(pool.servers, 'engine process', 'engine processes')}",
    ]
    text = " ".join([f"{parts[0]},", *parts[1:]])
    warm = f"; {format_plural(pool.warm_up, 'more label')} outside any cell's window fed the fit only"
    return text + (warm if pool.warm_up else "")


def censoring(pool: PoolStudy) -> str:
    """What the labels are conditional on."""
    return f"{CENSORED if pool.trimmed else UNCENSORED} {CONDITIONAL}"


def summary(study: Study) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The findings of each pool in sentences."""
    for pool in study.pools:
        related = [relation for relation in study.relations if relation.pool == pool.name]
        yield pool.name, tuple(_findings(pool, related))


def _findings(pool: PoolStudy, related: Sequence[Relation]) -> Iterator[str]:
    whole = pool.subjects[0].whole
    yield from _calibration(whole)
    yield from lead_lines(pool.subjects[0].whole, pool.subjects[0].without_first, pool.subjects[0].positions)
    yield from _drawn(pool, whole)
    yield from _slope(pool.ablations)
    yield from (relation_words(relation) for relation in related if relation.r is not None)
    yield from _settling(pool)
    yield from _offline(pool.coefficients)
    yield from run_away_lines(pool)
    yield from (lock_in_words(way) for way in pool.lock_in.ways)


def _calibration(whole: Part) -> Iterator[str]:
    own, raw = score_of(whole, ESTIMATOR.id), score_of(whole, RAW_Q_MAX.id)
    if own is not None:
        yield (
            f"The online estimator predicts {number(own.predicted.value, 3)} on average where "
            f"{number(own.observed.value, 3)} of the drafts were accepted: AUC "
            f"{number(None if own.auc is None else own.auc.value)}, log-loss {number(own.log_loss.value)}, ECE "
            f"{number(own.ece.value)}."
        )
    if own is not None and raw is not None:
        yield (
            f"q_max taken at its word predicts {number(raw.predicted.value, 3)}: the fit brings the ECE from "
            f"{number(raw.ece.value)} to {number(own.ece.value)}."
        )


def lead_lines(whole: Part, without_first: Part, positions: Sequence[Part]) -> Iterator[str]:
    """Head against estimator: over all positions, without the first, and where each leads by position."""
    if score_of(whole, HEAD.id) is None:
        yield "There is no confidence head in these labels to compare with."
        return
    for part in (whole, without_first):
        if part.leads:
            yield f"Head against estimator, {part.name}: {'; '.join(_lead_words(lead) for lead in part.leads)}."
    for metric, name in METRIC_NAMES.items():
        places = list(_places(metric, positions))
        if places:
            yield f"By position, {name}: {', '.join(places)}."


def _lead_words(lead: Lead) -> str:
    figures = f"{number(lead.estimator)} against {number(lead.head)}"
    name = METRIC_NAMES[lead.metric]
    if lead.leader is None:
        return f"not told apart on {name} (estimator {figures})"
    other = f"{number(lead.head)} against {number(lead.estimator)}"
    return f"the {lead.leader} leads on {name} ({figures if lead.leader == 'estimator' else other})"


def _places(metric: Metric, positions: Sequence[Part]) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for part in positions:
        for lead in part.leads:
            if lead.metric == metric:
                found.setdefault(lead.leader or "not told apart", []).append(part.name.removeprefix("position "))
    for leader, names in found.items():
        yield f"{leader} at {', '.join(names)}"


def _drawn(pool: PoolStudy, whole: Part) -> Iterator[str]:
    if pool.info.draft_sampling == "greedy":
        yield GREEDY
        return
    drawn = _best(whole, lossless=False)
    own = _best(whole, lossless=True)
    if drawn is None or own is None or drawn.auc is None or own.auc is None:
        return
    gain = drawn.auc.value - own.auc.value
    better = "ranks better and is out all the same" if gain > 0 else "ranks no better, and is out"
    yield (
        f"Of the drawn token, {BY_ID[drawn.source].name} has AUC {number(drawn.auc.value)} against "
        f"{number(own.auc.value)} of the best lossless source ({BY_ID[own.source].name}): it {better}, for trimming by "
        "it would bias the output."
    )


def _best(part: Part, *, lossless: bool) -> Score | None:
    fitting = [score for score in part.scores if BY_ID[score.source].lossless == lossless and score.auc is not None]
    return max(fitting, key=lambda score: score.auc.value if score.auc else 0.0, default=None)


def _slope(ablations: Sequence[Ablation]) -> Iterator[str]:
    for ablation in ablations:
        if ablation.topic == "slope" and not ablation.usual:
            yield (
                f"A slope per position instead of a shared one would change the AUC by "
                f"{signed(ablation.auc_difference)} and the log-loss by {signed(ablation.log_loss_difference)}."
            )


def relation_words(relation: Relation) -> str:
    """`The slope goes with the mean draft entropy with r = -0.08 (n = 5 data sets).`"""
    sets = format_plural(relation.n, "data set")
    if relation.r is None:
        return f"The {relation.coefficient} against the mean draft entropy: no r from {sets}, it takes 3 that differ."
    return f"The {relation.coefficient} against the mean draft entropy: r = {number(relation.r, 2)} (n = {sets})."


def _settling(pool: PoolStudy) -> Iterator[str]:
    known = [f"{each.data_set} {format_count(each.steps)}" for each in pool.convergence if each.steps is not None]
    if known:
        yield f"Engine steps until the rolling log-loss is within 2 % of its final value: {', '.join(known)}."


def _offline(found: Sequence[Coefficients]) -> Iterator[str]:
    gaps = [each.online_loss - each.offline_loss for each in found if each.offline_loss is not None]
    if gaps:
        yield (
            f"From the cold start, the online fit ends {number(max(gaps))} nats per draft or less behind an offline "
            "logistic regression on the same labels."
        )


def lock_in_words(way: LockIn) -> str:
    """What hiding labels did to the predictions on them."""
    locked = [place.position for place in way.positions if place.seen == 0 and place.hidden]
    stays = f"the intercept of position {', '.join(map(str, locked))} stays at -0.2; " if locked else ""
    return (
        f"Lock-in, {way.hiding}: {stays}on the {format_plural(way.hidden, 'hidden label')} the log-loss is "
        f"{number(way.loss_locked)} against {number(way.loss_open)} of a fit that sees them, and "
        f"{number(way.loss_inherited)} if unseen positions inherit the deepest seen intercept."
    )


RAN_AWAY = (
    "its Newton step overshot and coefficients ran away, beyond 40; the published step has no guard against a jump "
    "from predictions that were nearly certain"
)


def run_away_lines(pool: PoolStudy) -> Iterator[str]:
    """Fits that did not hold."""
    for each in pool.coefficients:
        if each.ran_away:
            yield f"The online fit of {each.data_set} did not hold: {RAN_AWAY}."
    for case in pool.order.cases:
        if case.ran_away:
            yield f"The online fit that served {case.first} and then {case.second} did not hold: {RAN_AWAY}."
    for change in pool.ablations:
        if change.ran_away and not change.usual:
            yield f"The online fit with {change.topic} {change.name} did not hold: {RAN_AWAY}."


def entropy_words(value: float | None) -> str:
    """`1.23`, nats."""
    return number(value, 2)


def share(value: float, total: float) -> str:
    """`12.3 %`."""
    return format_percent(value / total if total else None)
