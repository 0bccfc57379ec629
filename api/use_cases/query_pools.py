"""Which mix of machine types would serve a query: its question, from its observed workload.

Sizes and rate are those of its latest requests, seconds those learnt of them on each type; where a
type served none, those of the nearest known type at its speed. Slices count if they fit beside the
other queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf, sqrt

import numpy as np

from circinus.api.phases import QueryPhase
from circinus.api.schemas.pools import (
    LEAST_GAP_S,
    ChoosePoolBody,
    ChooseQueryPoolBody,
    LatencyInput,
    PoolChoiceView,
    PoolView,
    PriceInput,
    QueryPoolView,
    TypeServedView,
)
from circinus.api.store.records import Conflict, StoredQuery
from circinus.api.use_cases.capacity import with_machines
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.scheduling import LiveProblem, LiveQuery
from circinus.api.use_cases.views import pool_view
from circinus.deploy.runtime.learning import ObservedWorkload, TypeSeconds
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.instance_types import known_types
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import IntArray
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import MachineType, Tier
from circinus.scheduler.problem import Assignment
from circinus.scheduler.rolling.pooling import ChosenPool, Slices, pooled, require_pool, room_for
from circinus.scheduler.simulation.measurements import measured

HEADROOM = 1.1
"""Of an observed rate. A monitor detects no smaller growth (`MonitorSettings`)."""
_LEAST_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPoolQuestion:
    """The question for a query, and the context of its answer."""

    query_id: str
    tier: Tier
    share: float  # of a machine, of each slice
    qos_s: float
    rate_per_s: float | None  # None: for a budget
    sample: int
    body: ChoosePoolBody | None  # None: there is no room, or no money, for any
    types: tuple[TypeServedView, ...]
    why_not: str = ""  # if there is no body

    def answered(self, choice: PoolChoiceView | None) -> QueryPoolView:
        """Return the answer; None where there is no body."""
        names = [each.type for each in self.types]
        nothing = PoolChoiceView(
            types=names,
            looked_at=0,
            tried=0,
            sure="",
            reason=self.why_not,
            front=[],
            left_out=[],
            prices=[],
        )
        choice, slices = choice or nothing, None
        if choice.chosen is not None:
            counts = zip(choice.types, choice.chosen.pool, strict=True)
            slices = {self.tier.name: {kind: count for kind, count in counts if count}}
        return QueryPoolView.of(
            self,
            tier=self.tier.name,
            slices=slices,
            seen=self.sample,
            qos_ms=1e3 * self.qos_s,
            choice=choice,
        )


def require_choosable(body: ChoosePoolBody) -> None:
    """Raise InvalidInput for violations that need no simulation."""
    none = body.budget_usd_per_hour is None and body.rate_per_s is None
    checks.require(not none, "budget_usd_per_hour", "must be given, or rate_per_s, or both", None)
    pairs = [(each.type, each.batch) for each in body.latencies]
    checks.unique("latencies", pairs)
    table = measured("latencies", dict.fromkeys(pairs, (1.0, 0.0)))
    types = table.of_kinds(tuple(body.types) or table.kinds).kinds
    known = {*known_types(), *(each.name for each in body.prices)}
    for name in types:
        checks.require(name in known, "prices", "must have every type to choose among", name)
    for name in body.most:
        checks.among("most", name, types)
    if not isinstance(body.mix, str):
        table.rows(np.array(body.mix))
    if not isinstance(body.arrivals, str):
        rule = f"must have one of at least {LEAST_GAP_S:g} s"
        checks.require(max(body.arrivals) >= LEAST_GAP_S, "arrivals", rule, body.arrivals)


def question_of(
    parts: ServiceParts,
    query_id: str,
    terms: ChooseQueryPoolBody,
    workload: ObservedWorkload | None,
) -> QueryPoolQuestion:
    """Return the question of the pool of a served query.

    `workload`: of the plan that serves it; None: unknown.

    NotFound if there is no such query; Conflict if it is not in the schedule; InvalidInput if its
    plan uses no such tier with machine types, or the deadline or the rate of requests is unknown.
    """
    require_served(parts.store.query(query_id))
    live = LiveQuery.of(parts.store, query_id, parts.infrastructure)
    now = LiveProblem.of(parts).plain
    at = now.running.get(query_id)
    if at is None or at.plan_id not in live.plans:
        raise Conflict("query", "must be in the schedule", query_id)
    plan = live.plans[at.plan_id]
    if workload is not None and workload.plan_id != at.plan_id:
        workload = None  # of the plan before
    tier = _tier(now.tiers, plan, terms.tier)
    sample = _RequestSample.of(tier, plan, workload)
    qos_s = _due_s(live.slo, plan, tier, workload) if terms.qos_ms is None else terms.qos_ms / 1e3
    rate = _rate(terms, workload, live.rate_per_s)
    room = room_for(now, query_id, tier.name)
    types = [each for each in tier.types if room[each.name]]
    share = _share(plan, tier)
    prices = [share * each.price_usd_per_hour for each in types]
    most_usd = _left_to_spend(now.tiers, live.slo, plan, tier)
    if terms.budget_usd_per_hour is not None:
        most_usd = min(most_usd, terms.budget_usd_per_hour)
    why_not = _why_not(tier, share, prices, most_usd, qos_s)
    everything = sum(p * room[each.name] for p, each in zip(prices, types, strict=True))
    body = None
    if not why_not:
        body = ChoosePoolBody(
            latencies=list(sample.rows(types)),
            qos_ms=1e3 * qos_s,
            budget_usd_per_hour=min(most_usd, everything),
            rate_per_s=rate,
            most={each.name: room[each.name] for each in types},
            prices=[_price(each, share, parts) for each in types],
            mix=(sample.classes + 1).tolist(),
            dispatch=parts.settings.chosen_method.dispatch,
            method=terms.method,
            sampled=True,
            requests=terms.requests,
            seed=terms.seed,
        )
    return QueryPoolQuestion(
        query_id=query_id,
        tier=tier,
        share=share,
        qos_s=qos_s,
        rate_per_s=rate,
        sample=0 if workload is None else len(workload.classes),
        body=body,
        types=tuple(sample.served(each, room[each.name]) for each in tier.types),
        why_not=why_not,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RequestSample:
    """The recent requests, and their seconds on each type of a tier."""

    classes: IntArray  # (N,), of the sizes of requests
    seconds: Mapping[str, TypeSeconds]
    learnt: frozenset[str]  # types; the others follow from speeds

    @classmethod
    def of(cls, tier: Tier, plan: Plan, workload: ObservedWorkload | None) -> _RequestSample:
        """Return it; of no request at all: one, as the plan predicts it."""
        known: Mapping[str, TypeSeconds] = {}
        classes, sizes = np.zeros(1, dtype=np.int64), 1
        if workload is not None and len(workload.classes):
            known = workload.seconds.get(tier.name, {})
            classes, sizes = workload.classes, len(workload.sizes)
        seconds = {each.name: _seconds(each, tier, plan, known, sizes) for each in tier.types}
        return cls(classes=classes, seconds=seconds, learnt=frozenset(known))

    def rows(self, types: Iterable[MachineType]) -> Iterator[LatencyInput]:
        """Yield the seconds of each class on each type, as rows of a request."""
        for name in (each.name for each in types):
            both = zip(self.seconds[name].mean_s, self.seconds[name].std_s, strict=True)
            for number, (mean_s, std_s) in enumerate(both, start=1):
                mean_ms, std_ms = 1e3 * max(float(mean_s), _LEAST_S), 1e3 * float(std_s)
                yield LatencyInput(type=name, batch=number, mean_ms=mean_ms, std_ms=std_ms)

    def served(self, kind: MachineType, room: int) -> TypeServedView:
        """Return the view of a type's performance."""
        service_s = self.seconds[kind.name].mean_s[self.classes]
        return TypeServedView(
            type=kind.name,
            mean_ms=1e3 * float(service_s.mean()),
            slowest_ms=1e3 * float(service_s.max()),
            known="learnt" if kind.name in self.learnt else "by speed",
            room=room,
        )


