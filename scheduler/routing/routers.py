"""What decides over a route while it serves: the state machine, and what it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Protocol, Self

from circinus.scheduler.routing.regimes import (
    CapacityObservation,
    Regime,
    RegimeSettings,
    RegimeState,
    stepped,
)
from circinus.scheduler.routing.traffic import (
    RouteMethod,
    RouteTraffic,
    adjusted_per_s,
    all_counts,
    cheapest_traffic,
    counts_for,
    spread_traffic,
    supply_per_s,
)
from circinus.scheduler.routing.units import EndpointRoute

AvailableUnits = Mapping[str, int | None]
"""Unit -> how many run or can be had; None: any number."""

# deviates: route-polled-every-300-s
POLLED_S = 300.0
"""Between two looks of the authors' checker: `sleep 300` in `capacity-checker-deploy.yaml` of
aws-samples/scalable-hw-agnostic-inference. The paper says "continuously monitors" (5.4.3) and
no period: `OFTEN_S`."""
OFTEN_S = 5.0
"""Between two looks of a checker that monitors as continuously as the text has it."""
# deviates: headroom
HEADROOM = 1.25
"""Times the demand that units are wanted for: at 80 % they are busy (5.3)."""


def with_room(route: EndpointRoute) -> EndpointRoute:
    """Return a route whose demand takes as many units as it does where `HEADROOM` is left."""
    return replace(route, demand_per_s=HEADROOM * route.demand_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDecision:
    """What a router decides at a moment."""

    traffic: RouteTraffic
    cheapest: Mapping[str, int] = field(default_factory=dict)  # unit -> how many cost mode wants
    state: RegimeState = field(default_factory=RegimeState)
    again_s: float = inf  # when to ask again if nothing happens; inf: never


class Router(Protocol):
    """Decides numbers and weights of a route's units."""

    @property
    def route(self) -> EndpointRoute:
        """The route that is decided over; its demand does not count."""

    @property
    def polls_s(self) -> float | None:
        """Seconds between two looks at capacity; None: it gets every change."""

    def over(self, route: EndpointRoute) -> Self:
        """Return a router that goes on from here with another route of the same units."""

    def decided(
        self, at_s: float, demand_per_s: float, available: AvailableUnits
    ) -> RouteDecision:
        """Decide at a time, never before that of the last decision."""


@dataclass(slots=True, kw_only=True)
class RegimeRouter:
    """The cheapest while it can be had, else all that can be."""

    route: EndpointRoute
    method: RouteMethod = RouteMethod.CARRIED
    settings: RegimeSettings = field(default_factory=RegimeSettings)
    polls_s: float | None = None  # `POLLED_S`: as the authors run it; `OFTEN_S`: as they write
    state: RegimeState = field(default_factory=RegimeState)
    _known: list[tuple[float, float, RouteTraffic]] = field(default_factory=list, init=False)

    def over(self, route: EndpointRoute) -> Self:
        """See `Router`."""
        return replace(self, route=route)

    def decided(
        self, at_s: float, demand_per_s: float, available: AvailableUnits
    ) -> RouteDecision:
        """See `Router`."""
        route = replace(self.route, demand_per_s=demand_per_s)
        there, cheapest = all_counts(route, available), self._cheapest(route)
        observation = CapacityObservation(at_s=at_s, wanted=cheapest.numbers, available=there)
        self.state = stepped(self.state, observation, self.settings)
        traffic = cheapest
        if self.state.regime is Regime.CAPACITY:
            traffic = spread_traffic(route, self.method, there)
        return RouteDecision(
            traffic=replace(traffic, why=self.state.why),
            cheapest=cheapest.numbers,
            state=self.state,
            again_s=self.state.look_at_s(self.settings),
        )

    def _cheapest(self, route: EndpointRoute) -> RouteTraffic:
        """Return cost mode; what is cheapest for a demand is so for all up to what it can take."""
        if self.method is not RouteMethod.CARRIED:
            return cheapest_traffic(route, self.method)
        demand = route.demand_per_s
        for least, most, traffic in self._known:
            if least <= demand <= most:
                return traffic
        traffic = cheapest_traffic(route, self.method)
        supply = supply_per_s(route.units, traffic.numbers)
        self._known.append((demand, max(demand, supply), traffic))  # less: no unit is quick enough
        return traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class EvenRouter:
    """Equal parts to all units, whatever there is: round robin."""

    route: EndpointRoute
    polls_s: float | None = None

    def over(self, route: EndpointRoute) -> Self:
        """See `Router`."""
        return replace(self, route=route)

    def decided(
        self, at_s: float, demand_per_s: float, available: AvailableUnits
    ) -> RouteDecision:
        """See `Router`."""
        route = replace(self.route, demand_per_s=demand_per_s)
        weights = {unit.name: 1 / len(route.quick) for unit in route.quick}
        numbers = counts_for(route, weights, adjusted_per_s(route.units))
        traffic = RouteTraffic(regime=Regime.CAPACITY, numbers=numbers, weights=weights)
        return RouteDecision(traffic=traffic)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticRouter:
    """The cheapest units for the demand, and none in their place when they are gone."""

    route: EndpointRoute
    polls_s: float | None = None

    def over(self, route: EndpointRoute) -> Self:
        """See `Router`."""
        return replace(self, route=route)

    def decided(
        self, at_s: float, demand_per_s: float, available: AvailableUnits
    ) -> RouteDecision:
        """See `Router`."""
        route = replace(self.route, demand_per_s=demand_per_s)
        return RouteDecision(traffic=cheapest_traffic(route, RouteMethod.CARRIED))
