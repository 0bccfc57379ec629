"""Goodput over time: queries arrive, are planned by a method, scheduled, served, and leave.

The online setting of Circinus 6.2: a query counts while it is served by a plan that truly
satisfies its SLO on the whole trace. Simulated time; the search, the rolling schedule and its
policies are the product's own objects. Queries of one seed are the same for all methods.

    load = arrivals a second x mean stay x mean need of the oracle's cheapest plan / machines
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from functools import partial
from itertools import groupby, product
from math import floor, inf, nan
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from circinus.deploy.methods import DEFAULT, METHODS
from circinus.deploy.workers.watched import die_with
from circinus.pipelines import checks
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.io.trace import load_trace
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.scheduler.ilp import Ilp
from circinus.scheduler.policies.registry import Terms as PolicyTerms
from circinus.scheduler.policies.registry import scheduling_policy
from circinus.scheduler.problem import (
    SCHEDULING_POLICIES,
    Candidate,
    Objective,
    Problem,
    spent_usd_per_hour,
)
from circinus.scheduler.rolling.scheduler import Events, RollingSchedule, Times, Upkeep
from circinus.studies.online.arrivals import ArrivalKind, Stay, stays
from circinus.studies.online.computing import table
from circinus.studies.online.planned import ORACLE, Asked, Planned, Shelf, Site, Terms
from circinus.studies.planning.ground_truth import level_factors
from circinus.studies.planning.methods import study_method
from circinus.studies.report.tables import mean, text, written

_LOOK_S = {Objective.GOODPUT: 5.0, Objective.COST: 30.0}
"""Changes of so many seconds are scheduled together. The service looks every second or so: a query
waits a little more here, of many minutes, and a window takes far less time."""
_RENTABLE = 256  # machines of each shared tier, more than any window needs
_STREAM = 13  # of a seed
_MINUTE_S = 60.0
_LEAST = 1e-9  # queries


@dataclass(frozen=True, slots=True)
class Contender:
    """A method and the policy that schedules what it planned."""

    name: str
    method: str
    policy: str

    @classmethod
    def of(cls, name: str) -> Contender:
        """Return that of `METHOD` or `METHOD/POLICY`; InvalidInput if there is no such one.

        Without a policy a method of the product has its own, and others have that of `default`
        (Circinus 6.1 gives competitors its own multi-query planner).
        """
        method, slash, policy = name.partition("/")
        if method != ORACLE:
            study_method(method, published_inputs=1)
        if not slash:
            policy = METHODS.get(method, DEFAULT).scheduling
        checks.among("methods", policy, SCHEDULING_POLICIES)
        return cls(name, method, policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputStudy:
    """What to run; InvalidInput for an unknown method or level now, not hours later."""

    traces: tuple[Path, ...]  # folders
    methods: tuple[str, ...]  # see `Contender.of`
    infrastructure: Infrastructure
    response_s: tuple[float, ...] = (5.0, 15.0)  # within which a query is planned, `> 0`
    levels: tuple[str, ...] = ("medium",)  # of SLOs, see `ground_truth.level_factors`
    loads: tuple[float, ...] = (1.0,)
    history: tuple[int, ...] = (0,)  # earlier queries of each
    seeds: int = 5
    first_seed: int = 0
    queries: int = 40  # unlike ones of a seed; arrivals are drawn among them
    arrivals: ArrivalKind = ArrivalKind.POISSON
    times: tuple[float, ...] | None = None  # of arrival, in place of load and process
    # of the machines there are, or cost of serving all on rented ones
    objective: Objective = Objective.GOODPUT
    window_s: float = 3600.0
    stay_s: float = 900.0  # mean
    # minutes between problems that the integer program solves, too; None: none
    ilp_every: int | None = None
    ilp_s: float = 20.0  # its limit, for each

    def __post_init__(self) -> None:
        for name in self.methods:
            method = Contender.of(name).method
            known = sorted({ORACLE, *(who for who, _ in table())})
            checks.among("methods", method, known)
        for level in self.levels:
            level_factors(level)
        for seconds in self.response_s:
            checks.positive("response", seconds)
        for load in self.loads:
            checks.positive("load", load)
        for count in self.history:
            checks.non_negative("history", count)
        checks.at_least("queries", self.queries, 1)
        checks.positive("window", self.window_s)
        checks.positive("stay", self.stay_s)
        checks.at_least("ilp_every", self.ilp_every, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a window shows."""

    goodput: float  # queries that count, mean over the window
    live: float  # queries that are there, mean
    planned: float  # of those that are there, part with plans
    true: float  # of the planned ones, part with a plan that truly satisfies
    served: float  # queries that are served, truly or not, mean
    arrived: int
    planning_s: float  # mean seconds to the end of planning
    utilisation: float  # of the shared machines, mean
    usd_per_hour: float  # of machines that hold anything, as whole machines, and of calls, mean
    of_ilp: float | None  # queries served over the integer program's, where that is proven
    proven: int  # problems for which it is
    minutes: str  # goodput of each minute, by blanks
    usd_minutes: str  # dollars an hour in each minute, by blanks


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
    seed: int


