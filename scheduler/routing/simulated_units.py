"""Units of one kind in simulation, and the requests at them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from circinus.scheduler.routing.units import DeploymentUnit


@dataclass(slots=True)
class SimulatedUnits:
    """Units of one kind: each serves T L requests at once, each in L, so that it takes T."""

    unit: DeploymentUnit
    running: int = 0
    starting: list[float] = field(default_factory=list)  # when each runs
    wanted: int = 0
    waiting: deque[int] = field(default_factory=deque)
    in_hand: dict[int, int] = field(default_factory=dict)  # request -> which event, as they began

    @property
    def per_unit(self) -> int:
        """Return how many requests one has in hand at the most."""
        return max(1, round(self.unit.most_per_s * self.unit.latency_s))

    @property
    def places(self) -> int:
        """Return how many all that run have in hand at the most."""
        return self.running * self.per_unit

    @property
    def service_s(self) -> float:
        """Return how long a request takes once it has a place."""
        return self.per_unit / self.unit.most_per_s