def _seconds(
    kind: MachineType, tier: Tier, plan: Plan, known: Mapping[str, TypeSeconds], sizes: int
) -> TypeSeconds:
    """Return what was learnt; else what the type nearest in speed takes, at this one's speed.

    Where none is known, too: what the plan predicts, which is for the slowest type.
    """
    if kind.name in known:
        return known[kind.name]
    speeds = {each.name: each.speed_factor for each in tier.types if each.name in known}
    if speeds:
        nearest = min(speeds, key=lambda name: abs(np.log(speeds[name] / kind.speed_factor)))
        factor, of = speeds[nearest] / kind.speed_factor, known[nearest]
        return TypeSeconds(mean_s=factor * of.mean_s, std_s=factor * of.std_s)
    seconds = plan.tier_service_s.get(tier.name, 0.0) * tier.speed_factor / kind.speed_factor
    return TypeSeconds(mean_s=np.full(sizes, seconds), std_s=np.zeros(sizes))


def _tier(tiers: Sequence[Tier], plan: Plan, name: str | None) -> Tier:
    used = {item.tier for item in plan.demand} - set(plan.deployment.further.values())
    typed = {each.name: each for each in tiers if each.types and each.name in used}
    rule = "must be one with machine types that the query's plan uses, in one slice"
    if name is not None:
        checks.require(name in typed, "tier", f"{rule}: {', '.join(typed) or 'none'}", name)
        return typed[name]
    of = ", ".join(each.name for each in tiers if each.types) or "none"
    checks.require(len(typed) > 0, "tier", f"{rule}; with machine types there are: {of}", None)
    checks.require(len(typed) == 1, "tier", f"must be told, of {', '.join(typed)}", None)
    return next(iter(typed.values()))


def _share(plan: Plan, tier: Tier) -> float:
    """Return the share of a machine that each slice takes: all of a plan on a tier are alike."""
    return next(item.share for item in plan.demand if item.tier == tier.name)


