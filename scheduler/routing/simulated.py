"""A route in simulation: requests over deployment units whose capacity comes and goes.

Requests come at random at a rate that follows a cosine. Each goes to a kind of unit in turns, as
where a route is served, and by the same `controller`: by traffic weight among the kinds that run;
while units start, by what those that run can do. There it waits for one of `T L` places (a unit
serves as many at once, so that it takes T a second), and is served in L. Units take a while to
start; what is no longer wanted ends when all that is wanted runs: new before old. What a unit that
is lost had in hand is sent again. While nothing runs, requests wait.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import ceil, cos, inf, pi

import numpy as np

from circinus.pipelines import checks
from circinus.scheduler.routing.controller import (
    RequestSharing,
    RouteActions,
    RouteController,
    RouteObservation,
    UnitObservation,
)
from circinus.scheduler.routing.routers import Router
from circinus.scheduler.routing.series import RouteRecorder, SimulatedUnits
from circinus.scheduler.routing.sharing import UnitTurns
from circinus.scheduler.routing.units import EndpointRoute

_HOUR_S, _THOUSAND = 3600.0, 1000.0
_DEMAND_EVERY_S = 10.0  # how often routers receive the demand


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChange:
    """From when on how many units can be had."""

    at_s: float
    unit: str
    available: int | None  # None: any number


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteScenario:
    """What happens to a route."""

    name: str
    route: EndpointRoute  # its demand is the highest
    low: float = 0.3  # part of that which the lowest demand is, in (0, 1]
    cycle_s: float = 600.0  # from low to low, `> 0`
    cycles: int = 2
    starts_s: float = 20.0  # that a unit takes to start
    changes: Sequence[CapacityChange] = ()

    def __post_init__(self) -> None:
        checks.share("low", self.low)
        checks.positive("cycle_s", self.cycle_s)
        checks.at_least("cycles", self.cycles, 1)
        checks.non_negative("starts_s", self.starts_s)

    @property
    def ends_s(self) -> float:
        """Return when no more requests come."""
        return self.cycle_s * self.cycles

    @property
    def lasts_s(self) -> float:
        """Return until when answers count."""
        return self.ends_s + self.cycle_s

    @property
    def late_s(self) -> float:
        """Return what a request may take that is not late."""
        return 2 * self.route.latency_s

    def demand_per_s(self, at_s: float) -> float:
        """Return the rate at a time."""
        wave = (1 - cos(2 * pi * at_s / self.cycle_s)) / 2
        return self.route.demand_per_s * (self.low + (1 - self.low) * wave)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedRun:
    """The totals of a run."""

    requests: int
    served: int  # by a cycle after the end
    late: int  # of those, that took longer than twice the route's latency
    usd: float  # of units, while requests arrived
    p95_s: float
    switch_s: float  # longest from a loss until no weight was on what was lost; 0: no loss

    @property
    def usd_per_1000(self) -> float:
        """US dollars of a thousand requests that were served."""
        return self.usd / self.served * _THOUSAND if self.served else inf


@dataclass(slots=True)
class _Simulation:
    scenario: RouteScenario
    router: Router
    arrivals: np.random.Generator
    recorder: RouteRecorder | None
    now: float = 0.0
    kinds: dict[str, SimulatedUnits] = field(default_factory=dict)
    available: dict[str, int | None] = field(default_factory=dict)
    actions: RouteActions = field(init=False)  # what is to be done at this moment
    turns: UnitTurns = field(default_factory=UnitTurns)
    arrived: list[float] = field(default_factory=list)
    done: dict[int, float] = field(default_factory=dict)
    held: deque[int] = field(default_factory=deque)  # while nothing runs
    usd: float = 0.0
    lost_at: dict[str, float] = field(default_factory=dict)
    switch_s: float = 0.0
    _events: list[tuple[float, int, str, object]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=count)
    _controller: RouteController = field(init=False)

    def __post_init__(self) -> None:
        self._controller = RouteController(router=self.router, sharing=RequestSharing.TURNS)

    def run(self) -> RoutedRun:
        scenario = self.scenario
        self.kinds = {unit.name: SimulatedUnits(unit) for unit in scenario.route.units}
        self.available = {unit.name: unit.available for unit in scenario.route.units}
        for change in scenario.changes:
            self._push(change.at_s, "change", change)
        looks = np.arange(0.0, scenario.ends_s, self.router.polls_s or _DEMAND_EVERY_S)
        for at_s in looks.tolist():
            self._push(at_s, "look", None)
        self._look()
        for kind in self.kinds.values():  # what is wanted first runs already
            kind.running, kind.starting = len(kind.starting), []
        self._adapt()
        self._push(self._next_arrival(), "arrival", None)
        while self._events:
            at_s, _, what, payload = heapq.heappop(self._events)
            if at_s > scenario.lasts_s:
                break
            self._pay(at_s)
            self.now = at_s
            getattr(self, f"_{what}")(*([] if payload is None else [payload]))
        return self._run_result()

    def _push(self, at_s: float, what: str, payload: object) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), what, payload))

    def _pay(self, until_s: float) -> None:
        ends_s = self.scenario.ends_s
        from_s, until_s = min(self.now, ends_s), min(until_s, ends_s)
        if self.recorder is not None:
            self.recorder.lasted(self.kinds, from_s, until_s)
        rate = sum(
            (kind.running + len(kind.starting)) * kind.unit.price_usd_per_hour
            for kind in self.kinds.values()
        )
        self.usd += rate * (until_s - from_s) / _HOUR_S

    def _next_arrival(self) -> float:
        at_s, most = self.now, self.scenario.route.demand_per_s
        while True:  # thinning (Lewis and Shedler, 1979)
            at_s += float(self.arrivals.exponential(1 / most))
            if self.arrivals.random() * most <= self.scenario.demand_per_s(at_s):
                return at_s

    def _arrival(self) -> None:
        if self.now > self.scenario.ends_s:
            return
        self.arrived.append(self.now)
        if self.recorder is not None:
            self.recorder.arrived(self.now)
        self._send(len(self.arrived) - 1)
        self._push(self._next_arrival(), "arrival", None)

    def _send(self, request: int, *, first: bool = False) -> None:
        """Send a request to a kind by weight; `first`: before those that wait there."""
        if not self.actions.weights:
            self.held.append(request)
            return
        name = self.turns.next(self.actions.weights)
        kind = self.kinds[name]
        kind.waiting.appendleft(request) if first else kind.waiting.append(request)
        self._serve(kind)

    def _serve(self, kind: SimulatedUnits) -> None:
        while kind.waiting and len(kind.in_hand) < kind.places:
            request = kind.waiting.popleft()
            kind.in_hand[request] = number = next(self._order)
            self._push(self.now + kind.service_s, "served", (kind.unit.name, request, number))

    def _served(self, payload: tuple[str, int, int]) -> None:
        kind, request = self.kinds[payload[0]], payload[1]
        if kind.in_hand.get(request) != payload[2]:  # lost, and sent again
            return
        del kind.in_hand[request]
        self.done[request] = self.now
        if self.recorder is not None:
            self.recorder.served(payload[0], self.arrived[request], self.now)
        self._serve(kind)
        if kind.running > kind.wanted and not self.actions.keep:
            self._drain(kind)

    def _change(self, change: CapacityChange) -> None:
        self.available[change.unit] = change.available
        kind = self.kinds[change.unit]
        if change.available is not None and kind.running > change.available:
            self.lost_at.setdefault(change.unit, self.now)
            self._end(kind, change.available)
            del kind.starting[:]
            self._adapt()
        elif change.available is not None:
            del kind.starting[max(change.available - kind.running, 0) :]
            self._adapt()
        elif change.unit in self.lost_at:  # there again before anybody saw that it was gone
            self.switch_s = max(self.switch_s, self.now - self.lost_at.pop(change.unit))
        if self.router.polls_s is None:
            self._look()

    def _end(self, kind: SimulatedUnits, left: int) -> None:
        """Let units end but so many; what they had in hand is sent again."""
        kind.running = left
        self._adapt()
        again = list(kind.in_hand)[kind.places :]
        for request in again:
            del kind.in_hand[request]
        if not left:
            again += kind.waiting
            kind.waiting.clear()
        for request in again:
            self._send(request, first=True)

    def _observed(self) -> RouteObservation:
        return RouteObservation(
            at_s=self.now,
            demand_per_s=self.scenario.demand_per_s(self.now),
            units={
                name: UnitObservation(
                    ready=kind.running,
                    starting=len(kind.starting),
                    available=self.available[name],
                    limit=self.available[name],
                )
                for name, kind in self.kinds.items()
            },
        )

    def _adapt(self) -> None:
        """Share requests among what runs by now."""
        self.actions = self._controller.adapt(self._observed())

    def _look(self) -> None:
        actions = self._controller.step(self._observed())
        if self.router.polls_s is None and self.now < actions.again_s < inf:
            self._push(actions.again_s, "look", None)
        if self.recorder is not None:
            self.recorder.decided(self.now, actions.traffic)
        for name, at_s in list(self.lost_at.items()):
            if not actions.traffic.weights.get(name):
                self.switch_s = max(self.switch_s, self.now - at_s)
                del self.lost_at[name]
        for name, kind in self.kinds.items():
            kind.wanted = actions.counts[name]
            for _ in range(kind.wanted - kind.running - len(kind.starting)):
                kind.starting.append(self.now + self.scenario.starts_s)
                self._push(kind.starting[-1], "started", name)
        self._adapt()
        self._end_unwanted()

    def _started(self, name: str) -> None:
        kind = self.kinds[name]
        if self.now not in kind.starting:  # it was lost
            return
        kind.starting.remove(self.now)
        kind.running += 1
        self._adapt()
        self._end_unwanted()
        held, self.held = self.held, deque()
        for request in held:
            self._send(request)
        self._serve(kind)

    def _end_unwanted(self) -> None:
        """End units that are not wanted, once all that is wanted runs, as they have less to do."""
        if self.actions.keep:
            return
        for kind in self.kinds.values():
            if kind.running > kind.wanted:
                self._drain(kind)

    def _drain(self, kind: SimulatedUnits) -> None:
        needed = ceil((len(kind.in_hand) + len(kind.waiting)) / kind.per_unit)
        left = max(kind.wanted, min(needed, kind.running))
        if left != kind.running:
            kind.running = left
            self._adapt()

    def _run_result(self) -> RoutedRun:
        latency_s = np.array([at_s - self.arrived[request] for request, at_s in self.done.items()])
        stuck = [self.scenario.ends_s - at_s for at_s in self.lost_at.values()]
        return RoutedRun(
            requests=len(self.arrived),
            served=len(latency_s),
            late=int((latency_s > self.scenario.late_s).sum()),
            usd=self.usd,
            p95_s=float(np.quantile(latency_s, 0.95)) if len(latency_s) else inf,
            switch_s=max([self.switch_s, *stuck]),
        )


def simulated(
    scenario: RouteScenario,
    router: Router,
    rng: np.random.Generator,
    recorder: RouteRecorder | None = None,
) -> RoutedRun:
    """Return the totals of a scenario under a router; equal generators draw the same requests.

    A recorder gets its events as they happen, and changes nothing.
    """
    return _Simulation(scenario, router, rng, recorder).run()
