"""Limits of endpoints as capacity that live queries share, beside machines.

How many requests and tokens an endpoint lets through in a minute is the same for all that is
served: a plan that calls asks for a part of it, as it asks for shares of machines. For the
scheduler a limit is a tier of one machine (`scheduler.problem`). Where requests come at a rate,
all together use a part of it only, as one plan does (`planner.deployment.prediction`): what is
used wholly is waited for without end. Batch work waits anyway, and may use all.

The one rule: that is between this module and the scheduler; what is stored, shown and run has
slices of machines alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from circinus.pipelines import checks
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.plan import DemandItem, Plan
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.deployment.prediction import HIGHEST_UTILISATION
from circinus.scheduler.problem import SHARE, Assignment, Problem, Schedule, Slice

_SECONDS_PER_MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointLimit:
    """What an endpoint lets through in a minute, of one kind."""

    tier: str  # that it is for the scheduler
    endpoint: str  # name
    kind: str  # `requests` or `tokens`
    per_minute: int  # the most, `>= 1`

    @property
    def words(self) -> str:
        """The limit as part of a sentence."""
        return f"{self.per_minute} {self.kind} per minute of endpoint {self.endpoint}"

    def used_per_minute(self, one: Usage, requests_per_s: float) -> float:
        """Return what requests use of it that come at a rate, each so much on the mean."""
        each = one.calls if self.kind == "requests" else one.tokens
        return each * requests_per_s * _SECONDS_PER_MINUTE


def endpoint_limits(infrastructure: Infrastructure) -> tuple[EndpointLimit, ...]:
    """Return the limits in requests and tokens of all endpoints, in their order."""
    taken = {tier.name for tier in infrastructure.tiers}
    limits: list[EndpointLimit] = []
    for endpoint in infrastructure.endpoints:
        told = {
            "requests": endpoint.limits.requests_per_minute,
            "tokens": endpoint.limits.tokens_per_minute,
        }
        for kind, most in told.items():
            if most is not None:
                # Not called as the endpoint is: that may be as long as a name can be.
                name = f"call-limit-{len(limits)}"
                while name in taken:
                    name += "-"
                limits.append(
                    EndpointLimit(tier=name, endpoint=endpoint.name, kind=kind, per_minute=most)
                )
    return tuple(limits)


def shared_tiers(infrastructure: Infrastructure) -> tuple[Tier, ...]:
    """Return all that queries share: the tiers, and a tier of one machine for every limit."""
    limits = (Tier(name=limit.tier) for limit in endpoint_limits(infrastructure))
    return (*infrastructure.tiers, *limits)


def limits_in_words(infrastructure: Infrastructure) -> dict[str, str]:
    """Return what each tier stands for that is a limit, see `Problem.limits`."""
    return {limit.tier: limit.words for limit in endpoint_limits(infrastructure)}


def require_tiers(plan: Plan, infrastructure: Infrastructure) -> None:
    """Raise InvalidInput unless a stored plan's tiers are there, and remote as they were."""
    known = infrastructure.present(plan.deployment.tiers)
    for tier in plan.deployment.tiers:
        names = ", ".join(each.name for each in infrastructure.tiers)
        rule = f"must name tiers of the infrastructure ({names}); replan the query"
        checks.require(tier in known, f"plan {plan.id}.placement", rule, tier)
        was = "remote" if tier in plan.deployment.remote else "a tier with machines"
        rule = f"must be {was}, as when it was planned; replan the query"
        alike = known[tier].remote == (tier in plan.deployment.remote)
        checks.require(alike, f"plan {plan.id}.placement", rule, tier)


def demand_on_limits(
    plan: Plan, infrastructure: Infrastructure, slo: Slo
) -> tuple[DemandItem, ...]:
    """Return which part of each limit a plan needs, above 1 where it needs more than there is.

    One whose requests come one after the other needs none: nobody knows how soon they come.
    InvalidInput if it calls an endpoint that is not there.
    """
    if plan.calls is None:
        return ()
    names = [each.name for each in infrastructure.endpoints]
    for name in plan.calls.per_request:
        checks.among(f"plan {plan.id}.calls", name, names)
    rate = plan.requests_per_s or 0.0
    most = HIGHEST_UTILISATION if slo.throughput_per_s is None else 1.0
    parts = {
        limit.tier: limit.used_per_minute(one, rate) / (most * limit.per_minute)
        for limit in endpoint_limits(infrastructure)
        if (one := plan.calls.per_request.get(limit.endpoint)) is not None
    }
    return tuple(
        DemandItem(tier, min(part, SHARE.most))
        for tier, part in parts.items()
        if part >= SHARE.least
    )


def with_limits(
    running: Mapping[str, Assignment], problem: Problem
) -> Iterator[tuple[str, Assignment]]:
    """Yield what runs by query, with the parts of limits that its plans need now."""
    plans = {c.query_id: {p.plan_id: p for p in c.plans} for c in problem.candidates}
    for query_id, at in running.items():
        plan = plans.get(query_id, {}).get(at.plan_id)
        parts = () if plan is None else plan.demand
        more = [Slice(i.tier, 0, i.share) for i in parts if i.tier in problem.limits]
        yield query_id, replace(at, machines=(*at.machines, *more)) if more else at


def on_machines(schedule: Schedule, limits: Mapping[str, str]) -> Schedule:
    """Return a schedule with the slices of machines alone; its utilisation has limits, too."""
    if not limits:
        return schedule
    return replace(
        schedule,
        assignments=tuple(
            replace(a, machines=tuple(s for s in a.machines if s.tier not in limits))
            for a in schedule.assignments
        ),
    )
