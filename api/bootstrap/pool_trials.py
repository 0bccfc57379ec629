"""Pools of a deployed query, tried live: each serves for a while, as Ribbon proposes them.

A trial is the paper's (Li et al., SC 2021, section 4): the pool is deployed, requests come at the
rate, and the share that is in time is its value. `scheduler.simulation.ribbon_choice` simulates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import nan, prod

import numpy as np

from circinus.api.client import AsyncClient
from circinus.api.phases import QueryPhase
from circinus.api.schemas.pools import PoolView, QueryPoolView
from circinus.deploy.routes.ramping import share_in_time
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import Unavailable
from circinus.scheduler.pool.ribbon import Ribbon
from circinus.scheduler.pool.search import (
    MOST_POOLS,
    CheapestInTime,
    Pool,
    PoolSpace,
    PoolTrial,
    best,
)

_STREAM = 6  # of a seed
_LOOK_S, _SERVES_S = 0.2, 120.0  # between two looks at a pool, and until it has to serve
_EXAMPLES = 200
_PRUNES_BELOW = 0.01  # as published


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTerms:
    """How pools are tried."""

    rate_per_s: float  # of requests, `> 0`
    lasts_s: float = 20.0  # a trial, `> 0`
    most: int = 20  # trials, `>= 1`
    in_time: float = 0.99  # target share, in (0, 1]
    seed: int = 0  # of proposals, and of when requests are sent

    def __post_init__(self) -> None:
        checks.positive("rate", self.rate_per_s)
        checks.positive("lasts", self.lasts_s)
        checks.at_least("trials", self.most, 1)
        checks.share("in_time", self.in_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedPools:
    """The trials of a query's pools, in order."""

    space: PoolSpace
    trials: tuple[PoolTrial, ...]
    chosen: PoolTrial | None  # the cheapest in time; None: none was


def space_of(view: QueryPoolView) -> PoolSpace:
    """Return the pools that a query may have: as many slices of each type as find room.

    Where that is more pools than a space may have, it is fewer of the types with the most room.
    InvalidInput if there is no room, or no money, for any.
    """
    prices = {each.name: each.price_usd_per_hour for each in view.choice.prices}
    room = {each.type: each.room for each in view.types if each.type in prices}
    checks.require(any(room.values()), "query", "must have room for a pool", view.choice.reason)
    while prod(count + 1 for count in room.values()) > MOST_POOLS:
        room[max(room, key=lambda kind: room[kind])] -= 1
    return PoolSpace(
        types=tuple(room), prices=tuple(prices[kind] for kind in room), most=tuple(room.values())
    )


async def tried_live(
    client: AsyncClient,
    view: QueryPoolView,
    terms: TrialTerms,
    clock: Clock,
    observer: Callable[[PoolTrial], None] = lambda trial: None,
) -> TriedPools:
    """Try pools of a query until all others are dearer or pruned; the best of them then serves.

    Where none is in time, or a trial fails, the plan's own replicas serve again. Errors as the
    service has.
    """
    space = space_of(view)
    goal = CheapestInTime(space=space, in_time=terms.in_time, prunes_below=_PRUNES_BELOW)
    strategy, trials = Ribbon(seed=terms.seed), list[PoolTrial]()
    live = _LivePools(client=client, view=view, space=space, terms=terms, clock=clock)
    chosen: PoolTrial | None = None
    try:
        while len(trials) < terms.most:
            pool = strategy.propose(goal, trials)
            if pool is None:
                break
            trials.append(await live.measured(pool, len(trials)))
            observer(trials[-1])
        chosen = best(goal, trials)
    finally:
        if chosen is None:
            await client.drop_pool(view.query_id)
        else:
            await live.serve(chosen.pool)
    return TriedPools(space=space, trials=tuple(trials), chosen=chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LivePools:
    client: AsyncClient
    view: QueryPoolView
    space: PoolSpace
    terms: TrialTerms
    clock: Clock

    async def measured(self, pool: Pool, number: int) -> PoolTrial:
        """Let a pool serve, and send requests to it."""
        await self.serve(pool)
        generator = np.random.default_rng([self.terms.seed, _STREAM, number])
        share = await share_in_time(
            self._request,
            self.terms.rate_per_s,
            self.terms.lasts_s,
            self.view.qos_ms / 1e3,
            self.clock,
            generator,
        )
        return PoolTrial(pool, share)

    async def serve(self, pool: Pool) -> None:
        """Wait until a query is served by a pool; Unavailable if it is not in two minutes."""
        query_id, kinds = self.view.query_id, self.space.types
        wanted = {kind: count for kind, count in zip(kinds, pool, strict=True) if count}
        state: PoolView = await self.client.set_pool(query_id, {self.view.tier: wanted})
        ends = self.clock.now() + _SERVES_S
        while not (state.state == "placed" and await self._runs(wanted)):
            if self.clock.now() > ends:
                why = f"pool {wanted} does not serve: {state.missing or state.state}"
                raise Unavailable(why, retry_after_s=_SERVES_S)
            await asyncio.sleep(_LOOK_S)
            state = await self.client.pool(query_id)

    async def _runs(self, wanted: dict[str, int]) -> bool:
        view = await self.client.deployment(self.view.query_id)
        counts = dict.fromkeys(self.space.types, 0)
        for instance in view.instances:
            if instance.tier == self.view.tier and instance.machine_type in counts:
                counts[instance.machine_type] += 1
        return (
            view.phase == QueryPhase.SERVING and {k: n for k, n in counts.items() if n} == wanted
        )

    async def _request(self, number: int) -> float:
        """Send the number-th request: an example of the pipeline."""
        example = {"index": number % _EXAMPLES, "count": _EXAMPLES}
        await self.client.request(self.view.query_id, {"example": example})
        return nan
