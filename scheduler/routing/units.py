"""Deployment units, and the route whose traffic they share (adaptive orchestration, 3.1).

A unit stands for many alike ones: a model on a kind of hardware in a framework, one device each.

| symbol | field | meaning |
| --- | --- | --- |
| DU^c | `price_usd_per_hour` | what one costs |
| T^max | `most_per_s` | requests per second at its breaking point |
| L | `latency_s` | seconds of a request there |
| DU^p | `available` | how many can be had |
| T^d | `EndpointRoute.demand_per_s` | requests per second that come |

The paper's "cost of inference per second" is dollars an hour for a request each second. For two of
its five units table 1 prints another figure than price over throughput: inf2 0.00733 (0.00722) and
trn1 0.01023 (0.01034). Worked out here is always price over throughput, `usd_per_1000`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from circinus.pipelines import checks

_HOUR_S, _THOUSAND = 3600.0, 1000.0


# deviates: price-over-throughput
def usd_per_1000(usd_per_hour: float, per_s: float) -> float:
    """Return the US dollars of a thousand requests at so many a second, `> 0`."""
    return usd_per_hour / per_s / _HOUR_S * _THOUSAND


class ExecutionMode(StrEnum):
    """How a framework runs a model (4.2)."""

    EAGER = "eager"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentUnit:
    """A model on hardware in a framework."""

    name: str  # unique in its route
    model: str
    hardware: str
    framework: str
    price_usd_per_hour: float  # `> 0`: weights are by its inverse
    most_per_s: float  # `> 0`
    latency_s: float  # `> 0`
    execution: ExecutionMode = ExecutionMode.GRAPH
    available: int | None = None  # `>= 0`; None: any number

    def __post_init__(self) -> None:
        checks.name("unit.name", self.name)
        where = f"unit {self.name}"
        checks.positive(f"{where}.price_usd_per_hour", self.price_usd_per_hour)
        checks.positive(f"{where}.most_per_s", self.most_per_s)
        checks.positive(f"{where}.latency_s", self.latency_s)
        checks.at_least(f"{where}.available", self.available, 0)

    @property
    def usd_per_1000(self) -> float:
        """US dollars of a thousand requests, when as many come as it can take."""
        return usd_per_1000(self.price_usd_per_hour, self.most_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRoute:
    """An endpoint, what comes to it, and the units that can serve it."""

    name: str
    demand_per_s: float  # `>= 0`
    latency_s: float  # that a request may take at most, `> 0`
    units: Sequence[DeploymentUnit] = field(default_factory=tuple)  # at least one
    left_out: frozenset[str] = frozenset()  # units that must not serve, however quick

    def __post_init__(self) -> None:
        checks.name("route.name", self.name)
        checks.non_negative("route.demand_per_s", self.demand_per_s)
        checks.positive("route.latency_s", self.latency_s)
        checks.require(len(self.units) > 0, "route.units", "must have at least one", 0)
        checks.unique("name of a unit", [unit.name for unit in self.units])

    @property
    def quick(self) -> tuple[DeploymentUnit, ...]:
        """Return the units that are within the latency, and not left out."""
        return tuple(unit for unit in self.units if self.allows(unit))

    # deviates: slow-units-left-out
    def allows(self, unit: DeploymentUnit) -> bool:
        """Whether a unit may serve."""
        return unit.latency_s <= self.latency_s and unit.name not in self.left_out