def run(
    study: GoodputStudy,
    out: Path,
    *,
    workers: int = 1,  # processes, `>= 1`
    observer: Callable[[GoodputRow], None] = lambda row: None,
) -> list[GoodputRow]:
    """Return all rows, written to `out/goodput.csv` one by one; the observer gets each.

    Planned queries lie in `out/planned`, whence a study that was stopped takes them.
    """
    checks.at_least("workers", workers, 1)
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
    stored = Shelf(
        shelf / f"{folder.name}-{study.infrastructure.name}-{level}-{history}-{seed}.jsonl"
    )
    site = Site(folder.name, load_trace(folder), study.infrastructure, history=history, seed=seed)
    with threadpool_limits(1):
        return list(_Crowd(study, site, stored, level, history, seed).rows())


class _Crowd:
    """The queries of a seed and level."""

    def __init__(
        self, study: GoodputStudy, site: Site, shelf: Shelf, level: str, history: int, seed: int
    ) -> None:
        self._study, self._site, self._shelf = study, site, shelf
        self._level, self._history, self._seed = level, history, seed
        self._asked: tuple[Asked, ...] | None = None

    def rows(self) -> Iterator[GoodputRow]:
        """Yield the windows of this crowd."""
        study = self._study
        for load in study.loads:
            there = self._stays(load)
            for response_s in study.response_s:
                for name in study.methods:
                    who = Contender.of(name)
                    terms = Terms(method=who.method, response_s=response_s, history=self._history)
                    kinds = self._planned(terms)
                    window = _Window(study, who, there, kinds, self._seed)
                    yield GoodputRow(
                        trace=self._site.name,
                        setup=study.infrastructure.name,
                        objective=study.objective.value,
                        method=name,
                        response_s=response_s,
                        slo=self._level,
                        load=load,
                        history=self._history,
                        seed=self._seed,
                        **asdict(window.figures()),
                    )

    def _planned(self, terms: Terms) -> list[Planned]:
        within = "" if terms.method == ORACLE else f" {terms.response_s:g}"

        def planned(number: int) -> Planned:
            return self._site.planned(self._queries()[number], terms)

        def rescued(number: int) -> Planned:
            return self._site.rescued(self._queries()[number])

        each = [
            self._shelf.planned(
                f"{self._study.queries} {number} {terms.method}{within}", partial(planned, number)
            )
            for number in range(self._study.queries)
        ]
        if self._study.objective is Objective.GOODPUT:
            return each
        rescues = [
            self._shelf.planned(f"{self._study.queries} {number} rescue", partial(rescued, number))
            for number in range(self._study.queries)
        ]
        return [
            one if one.options else replace(one, options=rescue.options, true=rescue.true)
            for one, rescue in zip(each, rescues, strict=True)
        ]

    def _queries(self) -> tuple[Asked, ...]:
        if self._asked is None:
            self._asked = self._site.asked(self._study.queries, self._level)
        return self._asked

    def _stays(self, load: float) -> tuple[Stay, ...]:
        study = self._study
        oracle = self._planned(Terms(method=ORACLE, response_s=1.0))
        shared = _machines(study.infrastructure)
        needs = [
            sum(item.share for item in one.options[0].demand if item.tier in shared)
            for one in oracle
        ]
        most = sum(shared.values()) / max(float(np.mean(needs)), 1e-9)  # queries at once
        return stays(
            study.arrivals,
            per_s=load * most / study.stay_s,
            window_s=study.window_s,
            mean_stay_s=study.stay_s,
            seed=self._seed,
            times=study.times,
        )


