"""What a chosen pool is: how many slices of which machine types of a tier serve a query.

The one rule: a tier is named with what is wanted of it, or is left to the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from circinus.pipelines import checks
from circinus.pipelines.model.tiers import Tier
from circinus.pipelines.ranges import Range

Slices: TypeAlias = Mapping[str, Mapping[str, int]]
"""Tier -> machine type -> how many slices of its machines."""
SLICES = Range(0, 1000)
"""Of one machine type in a pool. More would take the scheduler longer than a look may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPool:
    """Which machine types serve a query, in place of its plan's own replicas there."""

    # shared tier with types -> type -> slices, in `SLICES`, at least one of each tier
    slices: Slices = field(default_factory=dict)
    # what the query may cost on its machines, at their types' prices, `>= 0`; infinite: any
    most_usd_per_hour: float = inf

    def __post_init__(self) -> None:
        for tier, counts in self.slices.items():
            for kind, count in counts.items():
                SLICES.check(f"pool.{tier}/{kind}", count)
            rule = "must have at least one slice"
            checks.require(any(counts.values()), f"pool.{tier}", rule, dict(counts))
        usd = self.most_usd_per_hour
        checks.require(usd >= 0, "pool.most_usd_per_hour", "must be >= 0", usd)

    def words(self) -> str:
        """Return it in words: `edge/small=3 edge/large=1`."""
        counts = ((f"{t}/{k}", n) for t, kinds in self.slices.items() for k, n in kinds.items())
        return " ".join(f"{name}={count}" for name, count in counts if count)


NO_POOL = ChosenPool()
"""What a query has whose plan's own replicas serve it."""


def require_pool(pool: ChosenPool, tiers: Iterable[Tier]) -> None:
    """Raise InvalidInput unless a pool names types of shared tiers, at least one tier."""
    by_name = {tier.name: tier for tier in tiers}
    checks.require(bool(pool.slices), "pool", "must name at least one TIER/TYPE", "none")
    for name, counts in pool.slices.items():
        checks.among("pool.tier", name, by_name)
        tier = by_name[name]
        rule = "must be shared: on a dedicated tier every query has machines of its own"
        checks.require(not tier.dedicated, "pool.tier", rule, name)
        checks.require(bool(tier.types), "pool.tier", "must have machine types", name)
        for kind in counts:
            checks.among(f"pool.{name}", kind, [each.name for each in tier.types])
