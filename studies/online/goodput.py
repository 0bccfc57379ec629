"""Goodput over time: queries arrive, are planned by a method, scheduled, served, and leave.

The online setting of Circinus 6.2: a query counts while it is served by a plan that truly
satisfies its SLO on the whole trace. Simulated time; the search, the rolling schedule and its
policies are the product's own objects. Queries of one seed are the same for all methods.

    load = arrivals a second x mean stay x mean need of the oracle's cheapest plan / machines
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from circinus.deploy.workers.watched import die_with
from circinus.pipelines import checks
from circinus.pipelines.io.trace import load_trace
from circinus.scheduler.problem import Objective
from circinus.studies.data import COMPUTING
from circinus.studies.online.arrivals import Stay, stays
from circinus.studies.online.planned import ORACLE, PlannedQuery, Shelf, Site, Submission
from circinus.studies.online.study import Competitor, GoodputStudy
from circinus.studies.online.window import Figures, Window
from circinus.studies.report.tables import digest, version, written

_LEAST = 1e-9  # machines


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputRow(Figures):
    """A window with one method; fields are the columns of `goodput.csv`."""

    trace: str
    setup: str  # name of the infrastructure
    objective: str  # `goodput` or `cost`
    method: str  # with its policy, if that is not its own
    response_s: float
    slo: str
    load: float
    history: int
    migration_price: float | None  # None: nothing that runs is moved
    seed: int


def run(
    study: GoodputStudy,
    out: Path,
    *,
    workers: int = 1,  # processes, `>= 1`
    observer: Callable[[GoodputRow], None] = lambda row: None,
) -> list[GoodputRow]:
    """Return all rows, written to `out/goodput.csv` one by one; the observer gets each.

    Planned queries lie in `out/planned`, whence a study that was stopped takes them: those of the
    same traces, infrastructure, settings and version.
    """
    checks.at_least("workers", workers, 1)
    for folder in study.traces:  # a broken one shows now, not hours later
        load_trace(folder)
    return written(
        _rows(study, out / "planned", workers), GoodputRow, out / "goodput.csv", observer=observer
    )


def _rows(study: GoodputStudy, shelf: Path, workers: int) -> Iterator[GoodputRow]:
    seeds = range(study.first_seed, study.first_seed + study.seeds)
    crowds = list(product(study.traces, study.history, seeds, study.levels))
    rows_of = partial(_rows_of, study, shelf)
    if workers == 1:
        for crowd in crowds:
            yield from rows_of(crowd)
        return
    # Spawned: libraries that have started threads cannot be copied.
    with ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=die_with, initargs=(os.getpid(),)
    ) as pool:
        for rows in pool.map(rows_of, crowds):
            yield from rows


def _rows_of(
    study: GoodputStudy, shelf: Path, crowd: tuple[Path, int, int, str]
) -> list[GoodputRow]:
    folder, history, seed, level = crowd
    site = Site(
        folder.name,
        load_trace(folder),
        study.infrastructure,
        seed=seed,
        history=history,
        halved=study.halved,
    )
    of = (
        digest(folder),
        repr(study.infrastructure),
        COMPUTING.read_text(encoding="utf-8"),
        str((level, history, study.halved, seed, study.queries)),
        version(),
    )
    name = hashlib.sha256("\n".join(of).encode()).hexdigest()[:16]
    stored = Shelf(shelf / f"{folder.name}-{name}.jsonl")
    with threadpool_limits(1):
        return list(_Crowd(study, site, stored, level, history, seed).rows())


class _Crowd:
    """The queries of a seed and level."""

    def __init__(
        self, study: GoodputStudy, site: Site, shelf: Shelf, level: str, history: int, seed: int
    ) -> None:
        self._study, self._site, self._shelf = study, site, shelf
        self._level, self._history, self._seed = level, history, seed
        self._submissions: tuple[Submission, ...] | None = None
        self._known: dict[tuple[str, float], Figures] = {}  # of the oracle, by policy and load

    def rows(self) -> Iterator[GoodputRow]:
        """Yield the windows of this crowd."""
        study = self._study
        for load, response_s, name in product(study.loads, study.response_s, study.methods):
            yield GoodputRow(
                trace=self._site.name,
                setup=study.infrastructure.name,
                objective=study.objective.value,
                method=name,
                response_s=response_s,
                slo=self._level,
                load=load,
                history=self._history,
                migration_price=study.migration_price,
                seed=self._seed,
                **asdict(self._figures(Competitor.of(name), response_s, load)),
            )

    def _figures(self, competitor: Competitor, response_s: float, load: float) -> Figures:
        """Return the figures of a window; the oracle's do not depend on the response time."""
        key = competitor.policy, load
        if competitor.method == ORACLE and key in self._known:
            return self._known[key]
        kinds = self._planned(competitor.method, response_s)
        figures = Window(self._study, competitor, self._stays(load), kinds, self._seed).figures()
        if competitor.method == ORACLE:
            self._known[key] = figures
        return figures

    def _planned(self, method: str, response_s: float) -> list[PlannedQuery]:
        within = "" if method == ORACLE else f" {response_s}"
        each = self._stored(
            f"{method}{within}", lambda query: self._site.planned(query, method, response_s)
        )
        if self._study.objective is Objective.GOODPUT:
            return each
        return [
            one if one.options else replace(rescue, seconds=one.seconds, measured=one.measured)
            for one, rescue in zip(each, self._stored("rescue", self._site.rescued), strict=True)
        ]

    def _stored(self, key: str, plan: Callable[[Submission], PlannedQuery]) -> list[PlannedQuery]:
        """Return every query as planned, from the shelf where it is there."""
        return [
            self._shelf.planned(f"{number} {key}", partial(self._plan, plan, number))
            for number in range(self._study.queries)
        ]

    def _plan(self, plan: Callable[[Submission], PlannedQuery], number: int) -> PlannedQuery:
        if self._submissions is None:
            self._submissions = self._site.submissions(self._study.queries, self._level)
        return plan(self._submissions[number])

    def _stays(self, load: float) -> tuple[Stay, ...]:
        study = self._study
        oracle = self._planned(ORACLE, 0.0)
        shared = {t.name: t.machines for t in study.infrastructure.tiers if not t.dedicated}
        needs = [
            sum(item.share for item in one.options[0].demand if item.tier in shared)
            for one in oracle
        ]
        need = float(np.mean(needs))
        rule = (
            "must have shared machines that the oracle's cheapest plans use, as load is of them: "
            "of so few queries (--queries) none does"
        )
        known = need > _LEAST or study.times is not None
        checks.require(known, "infrastructure", rule, study.infrastructure.name)
        at_once = sum(shared.values()) / max(need, _LEAST)  # queries
        return stays(
            study.arrivals,
            per_s=load * at_once / study.stay_s,
            window_s=study.window_s,
            mean_stay_s=study.stay_s,
            seed=self._seed,
            times=study.times,
        )
