"""A choice among pools as a value: what was asked, what was chosen, how sure that is and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES
from circinus.scheduler.pool.pools import MOST_OF_TYPE, Pool
from circinus.scheduler.simulation.draws import LoadDraws, draw
from circinus.scheduler.simulation.loads import Load, load_of
from circinus.scheduler.simulation.measurements import LatencyTable

SEED = 9100
"""Added to the seed of a question: its draws are none that a study looks at."""

SMALLEST_RUN = 100


class ChoiceMethod(StrEnum):
    """How a pool is chosen."""

    SIMULATED = "simulated"  # in the order of the LP bound, the dispatcher simulated
    KAIROS = "kairos"  # as published, without trying any: equation 15 and its two rules
    KAIROS_PLUS = "kairos_plus"  # as published: in the order of equation 15, simulated
    BOUND = "bound"  # the LP bound alone

    @property
    def published(self) -> bool:
        """Return whether pools are compared by equation 15."""
        return self in (ChoiceMethod.KAIROS, ChoiceMethod.KAIROS_PLUS)

    @property
    def tries(self) -> bool:
        """Return whether pools are simulated."""
        return self in (ChoiceMethod.SIMULATED, ChoiceMethod.KAIROS_PLUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolQuestion:
    """What serves which requests, how fast, for how much."""

    table: LatencyTable  # seconds of each size on each type; of equation 15 the first is the base
    prices: tuple[float, ...]  # USD per hour of an instance of each type, `>= 0`
    qos_s: float  # requests are due within, `> 0`
    dispatch: str  # name of the policy in use, see `scheduler.dispatch.policies`
    load: Load = field(default_factory=load_of)  # sizes and arrivals
    method: ChoiceMethod = ChoiceMethod.SIMULATED
    sampled: bool = False  # each run takes its own luck; False: the mean
    requests: int = 10_000  # of a simulated run, `>= 100`
    seed: int = 0  # of all draws, `>= 0`
    checks: int = 2  # further draws that the choice is looked at on, `>= 1`
    most: int = MOST_OF_TYPE  # instances of a type, `>= 1`
    counts: tuple[int, ...] = ()  # the most of each type, `>= 0`; empty: `most` of each

    def __post_init__(self) -> None:
        kinds = len(self.table.kinds)
        checks.require(len(self.prices) == kinds, "prices", f"must be {kinds}", self.prices)
        for kind, price in zip(self.table.kinds, self.prices, strict=True):
            checks.non_negative(f"price of {kind}", price)
        checks.positive("qos_s", self.qos_s)
        checks.among("dispatch", self.dispatch, DISPATCH_POLICIES)
        checks.at_least("requests", self.requests, SMALLEST_RUN)
        checks.at_least("seed", self.seed, 0)
        checks.at_least("checks", self.checks, 1)
        checks.at_least("most", self.most, 1)
        rule = f"must be {kinds}, or none"
        checks.require(len(self.counts) in (0, kinds), "counts", rule, self.counts)
        for count in self.counts:
            checks.at_least("counts", count, 0)

    @property
    def limits(self) -> tuple[int, ...]:  # (K,)
        """The most instances of each type."""
        return self.counts or (self.most,) * len(self.table.kinds)

    def of_types(self, places: Sequence[int]) -> PoolQuestion:
        """Return the same question of some of its types, by their places."""
        return replace(
            self,
            table=self.table.of_kinds([self.table.kinds[k] for k in places]),
            prices=tuple(self.prices[k] for k in places),
            counts=tuple(self.counts[k] for k in places) if self.counts else (),
        )

    @property
    def costs(self) -> FloatArray:  # (K,)
        """The prices as an array."""
        return np.array(self.prices)

    def draws(self, place: int) -> LoadDraws:
        """Return one of the draws: 0 is chosen on, the following ones are looked at afterwards."""
        seed = SEED + self.seed * (1 + self.checks) + place
        load, sampled = self.load, self.sampled
        return draw(self.table, self.qos_s, load, self.requests, seed, sampled=sampled)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOffer:
    """A pool, what it costs and what it serves."""

    pool: Pool
    price_usd_per_hour: float
    rate_rps: float | None  # with 99 % in time, simulated; None: not tried
    # on the rate: of the linear program, or equation 15, which is none, of the published methods
    bound_rps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChoice:
    """The answer."""

    types: tuple[str, ...]  # of the pools, in their order
    chosen: PoolOffer | None  # None: no pool will do, `reason` says why
    looked_at: int  # pools whose bound was worked out
    tried: int  # of them simulated
    sure: str  # how sure it is, in words
    reason: str  # why this pool, in words
    front: tuple[PoolOffer, ...]  # what more or less money buys, rising
    left_out: tuple[str, ...] = ()  # types not looked at, and why, in words
