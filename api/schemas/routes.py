"""A route over deployment units, as it is asked and answered."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from circinus.api.schemas.base import Input, View
from circinus.api.schemas.numbers import WHOLE, bounds
from circinus.api.schemas.route_cluster import RouteKubernetesInput, UnitKubernetesInput
from circinus.pipelines import checks, ranges
from circinus.pipelines.ranges import Range
from circinus.scheduler.routing.regimes import Regime
from circinus.scheduler.routing.units import DeploymentUnit, EndpointRoute, ExecutionMode

_Name = Annotated[str, Field(pattern=rf"^{checks.NAME}$")]
_Text = Annotated[str, Field(min_length=1, max_length=128)]
_Price = Annotated[float, bounds(Range(1e-6, ranges.PRICE_USD_PER_HOUR.most))]
_PerS = Annotated[float, bounds(ranges.RATE_PER_S)]
_Demand = Annotated[float, bounds(Range(0, ranges.RATE_PER_S.most))]
_Seconds = Annotated[float, bounds(ranges.LATENCY_S)]
_Count = Annotated[int, bounds(ranges.MACHINES), WHOLE]


class DeploymentUnitInput(Input):
    """A model on hardware in a framework, of which there may be many."""

    name: _Name
    """Unique in the route."""
    model: _Text
    hardware: _Text
    """A machine type or accelerator, for people and node pools."""
    framework: _Text
    execution: Annotated[ExecutionMode, Field(strict=False)] = ExecutionMode.GRAPH
    """How the framework runs it: `eager` or `graph`."""
    price_usd_per_hour: _Price
    """Of one unit."""
    most_per_s: _PerS
    """Requests per second that one takes at its breaking point."""
    latency_s: _Seconds
    """Seconds of a request there."""
    available: _Count | None = None
    """How many can be had; left out: any number."""
    kubernetes: UnitKubernetesInput | None = None
    """Its objects, where it is in a cluster."""


class RouteInput(Input):
    """An endpoint and the deployment units that can serve it."""

    name: _Name
    demand_per_s: _Demand
    """Requests per second that come."""
    latency_s: _Seconds
    """That a request may take at most: slower units are left out."""
    units: Annotated[list[DeploymentUnitInput], Field(min_length=1, max_length=64)]
    kubernetes: RouteKubernetesInput | None = None
    """Where it is in a cluster."""

    @property
    def route(self) -> EndpointRoute:
        """Give it as the scheduler has it; InvalidInput if two units have one name."""
        units = [DeploymentUnit(**unit.model_dump(exclude={"kubernetes"})) for unit in self.units]
        return EndpointRoute(
            name=self.name,
            demand_per_s=self.demand_per_s,
            latency_s=self.latency_s,
            units=tuple(units),
        )


class UnitTrafficView(View):
    """What a deployment unit is to do in one regime."""

    name: str
    units: int = Field(description="How many of it are wanted.")
    weight: float = Field(description="Its part of the requests, its traffic weight, in [0, 1].")
    per_s: float = Field(description="Requests per second that it gets.")
    busy: float | None = Field(
        description="Part of what it can take; above 1: too much comes; none: there are no units."
    )


class RegimeTrafficView(View):
    """Numbers and traffic weights of all units in one regime."""

    regime: Regime
    units: list[UnitTrafficView]
    supply_per_s: float = Field(description="Requests per second that they can take.")
    served_per_s: float = Field(description="Requests per second that they do take.")
    usd_per_hour: float
    usd_per_1000: float | None = Field(description="None: no requests are served.")
    latency_s: float | None = Field(description="Mean of a request; none: nothing is served.")


class RouteWeightsView(View):
    """Both regimes of a route, which of them it is in, and why."""

    name: str
    demand_per_s: float
    regime: Regime
    why: str
    feasible: bool = Field(description="Whether what can be had meets the demand.")
    least_usd_per_hour: float | None = Field(
        description="That no numbers of units are below; none: what can be had is too little."
    )
    method: str
    regimes: list[RegimeTrafficView]
    left_out: list[str] = Field(description="Units that are too slow, in words.")
