"""The pools that a question is about, and what each costs and serves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import mean

import numpy as np

from circinus.pipelines.model.profile import BoolArray, FloatArray, IntArray
from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.pool.kairos_bound import kairos_bounds, kairos_figures
from circinus.scheduler.pool.pools import Pool, PoolSpace
from circinus.scheduler.pool.throughput_bounds import throughput_bounds
from circinus.scheduler.pool.worthwhile import dearness, worthwhile
from circinus.scheduler.simulation.draws import IN_TIME, LoadDraws
from circinus.scheduler.simulation.pool_choice import PoolChoice, PoolOffer, PoolQuestion
from circinus.scheduler.simulation.pool_search import SimulatedRates

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
        base = 0 if question.method.published else None
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

    def bounds(self, of: BoolArray) -> FloatArray:  # (P,)
        """Return the bounds of some pools on their rates; 0 of the others."""
        found = np.zeros(len(self.space.pools))
        found[of] = self._bounds(self.space.pools[of])
        return found

    def _bounds(self, pools: IntArray) -> FloatArray:
        share, mean_s, qos_s = self.draws.share, self.draws.table.mean_s, self.question.qos_s
        if self.question.method.published:
            return kairos_bounds(kairos_figures(share, mean_s, qos_s), pools)
        return throughput_bounds(share, mean_s, pools, qos_s, in_time=IN_TIME)

    def in_time(self, pool: Pool, rate_rps: float) -> bool:
        """Return whether 99 % are in time at a rate, on each of the draws."""
        every = (self.draws, *map(self.question.draws, range(1, 1 + self.question.checks)))
        return all(
            SimulatedRates(policy=self.policy, draws=draws).in_time(pool, rate_rps) >= IN_TIME
            for draws in every
        )

    def served(self, pool: Pool) -> tuple[PoolOffer, str]:
        """Return a pool with its rate on draws that it was not chosen on, and how sure that is."""
        if not self.question.method.tries:
            sure = "not simulated; no dispatcher exceeds the bound, and most stay 5 to 15 % below"
            if self.question.method.published:
                sure = "not simulated; dispatchers stay below equation 15 on most pools, not all"
            return self._offer(pool, None), sure
        draws = map(self.question.draws, range(1, 1 + self.question.checks))
        rates = [SimulatedRates(policy=self.policy, draws=each).rate(pool) for each in draws]
        told = f"{len(rates)} draws of {self.question.requests} requests that it was not chosen on"
        return (
            self._offer(pool, mean(rates)),
            f"{min(rates):.4g} to {max(rates):.4g}/s on {told}",
        )

    def front(self, budget: float, chosen: PoolOffer) -> tuple[PoolOffer, ...]:
        """Return what parts of a budget buy by their bounds, those that nothing else beats."""
        found = {chosen.pool: chosen}
        rates = SimulatedRates(policy=self.policy, draws=self.draws, tolerance=_COARSE)
        for part in range(1, 1 + _OFFERS):
            bounds = self.bounds(self.space.full(budget * part / _OFFERS))
            pool = pool_of(self.space.pools[bounds.argmax()])
            if bounds.max() > 0 and pool not in found:
                tries = self.question.method.tries
                found[pool] = self._offer(pool, rates.rate(pool) if tries else None)
        return tuple(_undominated(found.values()))

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
        """Say why no pool serves anything in time."""
        late = self.draws.table.mean_s.min(axis=1) > self.question.qos_s
        share = float(self.draws.share[late].sum())
        if share > 1 - IN_TIME:
            return (
                f"no pool has 99 % in time: {share:.1%} of the requests take longer than "
                f"{self.question.qos_s * 1e3:g} ms on every type"
            )
        return "no pool that can be paid has 99 % in time at any rate"


def pool_of(counts: IntArray) -> Pool:
    """Return the pool of an array of counts."""
    return tuple(counts.tolist())


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
