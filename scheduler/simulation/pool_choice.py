"""A choice among pools as a value, and the pools that a question is about, with cost and rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import mean

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.profile import BoolArray, FloatArray, IntArray
from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES
from circinus.scheduler.pool.kairos_bound import kairos_bounds, kairos_figures
from circinus.scheduler.pool.search import MOST_OF_TYPE, Pool, PoolSpace
from circinus.scheduler.pool.throughput_bounds import throughput_bounds
from circinus.scheduler.pool.worthwhile import dearness, worthwhile
from circinus.scheduler.simulation.draws import (
    IN_TIME,
    LoadDraws,
    OracleRates,
    PoolRates,
    SimulatedRates,
    draw,
)
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
    RIBBON = "ribbon"  # as published: Bayesian optimisation proposes, the dispatcher simulated
    ORACLE = "oracle"  # ORCL: the best of all pools for a dispatcher that knows all requests

    @property
    def published(self) -> bool:
        """Return whether pools are compared by equation 15."""
        return self in (ChoiceMethod.KAIROS, ChoiceMethod.KAIROS_PLUS)

    @property
    def tries(self) -> bool:
        """Return whether pools are simulated."""
        return self not in (ChoiceMethod.KAIROS, ChoiceMethod.BOUND)

    @property
    def has_base(self) -> bool:
        """Return whether the first type is the base type, whatever it costs."""
        return self.published or self is ChoiceMethod.ORACLE


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
        luck = self.sampled and self.method is ChoiceMethod.ORACLE
        checks.require(not luck, "sampled", "must be false with the method oracle", self.sampled)

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
    chosen: PoolOffer | None  # None: no pool will do, for the `reason`
    looked_at: int  # pools whose bound was worked out
    tried: int  # of them simulated
    sure: str  # how sure it is, in words
    reason: str  # why this pool, in words
    front: tuple[PoolOffer, ...]  # what more or less money buys, rising
    left_out: tuple[str, ...] = ()  # types not looked at, and why, in words


MOST_COUNTS = 400_000
"""Pools of a space; of more types that many counts allow, the least dear are looked at."""

_OFFERS = 8  # budgets of a front
_ALMOST_FREE = 1e-6  # USD per hour
_COARSE = 0.01  # tolerance of its rates


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMarket:
    """The pools of the types that are worth it, and what they are measured on."""

    question: PoolQuestion  # of those types
    space: PoolSpace
    draws: LoadDraws
    left_out: tuple[str, ...]

    @classmethod
    def of(cls, question: PoolQuestion, budget: float) -> PoolMarket:
        """Return the pools that a budget pays."""
        if budget < min(question.prices):  # refused there, of all types
            PoolSpace.within_budget(question.table.kinds, question.prices, budget, 1)
        draws = question.draws(0)
        table, prices, qos_s = question.table, question.costs, question.qos_s
        # where there are few of a free type, others serve what these cannot
        compared = np.maximum(prices, _ALMOST_FREE) if question.counts else prices
        dear = dearness(draws.share, table.mean_s, compared, qos_s)
        paid = np.divide(budget, prices, out=np.full(len(prices), np.inf), where=prices > 0)
        choices = 1 + np.minimum(np.floor(paid + 1e-9), question.limits)
        base = 0 if question.method.has_base else None
        taken = worthwhile(dear, choices, MOST_COUNTS, base)
        if len(taken) < len(prices):
            question = question.of_types(taken)
            draws = question.draws(0)
        out = [k for k in range(len(prices)) if k not in taken]
        space = PoolSpace.within_budget(
            question.table.kinds, question.prices, budget, question.limits
        )
        left_out = tuple(
            f"{table.kinds[k]}: {_left_out(dear[k], paid=choices[k] > 1)}" for k in out
        )
        return cls(question=question, space=space, draws=draws, left_out=left_out)

    @property
    def policy(self) -> CompiledPolicy:
        """The dispatch policy in use."""
        return dispatch_policy(self.question.dispatch)

    def rates(self, draws: LoadDraws, tolerance: float = 0.002) -> PoolRates:
        """Return what measures pools on some draws, to a relative tolerance."""
        if self.question.method is ChoiceMethod.ORACLE:
            return OracleRates(draws=draws)
        return SimulatedRates(policy=self.policy, draws=draws, tolerance=tolerance)

    @property
    def every(self) -> tuple[LoadDraws, ...]:
        """All draws, those that are chosen on first."""
        return (self.draws, *map(self.question.draws, range(1, 1 + self.question.checks)))

    def bounds(self, of: BoolArray) -> FloatArray:  # (P,)
        """Return the bounds of some pools on their rates; 0 of the others."""
        bounds = np.zeros(len(self.space.pools))
        bounds[of] = self._bounds(self.space.pools[of])
        return bounds

    def _bounds(self, pools: IntArray) -> FloatArray:
        share, mean_s, qos_s = self.draws.share, self.draws.table.mean_s, self.question.qos_s
        if self.question.method.published:
            return kairos_bounds(kairos_figures(share, mean_s, qos_s), pools)
        return throughput_bounds(share, mean_s, pools, qos_s, in_time=IN_TIME)

    def in_time(self, pool: Pool, rate_rps: float) -> bool:
        """Return whether 99 % are in time at a rate, on each of the draws."""
        return all(self.rates(draws).in_time(pool, rate_rps) >= IN_TIME for draws in self.every)

    def served(self, pool: Pool) -> tuple[PoolOffer, str]:
        """Return a pool with its rate on draws that it was not chosen on, and how sure that is."""
        if not self.question.method.tries:
            sure = "not simulated; no dispatcher exceeds the bound, and most stay 5 to 15 % below"
            if self.question.method.published:
                sure = "not simulated; dispatchers stay below equation 15 on most pools, not all"
            return self._offer(pool, None), sure
        rates = [self.rates(draws).rate(pool) for draws in self.every[1:]]
        text = f"{len(rates)} draws of {self.question.requests} requests that it was not chosen on"
        if self.question.method is ChoiceMethod.ORACLE:
            text += ", for who knows them all: a reference, no dispatcher reaches it"
        return (
            self._offer(pool, mean(rates)),
            f"{min(rates):.4g} to {max(rates):.4g}/s on {text}",
        )

    def front(self, budget: float, chosen: PoolOffer) -> tuple[PoolOffer, ...]:
        """Return what parts of a budget buy by their bounds, those that nothing else beats."""
        offers = {chosen.pool: chosen}
        rates = self.rates(self.draws, _COARSE)
        for part in range(1, 1 + _OFFERS):
            bounds = self.bounds(self.space.full(budget * part / _OFFERS))
            pool = self.space.at(int(bounds.argmax()))
            if bounds.max() > 0 and pool not in offers:
                tries = self.question.method.tries
                offers[pool] = self._offer(pool, rates.rate(pool) if tries else None)
        return tuple(_undominated(offers.values()))

    def _offer(self, pool: Pool, rate_rps: float | None) -> PoolOffer:
        (bound,) = self._bounds(np.array([pool])).tolist()
        cost = self.space.cost(pool)
        return PoolOffer(pool=pool, price_usd_per_hour=cost, rate_rps=rate_rps, bound_rps=bound)

    def choice(
        self,
        chosen: PoolOffer | None,
        counts: tuple[int, int],  # looked at, tried
        sure: str,
        reason: str,
        front: tuple[PoolOffer, ...],
    ) -> PoolChoice:
        """Return the answer."""
        return PoolChoice(
            types=self.space.types,
            chosen=chosen,
            looked_at=counts[0],
            tried=counts[1],
            sure=sure,
            reason=reason,
            front=front,
            left_out=self.left_out,
        )

    def nothing(self, looked_at: int, tried: int, reason: str) -> PoolChoice:
        """Return the answer that no pool will do."""
        return self.choice(None, (looked_at, tried), "", reason, ())

    def no_rate(self) -> str:
        """Return why no pool serves anything in time."""
        late = self.draws.table.mean_s.min(axis=1) > self.question.qos_s
        share = float(self.draws.share[late].sum())
        if share > 1 - IN_TIME:
            return (
                f"no pool has 99 % in time: {share:.1%} of the requests take longer than "
                f"{self.question.qos_s * 1e3:g} ms on every type"
            )
        return "no pool that can be paid has 99 % in time at any rate"


def _undominated(offers: Iterable[PoolOffer]) -> Iterator[PoolOffer]:
    """Yield those that serve more than every cheaper one, by price."""
    most = 0.0
    for offer in sorted(offers, key=lambda o: (o.price_usd_per_hour, -_rate(o))):
        if _rate(offer) > most:
            most = _rate(offer)
            yield offer


def _rate(offer: PoolOffer) -> float:
    return offer.bound_rps if offer.rate_rps is None else offer.rate_rps


def _left_out(dear: float, *, paid: bool) -> str:
    if not paid:
        return "one costs more than there is"
    if dear == np.inf:
        return "late with every size, or paid where a free type serves as well"
    return f"more types than can be looked at together, and {dear:.2g} times as dear as the best"
