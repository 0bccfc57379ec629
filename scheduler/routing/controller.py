"""Controls a route: what was observed of its units goes in, what is to be done comes out. Pure.

Three drivers observe a route and carry out what is decided here: worker processes
(`deploy.routes.routed`), objects of a cluster (`deploy.kubernetes.routing.follower`) and the
simulation (`simulated`). Equal observations, in order, have equal actions, whoever observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from circinus.scheduler.routing.regimes import RegimeState
from circinus.scheduler.routing.routers import HEADROOM, RouteDecision, Router
from circinus.scheduler.routing.sharing import parts_now, steered, verified_weights
from circinus.scheduler.routing.traffic import RouteTraffic


class RequestSharing(StrEnum):
    """How requests are shared while not all runs that is wanted, see `sharing`."""

    TURNS = "turns"
    """By what those that run can do: whoever sends each request itself."""
    BALANCER = "balancer"
    """As weights of a load balancer: no unit gets more than what is ready of it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitObservation:
    """A deployment unit at a moment."""

    ready: int  # that answer requests
    available: int | None  # that run or can be had; None: any number
    limit: int | None = None  # most that may be started; None: any number
    fewest: int = 0  # that run whatever is wanted, within the limit
    # that were begun and do not answer yet; None: those that are wanted and not ready
    starting: int | None = None
    # whether those that are lacking are tried again, so that their return is detected:
    # what cost mode wants of them stays wanted
    is_retried: bool = False
    agrees: bool | None = None  # whether its outputs do; None: they are not verified


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteObservation:
    """A route at a moment."""

    at_s: float  # never less than before; load cycles begin at whole ones of its zero
    demand_per_s: float  # requests that come
    units: Mapping[str, UnitObservation]  # of each unit of the route


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteActions:
    """What is to be done about a route."""

    traffic: RouteTraffic  # what the regime wants
    state: RegimeState  # of the state machine, where the router has one
    counts: Mapping[str, int]  # unit -> how many should run
    weights: Mapping[str, float]  # unit -> its part of the requests now; empty: there is none
    keep: bool  # whether what is no longer wanted goes on: not all that is wanted answers yet
    again_s: float  # when to step again although nothing happens; inf: never


@dataclass(slots=True, kw_only=True, eq=False)
class RouteController:
    """Controls a route. Used by one thread or event loop."""

    router: Router
    sharing: RequestSharing
    verifies: bool = False  # whether only units whose outputs agree may take requests
    _decision: RouteDecision | None = field(default=None, init=False)
    _weights: Mapping[str, float] = field(default_factory=dict, init=False)

    def step(self, observation: RouteObservation) -> RouteActions:
        """Decide anew: over the regime, how many units should run, and where requests go.

        A unit whose outputs disagree is left out of the route from then on, until they agree.
        """
        units = observation.units
        left_out = frozenset(name for name, unit in units.items() if unit.agrees is False)
        if self.verifies and left_out != self.router.route.left_out:
            self.router = self.router.over(replace(self.router.route, left_out=left_out))
        available = {name: unit.available for name, unit in units.items()}
        demand_per_s = HEADROOM * observation.demand_per_s
        self._decision = self.router.decided(observation.at_s, demand_per_s, available)
        return self._actions(self._decision, observation)

    def adapt(self, observation: RouteObservation) -> RouteActions:
        """Return the actions for what runs by now, under the last decision if there is one."""
        if self._decision is None:
            return self.step(observation)
        return self._actions(self._decision, observation)

    def _actions(self, decision: RouteDecision, observation: RouteObservation) -> RouteActions:
        keep = any(
            self._is_awaited(decision.traffic.numbers.get(name, 0), unit)
            for name, unit in observation.units.items()
        )
        self._weights = self._shared(decision.traffic, observation, keep=keep)
        return RouteActions(
            traffic=decision.traffic,
            state=decision.state,
            counts={
                name: _count(decision, name, unit) for name, unit in observation.units.items()
            },
            weights=self._weights,
            keep=keep,
            again_s=decision.again_s,
        )

    def _is_awaited(self, wanted: int, unit: UnitObservation) -> bool:
        """Whether something of a unit is to take requests and does not yet."""
        if unit.starting is not None:
            return unit.starting > 0
        return wanted > 0 and (unit.ready < wanted or not self._may_take(unit))

    def _may_take(self, unit: UnitObservation) -> bool:
        return not self.verifies or unit.agrees is True

    def _shared(
        self, traffic: RouteTraffic, observation: RouteObservation, *, keep: bool
    ) -> dict[str, float]:
        units, route = observation.units, self.router.route
        ready = {name: unit.ready for name, unit in units.items()}
        may = {name for name, unit in units.items() if self._may_take(unit)}
        if self.sharing is RequestSharing.TURNS:
            can = {u.name: ready[u.name] * u.most_per_s * (u.name in may) for u in route.units}
            return parts_now(traffic.weights, can, changing=keep and not traffic.fixed)
        wanted = replace(route, demand_per_s=HEADROOM * observation.demand_per_s)
        if self.verifies:
            return verified_weights(wanted, traffic, ready, may, self._weights)
        return steered(wanted, traffic, ready) or dict(self._weights)


def _count(decision: RouteDecision, name: str, unit: UnitObservation) -> int:
    count = max(decision.traffic.numbers.get(name, 0), unit.fewest)
    if unit.is_retried:
        count = max(count, decision.cheapest.get(name, 0))
    return count if unit.limit is None else min(count, unit.limit)
