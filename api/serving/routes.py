"""The routes that a serving process serves, each by workers of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from circinus.api.use_cases.deployer import DesiredRoute
from circinus.api.use_cases.routes import workloads_of
from circinus.deploy.routes.probing import ProbeSettings
from circinus.deploy.routes.routed import RoutedEndpoint, RouteStatus
from circinus.deploy.routes.workloads import UnitWorkload
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.runtime.walk import RequestResult, RequestTerms
from circinus.pipelines.errors import CircinusError, Unavailable
from circinus.pipelines.model.payload import Payload

_QUEUE_LIMIT = 1024  # of a unit: what waits while others start
_SWAPS_S = 60.0  # that the workers of a route which runs something else now may take
_POLL_S = 0.1
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Served:
    """A route as it is served."""

    desired: DesiredRoute
    endpoint: RoutedEndpoint


@dataclass(slots=True, eq=False)
class ServedRoutes:
    """Serves routes beside an orchestrator, as that starts instances. A `RequestServer`.

    Used within one event loop.
    """

    like: Orchestrator  # whose launcher, pipelines, policy and clock are used
    _served: dict[str, _Served] = field(default_factory=dict, init=False)
    _desired: Mapping[str, DesiredRoute] = field(default_factory=dict, init=False)
    _problems: dict[str, str] = field(default_factory=dict, init=False)
    _transitions: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _again: set[str] = field(default_factory=set, init=False)  # changed during their transition

    def apply_routes(self, desired: Mapping[str, DesiredRoute]) -> None:
        """See `Deployer`."""
        self._desired = dict(desired)
        for name in {*desired, *self._served, *self._transitions}:
            if name in self._transitions:
                self._again.add(name)
            else:
                self._start_transition(name)

    def routes(self) -> dict[str, RouteStatus | str]:
        """See `Deployer`."""
        return {name: self._status(name) for name in self._desired}

    def _status(self, name: str) -> RouteStatus | str:
        if name in self._served and name not in self._problems:
            return self._served[name].endpoint.status()
        return self._problems.get(name, "its workers start")

    def plan_serving(self, name: str) -> str | None:
        """Return the route's name if it answers requests; None: it does not."""
        return name if name in self._served and name in self._desired else None

    def shed_infeasible(self, name: str, arrived: float, *, unless: Callable[[], bool]) -> None:
        """Admit all requests: a route's latency sheds none."""

    def emulates(self, name: str) -> bool:
        """Return whether one of the route's units is as slow as it is by waiting."""
        return any(each.speed < 1 for each in self._desired[name].terms.units)

    async def request(self, name: str, input: Payload, terms: RequestTerms) -> RequestResult:
        """Return the answer of one of the route's units; errors as `Dispatcher.request`."""
        served = self._served.get(name)
        if served is None:
            raise Unavailable(f"route {name} is not served", retry_after_s=1.0)
        _, result = await served.endpoint.request(input, terms)
        return result

    async def close(self) -> None:
        """End all workers."""
        self.apply_routes({})
        while self._transitions:
            await asyncio.wait(self._transitions.values())
            await asyncio.sleep(0)

    def _start_transition(self, name: str) -> None:
        task = asyncio.create_task(self._run(name))
        self._transitions[name] = task
        task.add_done_callback(lambda _: self._finish(name))

    def _finish(self, name: str) -> None:
        self._transitions.pop(name, None)
        if name in self._again:
            self._again.discard(name)
            self._start_transition(name)

    async def _run(self, name: str) -> None:
        desired, served = self._desired.get(name), self._served.get(name)
        try:
            if desired is None:
                await self._end(name)
            elif served is None or not _runs_the_same(served.desired, desired):
                await self._start(name, desired)
            elif served.desired != desired:
                terms = desired.terms
                served.endpoint.change(terms.route, terms.regimes.settings, terms.method)
                served.desired = desired
            self._problems.pop(name, None)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one is no other's
            self._problems[name] = str(error) or type(error).__name__
            foreseen = isinstance(error, CircinusError)
            problem = self._problems[name]
            _log.warning("route_failed route=%s cause=%s", name, problem, exc_info=not foreseen)

    async def _start(self, name: str, desired: DesiredRoute) -> None:
        """Serve a route; its earlier workers serve on until the new ones do, if they do."""
        reference, terms = desired.pipeline_reference, desired.terms
        pipeline = await asyncio.to_thread(self.like.pipeline_of, reference)
        endpoint = RoutedEndpoint(
            route=terms.route,
            workloads=workloads_of(terms, reference),
            pipeline=pipeline,
            start=self._orchestrator,
            clock=self.like.clock,
            method=terms.method,
            settings=terms.regimes.settings,
            probes=ProbeSettings(**terms.verify.model_dump()),
        )
        before = self._served.get(name)
        endpoint.open()
        if before is not None and not await _soon(lambda: endpoint.serves):
            await endpoint.close()
            reason = f"new workers did not serve within {_SWAPS_S:g} s: the ones before go on"
            raise Unavailable(reason, retry_after_s=_SWAPS_S)
        self._served[name] = _Served(desired, endpoint)
        if before is not None:
            await before.endpoint.close()

    async def _end(self, name: str) -> None:
        served = self._served.pop(name, None)
        if served is not None:
            await served.endpoint.close()

    def _orchestrator(self, of: UnitWorkload) -> Orchestrator:
        like = self.like
        return Orchestrator(
            of.infrastructure,
            like.launcher,
            like.pipeline_of,
            like.policy,
            like.clock,
            queue_limit=_QUEUE_LIMIT,
        )


async def _soon(holds: Callable[[], bool]) -> bool:
    """Wait until it holds, for as long as a swap may take; return whether it does."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SWAPS_S):
            while not holds():
                await asyncio.sleep(_POLL_S)
    return holds()


def _runs_the_same(one: DesiredRoute, other: DesiredRoute) -> bool:
    """Return whether workers and probes of both are equal, except the numbers of workers."""

    def runs(of: DesiredRoute) -> object:
        each = workloads_of(of.terms, of.pipeline_reference)
        units = [(w.unit.name, w.knobs, w.share, w.speed) for w in each]
        return of.pipeline_reference, units, of.terms.verify

    return runs(one) == runs(other)
