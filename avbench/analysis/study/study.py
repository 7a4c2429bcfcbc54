"""The whole study: what was read, scored, fitted and changed, as plain values for tables, page and JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from avbench.analysis.study.ablations import Ablation, ablate
from avbench.analysis.study.bootstrap import REPLICATES
from avbench.analysis.study.coefficients import Coefficients, Relation, coefficients_of, fresh_fits, relations
from avbench.analysis.study.convergence import Convergence, convergence_of
from avbench.analysis.study.features import ESTIMATOR
from avbench.analysis.study.load import Labels
from avbench.analysis.study.lockin import LockInStudy, study_lock_in
from avbench.analysis.study.offline import OfflineFit, fit_offline
from avbench.analysis.study.order import OrderStudy, study_order
from avbench.analysis.study.pool import DataSet, Pool, count_requests
from avbench.analysis.study.replay_check import ReplayCheck, check_replay
from avbench.analysis.study.rounds import Rounds, find_rounds
from avbench.analysis.study.schema import LabelInfo
from avbench.analysis.study.scoring import Subject, predictions_of, score_pool

Talk = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class PoolStudy:
    """One pair, draft sampling method and depth."""

    name: str
    info: LabelInfo
    k: int
    trimmed: bool
    servers: int
    labels: int  # scored
    warm_up: int  # seen by the online fit only
    requests: int
    data_sets: tuple[DataSet, ...]
    subjects: tuple[Subject, ...]  # the whole pool first if it has several data sets
    coefficients: tuple[Coefficients, ...]
    convergence: tuple[Convergence, ...]
    ablations: tuple[Ablation, ...]
    lock_in: LockInStudy
    order: OrderStudy
    replay: ReplayCheck | None


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything `avbench study` says."""

    emulated: bool
    notes: tuple[str, ...]
    pools: tuple[PoolStudy, ...]
    relations: tuple[Relation, ...]


def make_study(labels: Labels, *, replicates: int = REPLICATES, say: Talk = lambda text: None) -> Study:
    """Everything, pool by pool. `say` hears what is being done."""
    pools = tuple(_study_pool(pool, replicates, say) for pool in labels.pools)
    found = [coefficients for pool in pools for coefficients in pool.coefficients]
    return Study(emulated=labels.emulated, notes=labels.notes, pools=pools, relations=tuple(relations(found)))


def pool_rounds(pool: Pool) -> Rounds:
    """The refit rounds of the engines themselves."""
    return find_rounds(pool.drafts.step, pool.drafts.stream, pool.intervals)


def _study_pool(pool: Pool, replicates: int, say: Talk) -> PoolStudy:
    rounds = pool_rounds(pool)
    say(f"{pool.name}: scoring {len(pool.drafts):,} labels")
    subjects = score_pool(pool, rounds, replicates=replicates)
    say(f"{pool.name}: coefficients and convergence")
    coefficients, convergence = _fresh(pool)
    say(f"{pool.name}: ablations")
    estimated = predictions_of(ESTIMATOR, pool, rounds)
    assert estimated is not None
    return PoolStudy(
        name=pool.name,
        info=pool.info,
        k=pool.k,
        trimmed=pool.info.trimmed,
        servers=len(pool.streams),
        labels=sum(data_set.labels for data_set in pool.data_sets),
        warm_up=pool.warm_up,
        requests=count_requests(pool.drafts.request[pool.scored]),
        data_sets=pool.data_sets,
        subjects=subjects,
        coefficients=coefficients,
        convergence=convergence,
        ablations=ablate(pool, rounds, _offline(pool)),
        lock_in=study_lock_in(pool, rounds),
        order=study_order(pool),
        replay=check_replay(pool, estimated),
    )


def _fresh(pool: Pool) -> tuple[tuple[Coefficients, ...], tuple[Convergence, ...]]:
    coefficients, convergence = [], []
    for fit in fresh_fits(pool):
        interval = int(pool.intervals[fit.drafts.stream[0]])
        coefficients.append(coefficients_of(pool, fit))
        convergence.append(convergence_of(pool.name, interval, fit))
    return tuple(coefficients), tuple(convergence)


def _offline(pool: Pool) -> OfflineFit | None:
    drafts = pool.drafts.take(pool.scored)
    return fit_offline(drafts.logit_q_max, drafts.position, drafts.label, pool.k)
