"""An endpoint over deployment units that run here: workers and traffic as its controller decides.

Every unit has an orchestrator of its own, which starts its workers, and starts again what ends.
How many of a unit can be had is what its provider states, less those that ended or did not start.
What cost mode wants stays wanted where it cannot be had, or its return would go unnoticed.
New workers serve before old ones end, and a unit takes traffic once its outputs are verified
(`probing`). A request goes to another unit if all workers of its own are gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

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
from circinus.scheduler.routing.controller import (
    RequestSharing,
    RouteActions,
    RouteController,
    RouteObservation,
)
from circinus.scheduler.routing.regimes import RegimeSettings, RegimeState
from circinus.scheduler.routing.routers import RegimeRouter
from circinus.scheduler.routing.sharing import UnitTurns
from circinus.scheduler.routing.traffic import RouteMethod
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
    _controller: RouteController = field(init=False)
    _prober: Prober = field(init=False)
    _actions: RouteActions = field(init=False)  # of the last look
    _state: RegimeState = field(default_factory=RegimeState, init=False)
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
        self._prober = Prober(self.pipeline, self.probes)
        self._controller = RouteController(
            router=self._router(),
            sharing=RequestSharing.TURNS,
            verifies=self._prober.wanted,
        )
        self._began, self._zero = self.clock.now(), self.clock.timestamp() - self.clock.now()
        self._requests = Traffic(self._began)
        self._actions = self._step()

    def open(self) -> None:
        """Begin to start workers; requests wait until some run."""
        self._look()
        self._loop = asyncio.create_task(self._keep_on())

    @property
    def serves(self) -> bool:
        """Whether requests are answered at this moment, rather than wait."""
        return bool(self._actions.weights)

    def change(self, route: EndpointRoute, settings: RegimeSettings, method: RouteMethod) -> None:
        """Go on with another demand, latency, or figures of the same units."""
        self.route, self.settings, self.method = route, settings, method
        for unit in route.units:
            own = self._units[unit.name]
            own.workload = replace(own.workload, unit=unit)
        self._controller.router = self._router()
        self._look()

    def _router(self) -> RegimeRouter:
        return RegimeRouter(
            route=self.route, method=self.method, settings=self.settings, state=self._state
        )

    async def request(self, input: Payload, terms: RequestTerms) -> tuple[str, RequestResult]:
        """Return the unit that answered, and its answer; errors as `Dispatcher.request`."""
        now = self.clock.now()
        arrived = now if terms.arrived is None else terms.arrived
        self._requests.arrived(now)
        try:
            answer = await self._answered(input, replace(terms, arrived=arrived))
        except TooManyRequests:
            self._requests.failed(self.clock.now(), refused=True)
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
        while not self._actions.weights:
            self._changed.clear()
            try:
                async with asyncio.timeout(max(ends - self.clock.now(), 0.0)):
                    await self._changed.wait()
            except TimeoutError as error:
                raise DeadlineExceeded(timeout_s, "no unit ran") from error
        return self._units[self._turns.next(self._actions.weights)]

    def status(self) -> RouteStatus:
        """Return how it fares."""
        now, actions, state = self.clock.now(), self._actions, self._state
        traffic = actions.traffic
        return RouteStatus(
            state=state,
            for_s=now - max(state.since_s - self._zero, self._began),
            spans=self._requests.spans(now),
            units=[
                UnitStatus(
                    name=unit.name,
                    traffic_weight=traffic.weights.get(unit.name, 0.0),
                    part=actions.weights.get(unit.name, 0.0),
                    wanted=traffic.numbers.get(unit.name, 0),
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
        self._actions = actions = self._step()
        now = self.clock.now()
        for name, unit in self._units.items():
            count = actions.counts[name]
            # new before old: nothing ends while what takes traffic does not run yet
            unit.scale(max(count, unit.wanted) if actions.keep else count, now)
            if unit.wanted and not unit.running:  # lost: others answer what it had
                for task in tuple(unit.in_hand):
                    task.cancel()
        if actions.weights:
            self._changed.set()
        self._verify()

    def _step(self) -> RouteActions:
        for unit in self._units.values():
            unit.refresh()
        actions = self._controller.step(
            RouteObservation(
                at_s=self.clock.now() + self._zero,
                demand_per_s=self.route.demand_per_s,
                units={
                    name: unit.observation(fewest=int(self._has_to_verify(unit)))
                    for name, unit in self._units.items()
                },
            )
        )
        before, self._state = self._state, actions.state
        if self._state.regime is not before.regime:
            fields = (self.route.name, self._state.regime, self._state.why)
            _log.info("route_regime_changed route=%s regime=%s why=%s", *fields)
        return actions

    def _has_to_verify(self, unit: RoutedUnit) -> bool:
        quick = unit.workload.unit in self.route.quick
        return self._prober.wanted and quick and unit.proof is None

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
        except CircinusError as error:  # it went away, say
            _log.warning("probes_failed unit=%s cause=%s", unit.name, error)
        else:
            fields = (unit.name, unit.proof.agrees, unit.proof.words)
            _log.info("unit_verified unit=%s agrees=%s what=%s", *fields)
        finally:
            unit.proving = None
        self._look()
