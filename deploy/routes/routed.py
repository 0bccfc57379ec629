"""An endpoint over deployment units that run here: numbers and traffic as its router says.

Every unit has an orchestrator of its own, which starts its workers, and starts again what ends.
How many of a unit can be had is what its provider states, less those that ended or did not start.
What cost mode wants stays wanted where it cannot be had, or nobody would see that it can again.
New workers serve before old ones end, and a unit takes traffic once its outputs are verified
(`probing`). A request goes to another unit if all workers of its own are gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from circinus.deploy.routes.probing import Prober, ProbeSettings
from circinus.deploy.routes.units import RoutedUnit, UnitStatus
from circinus.deploy.routes.workloads import UnitWorkload
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.runtime.report import SpanCounts
from circinus.deploy.runtime.telemetry import Traffic
from circinus.deploy.runtime.walk import RequestResult, RequestTerms
from circinus.deploy.workers.errors import DeadlineExceeded, InstanceLost, TooManyRequests
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError, Unavailable
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.payload import Payload
from circinus.scheduler.routing.regimes import RegimeSettings, RegimeState
from circinus.scheduler.routing.routers import RegimeRouter, with_room
from circinus.scheduler.routing.traffic import RouteMethod, RouteTraffic
from circinus.scheduler.routing.turns import UnitTurns, parts_now
from circinus.scheduler.routing.units import EndpointRoute

_LOOK_S = 0.2  # between two looks at the workers
_PROBE_S = 60.0  # that a probe may take: it is the first that a worker runs
_MOST_SENDS = 3  # of a request: what ends every worker that has it must end
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteStatus:
    """A route that is served, for people."""

    state: RegimeState
    for_s: float  # seconds that it has been in it
    units: Sequence[UnitStatus]
    spans: Sequence[SpanCounts]  # what requests got; in time: within the route's latency


@dataclass(slots=True, eq=False)
class RoutedEndpoint:
    """Serves a route. Used within one event loop."""

    route: EndpointRoute
    workloads: Sequence[UnitWorkload]  # of each of its units, in order
    pipeline: Pipeline
    start: Callable[[UnitWorkload], Orchestrator]  # one that has nothing yet
    clock: Clock
    method: RouteMethod = RouteMethod.CARRIED
    settings: RegimeSettings = field(default_factory=RegimeSettings)
    probes: ProbeSettings = field(default_factory=ProbeSettings)
    _units: dict[str, RoutedUnit] = field(init=False)
    _router: RegimeRouter = field(init=False)
    _prober: Prober = field(init=False)
    _traffic: RouteTraffic | None = field(default=None, init=False)
    _parts: dict[str, float] = field(default_factory=dict, init=False)
    _available: Mapping[str, int | None] | None = field(default=None, init=False)
    _again_s: float = field(default=inf, init=False)
    _turns: UnitTurns = field(default_factory=UnitTurns, init=False)
    _requests: Traffic = field(init=False)
    _began: float = field(init=False)
    # what the clock's zero is since the Epoch: load cycles begin at whole ones since then
    _zero: float = field(init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _loop: asyncio.Task[None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        for each in self.workloads:
            each.plan(self.pipeline.graph)  # InvalidInput here rather than in a loop
        self._units = {
            each.unit.name: RoutedUnit(each, self.start(each), self.pipeline)
            for each in self.workloads
        }
        self._router = self._routing(RegimeState())
        self._prober = Prober(self.pipeline, self.probes)
        self._began, self._zero = self.clock.now(), self.clock.timestamp() - self.clock.now()
        self._requests = Traffic(self._began)

    def open(self) -> None:
        """Begin to start workers; requests wait until some run."""
        self._look()
        self._loop = asyncio.create_task(self._keep_on())

    @property
    def serves(self) -> bool:
        """Whether requests are answered at this moment, rather than wait."""
        return bool(self._parts)

    def change(self, route: EndpointRoute, settings: RegimeSettings, method: RouteMethod) -> None:
        """Go on with another demand, latency, or figures of the same units."""
        self.route, self.settings, self.method = route, settings, method
        for unit in route.units:
            own = self._units[unit.name]
            own.workload = replace(own.workload, unit=unit)
        self._route_anew()
        self._look()

    def _route_anew(self) -> None:
        """Decide anew, over units whose outputs were not found not to agree."""
        self._router = self._routing(self._router.state)
        self._available = None

    def _routing(self, state: RegimeState) -> RegimeRouter:
        refused = frozenset(name for name, unit in self._units.items() if unit.refused)
        route = replace(self.route, left_out=refused)
        return RegimeRouter(route=route, method=self.method, settings=self.settings, state=state)

    async def request(self, input: Payload, terms: RequestTerms) -> tuple[str, RequestResult]:
        """Return the unit that answered, and its answer; errors as `Dispatcher.request`."""
        now = self.clock.now()
        arrived = now if terms.arrived is None else terms.arrived
        self._requests.arrived(now)
        try:
            answer = await self._answered(input, replace(terms, arrived=arrived))
        except TooManyRequests:
            self._requests.turned_away(self.clock.now())
            raise
        except Exception:
            self._requests.failed(self.clock.now())
            raise
        now = self.clock.now()
        in_time = now - arrived <= self.route.latency_s
        self._requests.answered(now, now - arrived, in_time=in_time)
        return answer

    async def _answered(self, input: Payload, terms: RequestTerms) -> tuple[str, RequestResult]:
        ends = (terms.arrived or 0.0) + terms.timeout_s
        lost: CircinusError = Unavailable("all units that had it were lost", retry_after_s=1.0)
        for _ in range(_MOST_SENDS):
            unit = await self._next(ends, terms.timeout_s)
            unit.sent += 1
            work = unit.orchestrator.request(unit.name, input, terms)
            task = asyncio.ensure_future(work)
            unit.in_hand.add(task)
            try:
                await asyncio.wait({task})
            finally:  # also when the client is gone
                unit.in_hand.discard(task)
                task.cancel()
            if task.cancelled():  # its unit was lost, see `_look`
                continue
            error = task.exception()
            if error is None:
                return unit.name, task.result()
            again = isinstance(error, InstanceLost) or not unit.serves
            if not again or self.clock.now() >= ends:
                raise error
            lost = error if isinstance(error, CircinusError) else lost
            self._look()
        raise lost

    async def _next(self, ends: float, timeout_s: float) -> RoutedUnit:
        """Return the next unit, once one runs; DeadlineExceeded if none runs in time."""
        while not self._parts:
            self._changed.clear()
            try:
                async with asyncio.timeout(max(ends - self.clock.now(), 0.0)):
                    await self._changed.wait()
            except TimeoutError as error:
                raise DeadlineExceeded(timeout_s, "no unit ran") from error
        return self._units[self._turns.next(self._parts)]

    def status(self) -> RouteStatus:
        """Return how it fares."""
        now, traffic, state = self.clock.now(), self._traffic, self._router.state
        return RouteStatus(
            state=state,
            for_s=now - max(state.since_s - self._zero, self._began),
            spans=self._requests.spans(now),
            units=[
                UnitStatus(
                    name=unit.name,
                    traffic_weight=traffic.weights.get(unit.name, 0.0) if traffic else 0.0,
                    part=self._parts.get(unit.name, 0.0),
                    wanted=traffic.numbers.get(unit.name, 0) if traffic else 0,
                    running=unit.running,
                    available=unit.available,
                    why=unit.why,
                    proof=unit.proof,
                    sent=unit.sent,
                )
                for unit in self._units.values()
            ],
        )

    async def close(self) -> None:
        """End its workers, after what they have in hand."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        await asyncio.gather(*(unit.close() for unit in self._units.values()))

    async def _keep_on(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                self._look()
            except Exception:  # noqa: BLE001 - the loop's edge: the next look may go well
                _log.exception("route_look_failed route=%s", self.route.name)

    def _look(self) -> None:
        now, units = self.clock.now(), self._units
        for unit in units.values():
            unit.refresh()
        available = {name: unit.available for name, unit in units.items()}
        if available != self._available or now >= self._again_s or self._traffic is None:
            self._available = available
            self._decide(now, available)
        wanted, changing = self._wanted(), self._changing()
        for name, unit in units.items():
            # new before old: nothing ends while what takes traffic does not run yet
            unit.scale(max(wanted[name], unit.wanted) if changing else wanted[name], now)
            if unit.wanted and not unit.running:  # lost: others answer what it had
                for task in tuple(unit.in_hand):
                    task.cancel()
        self._share(changing)
        self._verify()

    def _decide(self, now: float, available: Mapping[str, int | None]) -> None:
        before = self._router.state.regime
        demand = with_room(self.route).demand_per_s
        self._traffic, again_s = self._router.decided(now + self._zero, demand, available)
        self._again_s, state = again_s - self._zero, self._router.state
        if state.regime is not before:
            fields = (self.route.name, state.regime, state.why)
            _log.info("route_regime_changed route=%s regime=%s why=%s", *fields)

    def _wanted(self) -> dict[str, int]:
        """Return how many workers of each unit should run."""
        traffic, cheapest = self._traffic, self._router.cheapest
        startable = {}
        for name, unit in self._units.items():
            count = traffic.numbers.get(name, 0) if traffic else 0
            if (unit.ended or unit.failed) and cheapest is not None:
                count = max(count, cheapest.numbers.get(name, 0))
            if (
                self._prober.wanted
                and unit.proof is None
                and unit.workload.unit in self.route.quick
            ):
                count = max(count, 1)
            most = unit.workload.unit.available
            startable[name] = 0 if unit.refused else count if most is None else min(count, most)
        return startable

    def _changing(self) -> bool:
        """Whether something that is to take traffic does not run yet."""
        numbers = self._traffic.numbers if self._traffic else {}
        return any(
            self._units[name].running < count or not self._takes(self._units[name])
            for name, count in numbers.items()
            if count
        )

    def _takes(self, unit: RoutedUnit) -> bool:
        """Whether a unit may take traffic, as far as its outputs say."""
        return not self._prober.wanted or (unit.proof is not None and unit.proof.agrees)

    def _share(self, changing: bool) -> None:
        weights = self._traffic.weights if self._traffic else {}
        can = {
            name: unit.running * unit.workload.unit.most_per_s if self._takes(unit) else 0.0
            for name, unit in self._units.items()
        }
        self._parts = parts_now(weights, can, changing=changing)
        if self._parts:
            self._changed.set()

    def _verify(self) -> None:
        """Verify what runs and was not verified; the first unit that can run is the reference."""
        if not self._prober.wanted:
            return
        for unit in self._units.values():
            waits = unit.proof is None and unit.wanted > 0 and not unit.failed
            if waits and unit.running and unit.proving is None:
                unit.proving = asyncio.create_task(self._prove(unit))
            if waits and not self._prober.has_reference:
                return  # the others are held against it

    async def _prove(self, unit: RoutedUnit) -> None:
        async def run(input: Payload) -> Payload:
            terms = RequestTerms(timeout_s=_PROBE_S, serve_late=True)
            return (await unit.orchestrator.request(unit.name, input, terms)).output

        try:
            unit.proof = await self._prober.prove(unit.name, run)
            if unit.refused:
                self._route_anew()
        except CircinusError as error:  # it went away, say
            _log.warning("probes_failed unit=%s cause=%s", unit.name, error)
        else:
            fields = (unit.name, unit.proof.agrees, unit.proof.words)
            _log.info("unit_verified unit=%s agrees=%s what=%s", *fields)
        finally:
            unit.proving = None
        self._look()
