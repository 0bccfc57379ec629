"""What planning may still spend: operator seconds, dollars, wall-clock time, configurations."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log

from pipelines.infrastructure import Infrastructure, Tier
from pipelines.query import PlanningLimits

_SECONDS_PER_HOUR = 3600.0


def reference_tier(infrastructure: Infrastructure) -> Tier:
    """Give the tier that profiling is billed as: operator seconds are seconds on its machines.

    It is the one whose speed factor is nearest 1 (by ratio), of equally near ones the dearest.
    """
    return min(
        infrastructure.tiers,
        key=lambda tier: (abs(log(tier.speed_factor)), -tier.price_usd_per_hour),
    )


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one query on one infrastructure."""

    limits: PlanningLimits
    price_usd_per_hour: float

    @classmethod
    def of(cls, limits: PlanningLimits, infrastructure: Infrastructure) -> Budget:
        """Give the budget, profiling billed at the reference tier's price."""
        return cls(limits, reference_tier(infrastructure).price_usd_per_hour)

    @property
    def profiling_s(self) -> float:
        """Operator seconds that both limits on profiling allow."""
        usd = self.limits.profiling_usd
        if usd is None or self.price_usd_per_hour == 0:
            return self.limits.profiling_s
        return min(self.limits.profiling_s, usd / self.price_usd_per_hour * _SECONDS_PER_HOUR)

    def time_left_s(self, elapsed_s: float) -> float | None:
        """Give wall-clock seconds left, `>= 0`; None when they are not limited."""
        response = self.limits.response_s
        return None if response is None else max(response - elapsed_s, 0.0)

    def reached(self, *, spent_s: float, elapsed_s: float, configurations: int) -> str | None:
        """Give which limit is reached, in words; None: none."""
        if spent_s >= self.profiling_s:
            by_price = self.profiling_s < self.limits.profiling_s
            name = "profiling_usd" if by_price else "profiling_s"
            return f"limit {name} reached"
        if elapsed_s >= (self.limits.response_s or inf):
            return "limit response_s reached"
        if configurations >= (self.limits.configurations or inf):
            return "limit configurations reached"
        return None
