"""What methods make of queries within their response time, replayed on a trace.

A query asks for the accuracy and latency of a Pareto point of its own device (Circinus 6.1). It
is planned by the product's search; its clock is operators' seconds and the method's computing.
Outcomes are stored, so that a study which was stopped goes on, and others of the same queries
need not plan them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from circinus.pipelines.io.trace import Trace, load_trace
from circinus.pipelines.model.infrastructure import DeviceProfile, Infrastructure, with_device
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.planner.models.history import QueryRecord
from circinus.scheduler.problem import PlanOption
from circinus.studies.online.computing import MeasuringClock, ReplayClock, computing_s
from circinus.studies.planning.ground_truth import GroundTruth
from circinus.studies.planning.splitting import halves
from circinus.studies.planning.study import earlier_queries, method_for, replayed

ORACLE = "oracle"
"""Knows the trace, and plans in no time: what no planner can beat."""

_STREAM = 12  # of a seed
_UNLIMITED_S = 1e9
_COMPUTING_SEED = 900
_MEASURED_S = 5.0  # of the searches whose computing is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A query that a user submits."""

    user: int  # whose device it has
    slo: Slo
    seed: int  # of its planning


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuery:
    """What planning made of a query."""

    seconds: float  # from its arrival to the end of planning
    options: tuple[PlanOption, ...]  # for the scheduler, cheapest first; empty: there is no plan
    true: tuple[str, ...]  # those that satisfy the SLO on the whole trace
    measured: int  # configurations
    rescued: bool = False  # whether it has no plan of its own, see `Site.rescued`


class Site:
    """A trace on an infrastructure, whose users have devices of their own."""

    def __init__(
        self,
        name: str,
        trace: Trace,
        infrastructure: Infrastructure,
        *,
        seed: int,
        history: int = 0,  # earlier queries of each
        halved: bool = False,
    ) -> None:
        """Take half of the inputs if `halved`, for planning and truth; earlier queries had others.

        A study with and without earlier queries halves for both, so that their queries are alike.
        """
        self.name, self.infrastructure, self._seed = name, infrastructure, seed
        self._history_count = history
        self._before: Trace | None = None
        self.trace = trace
        if halved:
            self._before, self.trace = halves(trace, seed)
        self._truths: dict[DeviceProfile | None, GroundTruth] = {}
        self._earlier: dict[str, tuple[QueryRecord, ...]] = {}  # by method

    def truth(self, user: int) -> GroundTruth:
        """Return the truth of the trace where a user's device is the first tier."""
        device = self.infrastructure.device_of(user)
        if device not in self._truths:
            own = with_device(self.infrastructure, device)
            self._truths[device] = GroundTruth(self.trace, own)
        return self._truths[device]

    def submissions(self, count: int, level: str) -> tuple[Submission, ...]:
        """Return so many queries: users in turn, Pareto points drawn uniformly."""
        rng = np.random.default_rng([self._seed, _STREAM])
        users = rng.integers(2**31, size=count).tolist()
        each = []
        for user in users:
            slos = self.truth(user).slos(level)
            slo, own = slos[int(rng.integers(len(slos)))], int(rng.integers(2**31))
            each.append(Submission(user=user, slo=slo, seed=own))
        return tuple(each)

    def planned(self, query: Submission, method: str, response_s: float) -> PlannedQuery:
        """Return what a method makes of a query within its response time."""
        if method == ORACLE:
            return self._known(query)
        clock = ReplayClock(computing_s=computing_s(method, self.name))
        return self._searched(query, method, response_s, clock)

    def steps_s(self, query: Submission, method: str, response_s: float) -> list[float]:
        """Return the seconds that a method computes here between two measurements."""
        clock = MeasuringClock()
        self._searched(query, method, response_s, clock)
        return clock.steps_s

    def _known(self, query: Submission) -> PlannedQuery:
        options = tuple(self.truth(query.user).options(query.slo))
        true = tuple(option.plan_id for option in options)
        return PlannedQuery(seconds=0.0, options=options, true=true, measured=0)

    def rescued(self, query: Submission) -> PlannedQuery:
        """Return what serves a query that has no plan: the fastest accurate enough, unshared.

        It holds whole machines, and truly satisfies: its Pareto point does.
        """
        option = self.truth(query.user).unshared(query.slo)
        true = (option.plan_id,)
        return PlannedQuery(seconds=0.0, options=(option,), true=true, measured=0, rescued=True)

    def _searched(
        self,
        query: Submission,
        method: str,
        response_s: float,
        clock: ReplayClock | MeasuringClock,
    ) -> PlannedQuery:
        truth = self.truth(query.user)
        who = method_for(method, truth, query.slo)
        limits = PlanningLimits(profiling_s=_UNLIMITED_S, response_s=response_s)
        drawing, evaluator = replayed(
            who.planner, self.trace, query.seed, cached=who.cached, clock=clock
        )
        result = who.planner.search(
            Query(pipeline=self.trace.graph.name, slo=query.slo, seed=query.seed, limits=limits),
            truth.infrastructure,
            evaluator,
            drawing,
            clock=clock,
            history=self._history(method),
        )
        return PlannedQuery(
            seconds=clock.now(),
            options=tuple(PlanOption.of(plan.id, plan) for plan in result.plans),
            true=tuple(p.id for p in result.plans if truth.satisfies(p, query.slo)),
            measured=len(result.configurations),
        )

    def _history(self, method: str) -> tuple[QueryRecord, ...]:
        if not self._history_count or self._before is None:
            return ()
        if method not in self._earlier:
            before = GroundTruth(self._before, self.infrastructure)
            self._earlier[method] = earlier_queries(
                before, method, count=self._history_count, seed=self._seed
            )
        return self._earlier[method]


class Shelf:
    """Planned queries in a file, a line each."""

    def __init__(self, path: Path) -> None:
        """Read what is there; a line that was cut off by a kill counts for nothing."""
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        self._known: dict[str, PlannedQuery] = dict(map(_LINE.validate_json, whole))
        if len(whole) < len(lines):
            path.write_text("".join(whole), encoding="utf-8")

    def planned(self, key: str, made: Callable[[], PlannedQuery]) -> PlannedQuery:
        """Return the planned query of a key, made now unless it is there."""
        if key not in self._known:
            self._known[key] = made()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(_LINE.dump_json((key, self._known[key])) + b"\n")
        return self._known[key]


_LINE = TypeAdapter[tuple[str, PlannedQuery]](tuple[str, PlannedQuery])


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputingRow:
    """What a method computes on a trace; a line of `computing.csv`."""

    method: str
    trace: str
    seconds: float  # of the processor between two measurements, mean
    steps: int  # between two measurements, that it is the mean of


def computing_rows(
    traces: Sequence[Path], methods: Sequence[str], infrastructure: Infrastructure, queries: int
) -> Iterator[ComputingRow]:
    """Yield what methods compute in searches of five seconds, after one that is not measured."""
    for folder in traces:
        trace = load_trace(folder)
        site = Site(folder.name, trace, infrastructure, seed=_COMPUTING_SEED)
        first, *others = site.submissions(1 + queries, "medium")
        for method in methods:
            site.steps_s(first, method, _MEASURED_S)
            steps = [s for query in others for s in site.steps_s(query, method, _MEASURED_S)]
            yield ComputingRow(
                method=method, trace=folder.name, seconds=float(np.mean(steps)), steps=len(steps)
            )