class _Window:
    """One window with one method."""

    def __init__(
        self,
        study: GoodputStudy,
        who: Contender,
        there: Sequence[Stay],
        kinds: Sequence[Planned],
        seed: int,
    ) -> None:
        self._study, self._there = study, there
        rng = np.random.default_rng([seed, _STREAM])
        self._kinds = [kinds[kind] for kind in rng.integers(len(kinds), size=len(there)).tolist()]
        terms = PolicyTerms(objective=study.objective, clock=ManualClock())
        policy = scheduling_policy(who.policy, terms)
        tiers = study.infrastructure.tiers
        if study.objective is Objective.COST:
            tiers = tuple(t if t.dedicated else replace(t, machines=_RENTABLE) for t in tiers)
        nobody = Problem(tiers=tiers, candidates=())
        self._rolling = RollingSchedule(nobody, Times(), Upkeep(policy=policy), 0.0)
        self._ratios: list[float] = []

    def figures(self) -> Figures:
        """Return the figures of a row."""
        looks, states = [0.0], [_State()]
        next_ilp_s = _MINUTE_S * (self._study.ilp_every or inf)
        for at, state in self._course():
            while at >= next_ilp_s:
                self._solve()
                next_ilp_s += _MINUTE_S * (self._study.ilp_every or inf)
            looks.append(at)
            states.append(state)
        window_s = self._study.window_s
        times, values = np.array([*looks, window_s]), np.array(states)
        passed = np.diff(times)[:, None] * values
        sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(passed, axis=0)])
        means = _State(*(sums[-1] / window_s).tolist())
        edges = np.append(np.arange(0.0, window_s, _MINUTE_S), window_s)

        def minutes(place: int) -> str:
            each = np.diff(np.interp(edges, times, sums[:, place])) / np.diff(edges)
            return " ".join(text(minute, 4) for minute in each.tolist())

        return Figures(
            goodput=means.goodput,
            live=means.live,
            planned=means.planned / max(means.live, _LEAST),
            true=means.true / max(means.planned, _LEAST),
            served=means.served,
            arrived=len(self._there),
            planning_s=float(np.mean([one.seconds for one in self._kinds] or [nan])),
            utilisation=means.used,
            usd_per_hour=means.usd,
            of_ilp=mean(self._ratios),
            proven=len(self._ratios),
            minutes=minutes(_State._fields.index("goodput")),
            usd_minutes=minutes(_State._fields.index("usd")),
        )

    def _course(self) -> Iterator[tuple[float, _State]]:
        """Yield what the service looks like after each look at which something had changed."""
        live = planned = true = 0
        looks = _looks(
            self._there, self._kinds, self._study.window_s, _LOOK_S[self._study.objective]
        )
        for at, changes in looks:
            arriving, leaving = list[Candidate](), list[str]()
            for change, number in changes:
                kind, query = self._kinds[number], f"q{number:06}"
                sign = -1 if change is _Change.LEAVES else 1
                if change is not _Change.PLANNED:
                    live += sign
                if change is _Change.ARRIVES or not kind.options:
                    continue
                if change is _Change.LEAVES:
                    leaving.append(query)
                else:
                    arriving.append(Candidate(query_id=query, plans=kind.options))
                planned += sign
                true += sign * bool(kind.true)
            events = Events(arriving=tuple(arriving), leaving=tuple(leaving))
            schedule = self._rolling.change(events, at).schedule
            counting = sum(
                one.plan_id in self._kinds[int(one.query_id[1:])].true
                for one in schedule.assignments
            )
            problem = self._rolling.problem()
            shared = {tier.name: tier.machines for tier in problem.tiers if not tier.dedicated}
            used = sum(schedule.utilisation[tier] * n for tier, n in shared.items())
            state = _State(
                counting,
                live,
                planned,
                true,
                len(schedule.assignments),
                used / sum(shared.values()),
                spent_usd_per_hour(problem, schedule.assignments),
            )
            yield at, state

    def _solve(self) -> None:
        """Note what part of the integer program's optimum is served."""
        problem = replace(self._rolling.problem(), running={})
        solved = Ilp(time_limit_s=self._study.ilp_s, moves=True).solve(problem)
        if solved.proven and solved.objective > 0:
            self._ratios.append(len(self._rolling.last.schedule.assignments) / solved.objective)


def _machines(infrastructure: Infrastructure) -> dict[str, int]:
    """Return the machines of the shared tiers."""
    return {tier.name: tier.machines for tier in infrastructure.tiers if not tier.dedicated}


class _State(NamedTuple):
    """The service between two looks."""

    goodput: float = 0.0
    live: float = 0.0
    planned: float = 0.0
    true: float = 0.0
    served: float = 0.0
    used: float = 0.0
    usd: float = 0.0


class _Change(IntEnum):
    """What happens to a query."""

    ARRIVES = 0
    PLANNED = 1
    LEAVES = 2


def _looks(
    there: Sequence[Stay], kinds: Sequence[Planned], window_s: float, look_s: float
) -> Iterator[tuple[float, list[tuple[_Change, int]]]]:
    """Yield the times of looks within a window, and the changes since the one before."""
    changes = list[tuple[float, _Change, int]]()
    for number, (stay, kind) in enumerate(zip(there, kinds, strict=True)):
        changes.append((stay.arrives_s, _Change.ARRIVES, number))
        planned_s = stay.arrives_s + kind.seconds
        if planned_s < stay.leaves_s:
            changes.append((planned_s, _Change.PLANNED, number))
        changes.append((stay.leaves_s, _Change.LEAVES, number))
    changes.sort()
    for look, group in groupby(changes, key=lambda change: floor(change[0] / look_s) + 1):
        if look * look_s >= window_s:
            return
        yield look * look_s, [(change, number) for _, change, number in group]
