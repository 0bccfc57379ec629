"""One window of the study of goodput: the product's rolling schedule in simulated time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import groupby
from math import floor, inf
from typing import NamedTuple

import numpy as np

from circinus.pipelines.clock import ManualClock
from circinus.scheduler.ilp import Ilp
from circinus.scheduler.policies.priced import Migration
from circinus.scheduler.policies.registry import Terms, scheduling_policy
from circinus.scheduler.problem import Candidate, Objective, Problem, spent_usd_per_hour
from circinus.scheduler.rolling.scheduler import Events, RollingSchedule, Times, Upkeep
from circinus.studies.online.arrivals import Stay
from circinus.studies.online.planned import PlannedQuery
from circinus.studies.online.study import Competitor, GoodputStudy
from circinus.studies.report.tables import mean, text

_LOOK_S = {Objective.GOODPUT: 5.0, Objective.COST: 30.0}
"""Changes of so many seconds are scheduled together. The service looks every second or so: a query
waits a little more here, of many minutes, and a window takes far less time."""
_RENTABLE = 256  # machines of each shared tier, more than any window needs
_STREAM = 13  # of a seed
_MINUTE_S = 60.0
_LEAST = 1e-9  # queries


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a window shows."""

    goodput: float  # queries that count, mean over the window
    live: float  # queries that are there, mean
    planned: float  # of those that are there, part with plans
    # of the planned ones, part with a plan that truly satisfies; None: none is planned
    true: float | None
    served: float  # queries that are served, truly or not, mean
    arrived: int
    planning_s: float | None  # mean seconds to the end of planning; None: nobody arrived
    utilisation: float  # of the shared machines, mean
    usd_per_hour: float  # of machines that hold anything, as whole machines, and of calls, mean
    displaced: int  # times that a query which was served was moved or stopped
    of_ilp: float | None  # queries served over the integer program's, where that is proven
    proven: int  # problems for which it is
    minutes: str  # goodput of each minute, by blanks
    usd_minutes: str  # dollars an hour in each minute, by blanks


class Window:
    """One window with one method."""

    def __init__(
        self,
        study: GoodputStudy,
        competitor: Competitor,
        there: Sequence[Stay],
        kinds: Sequence[PlannedQuery],
        seed: int,
    ) -> None:
        self._study, self._there = study, there
        rng = np.random.default_rng([seed, _STREAM])
        self._kinds = [kinds[kind] for kind in rng.integers(len(kinds), size=len(there)).tolist()]
        price = study.migration_price
        terms = Terms(
            objective=study.objective,
            migration=None if price is None else Migration(price=price),
            clock=ManualClock(),
        )
        policy = scheduling_policy(competitor.policy, terms)
        tiers = study.infrastructure.tiers
        if study.objective is Objective.COST:
            tiers = tuple(t if t.dedicated else replace(t, machines=_RENTABLE) for t in tiers)
        nobody = Problem(tiers=tiers, candidates=())
        self._rolling = RollingSchedule(nobody, Times(), Upkeep(policy=policy), 0.0)
        self._ratios: list[float] = []
        self._displaced = 0

    def figures(self) -> Figures:
        """Return the figures of a row."""
        looks, states = [0.0], [_State()]
        next_ilp_s = _MINUTE_S * (self._study.ilp_every or inf)
        for at, state in self._course():
            if at >= next_ilp_s:
                self._solve()
            while at >= next_ilp_s:
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
            true=means.true / means.planned if means.planned else None,
            served=means.served,
            arrived=len(self._there),
            planning_s=mean([one.seconds for one in self._kinds]),
            utilisation=means.used,
            usd_per_hour=means.usd,
            displaced=self._displaced,
            of_ilp=mean(self._ratios),
            proven=len(self._ratios),
            minutes=minutes(_State._fields.index("goodput")),
            usd_minutes=minutes(_State._fields.index("usd")),
        )

    def _course(self) -> Iterator[tuple[float, _State]]:
        """Yield what the service looks like after each look at which something had changed."""
        live = planned = true = 0
        offered = set[int]()  # to the scheduler
        looks = _looks(
            self._there, self._kinds, self._study.window_s, _LOOK_S[self._study.objective]
        )
        for at, changes in looks:
            arriving, leaving = dict[int, Candidate](), list[str]()
            for change, number in changes:
                kind, query = self._kinds[number], f"q{number:06}"
                if change is _Change.ARRIVES:
                    live += 1
                    continue
                sign = 1
                if change is _Change.LEAVES:
                    live -= 1
                    sign = -1
                    if number in offered:
                        leaving.append(query)
                        offered.remove(number)
                    elif arriving.pop(number, None) is None:
                        continue  # it was never planned
                elif kind.options:
                    arriving[number] = Candidate(query_id=query, plans=kind.options)
                else:
                    continue
                planned += sign * (not kind.rescued)
                true += sign * (bool(kind.true) and not kind.rescued)
            offered |= arriving.keys()
            events = Events(arriving=tuple(arriving.values()), leaving=tuple(leaving))
            step = self._rolling.change(events, at)
            schedule, self._displaced = step.schedule, self._displaced + len(step.displaced)
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
                used / max(sum(shared.values()), 1),
                spent_usd_per_hour(problem, schedule.assignments),
            )
            yield at, state

    def _solve(self) -> None:
        """Note what part of the integer program's optimum is served."""
        problem = replace(self._rolling.problem(), running={})
        solved = Ilp(time_limit_s=self._study.ilp_s, moves=True).solve(problem)
        if solved.proven and solved.objective > 0:
            self._ratios.append(len(self._rolling.last.schedule.assignments) / solved.objective)


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
    there: Sequence[Stay], kinds: Sequence[PlannedQuery], window_s: float, look_s: float
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