def _due_s(slo: Slo, plan: Plan, tier: Tier, workload: ObservedWorkload | None) -> float:
    deadline_s = plan.deadline_s(slo)
    if deadline_s is None:
        raise InvalidInput.of("qos_ms", "must be given: the query has no deadline", None)
    elsewhere = {} if workload is None else workload.elsewhere_s
    foreseen_s = max(plan.latency_s.value - plan.tier_service_s.get(tier.name, 0.0), 0.0)
    return deadline_s - elsewhere.get(tier.name, foreseen_s)


def _rate(
    terms: ChooseQueryPoolBody, workload: ObservedWorkload | None, planned: float | None
) -> float | None:
    if terms.rate_per_s is not None or terms.budget_usd_per_hour is not None:
        return terms.rate_per_s
    if workload is not None and workload.rate_per_s is not None:
        # with so few requests it may be too low by chance: by a deviation of their count
        return (HEADROOM + 1 / sqrt(len(workload.classes))) * workload.rate_per_s
    rule = "must be given, or budget_usd_per_hour: no requests came yet, nor is the query for any"
    checks.require(planned is not None, "rate_per_s", rule, None)
    return planned


def _left_to_spend(tiers: Sequence[Tier], slo: Slo, plan: Plan, tier: Tier) -> float:
    """Return what the query's objective on cost leaves for a tier; infinite: it has none."""
    if slo.cost_usd_per_hour is None:
        return inf
    price = {each.name: each.price_usd_per_hour for each in tiers}
    others = sum(i.share * price[i.tier] for i in plan.demand if i.tier != tier.name)
    return slo.cost_usd_per_hour - others


def _why_not(
    tier: Tier, share: float, prices: Sequence[float], most_usd: float, qos_s: float
) -> str:
    """Return why no pool can be, in words; empty: one may."""
    if not prices:
        return f"no machine of {tier.name} has room for a slice of {share:g}"
    if qos_s <= 0:
        return f"answers spend {-qos_s:.3g} s beyond their deadline elsewhere than on {tier.name}"
    if min(prices) > most_usd:
        return f"a slice costs {min(prices):g} USD/h at least, and {most_usd:g} may be spent"
    return ""


def _price(kind: MachineType, share: float, parts: ServiceParts) -> PriceInput:
    return PriceInput(
        name=kind.name,
        price_usd_per_hour=share * kind.price_usd_per_hour,
        date=datetime.fromtimestamp(parts.clock.timestamp(), UTC).date().isoformat(),
        provider=parts.infrastructure.name,
        source=f"{share:g} of a machine, as the service states it",
    )


_SERVED = frozenset({QueryPhase.DEPLOYING, QueryPhase.SERVING})


def apply_pool(
    parts: ServiceParts, query_id: str, slices: Slices, *, follows: bool = False, why: str = ""
) -> StoredQuery:
    """Set the pool that serves a query; the schedule follows within a moment.

    `follows`: it is chosen anew when requests change, see `api.control.pool_follower`.

    NotFound if there is no such query; InvalidInput unless the pool names types of shared tiers in
    valid counts; Conflict, with the missing capacity, if the query is not served or the pool does
    not fit beside the others. Nothing was changed then.
    """
    record = parts.store.query(query_id)
    require_pool(ChosenPool(slices=slices), parts.infrastructure.tiers)
    rule = "must be of one tier to follow the requests"
    checks.require(not follows or len(slices) == 1, "pool", rule, ", ".join(slices))
    require_served(record)
    # Counts of 0 have no effect.
    wanted = {t: {kind: n for kind, n in counts.items() if n} for t, counts in slices.items()}
    pool = LiveQuery.of(parts.store, query_id, parts.infrastructure).pool(wanted)
    now = LiveProblem.of(parts).plain
    candidate = next((c for c in now.candidates if c.query_id == query_id), None)
    if candidate is None or query_id not in now.running:
        raise Conflict("query", "must be in the schedule", query_id)
    placement = pooled(now, tuple(now.running.values()), candidate, pool)
    if not isinstance(placement, Assignment):
        raise Conflict("pool", f"must fit: {placement.why}", pool.words())
    at = parts.clock.timestamp()
    return parts.store.set_pool(query_id, wanted, at=at, follows=follows, why=why)


def require_served(record: StoredQuery) -> None:
    """Raise Conflict unless a query is being served."""
    if record.phase not in _SERVED:
        raise Conflict("phase", "must be deploying or serving", record.phase)


def pool_now(parts: ServiceParts, record: StoredQuery) -> PoolView:
    """Return the pool of a query as the schedule in force has it; NotFound if it has none."""
    in_force = parts.store.schedules.read()[1]
    return pool_view(record, in_force, with_machines(parts.infrastructure, in_force.machines))


def drop_pool(parts: ServiceParts, query_id: str) -> StoredQuery:
    """Remove the pool of a query, which its plan's own replicas then serve.

    NotFound if there is no such query.
    """
    parts.store.drop_pool(query_id, at=parts.clock.timestamp(), why="as was asked for")
    return parts.store.query(query_id)
