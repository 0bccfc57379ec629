"""Whether a deployed plan still gives what it was planned for, and what the world is like now.

Circinus 4.3: a monitor compares what requests take, and score where the output is known,
with the plan's estimates; what drifted is planned anew. A drift is reported only where the SLO
is missed: a plan that is merely worse than estimated, yet good enough, is left alone. The present
state follows from the observed requests beside the profile's prediction for the declared
infrastructure. The plan's own estimates do not serve: they may stem from a state that had
drifted before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from sys import float_info

from circinus.pipelines import checks, units
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, divided
from circinus.pipelines.model.latency import Work, busy_seconds, deployment_arrays, request_seconds
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.slo import Slo, SloState
from circinus.pipelines.model.tiers import Tier
from circinus.planner.models.ahead import MOST_EXAMPLES
from circinus.planner.models.estimates import accuracy_estimate, latency_estimate

_ENDLESS = MOST_EXAMPLES  # requests to come: the observed ones are a vanishing part


# deviates: drift-by-objectives
@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSettings:
    """When a plan counts as drifted."""

    # Fewest requests (or examples with known outputs) to judge by, `>= 2`. 20: as many as a plan's
    # latency rests on.
    least: int = 20
    # Of the interval that must miss the SLO entirely, in (0, 1). 99.9 %: it is looked at often.
    confidence: float = 0.999
    # Times the latency SLO that the interval must exceed, `>= 1`. Few requests may lack the fast
    # ones of a plan that nearly misses it.
    margin: float = 1.0
    # Least ratio of observed to expected seconds of a tier, or of a request for what links add to
    # it, that is taken over, `> 1`. 1.2: below, it is noise of a loaded machine.
    noticeable: float = 1.2

    def __post_init__(self) -> None:
        checks.at_least("drift.least", self.least, 2)
        checks.open_probability("drift.confidence", self.confidence)
        checks.at_least("drift.margin", self.margin, 1)
        checks.require(self.noticeable > 1, "drift.noticeable", "must be > 1", self.noticeable)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObservedRequests:
    """Figures of the latest requests to a plan."""

    latency_s: FloatArray  # of each, in the SLO's sense, shape (n,)
    tier_s: Mapping[str, float]  # tier -> mean seconds that a request occupied its instances
    moved_s: float  # mean seconds on the way: all but operators and waiting for an instance's turn
    scores: FloatArray  # of those whose output is known, shape (k,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What a plan no longer gives."""

    latency: bool  # whether the latency SLO is missed
    accuracy: bool  # whether the accuracy SLO is missed
    words: str  # both, with figures


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyParts:
    """Where the mean seconds of a request go as the measurements have it, waits left out."""

    # Tier -> seconds that a request keeps its instances busy with operators.
    tier_s: Mapping[str, float]
    moved_s: float  # seconds between tiers
    called_s: float  # seconds that calling instances takes
    latency_s: float  # of the request in all


def drifted(
    plan: Plan, slo: Slo, observed: ObservedRequests, settings: DriftSettings | None = None
) -> Drift | None:
    """Return what a deployed plan no longer gives of its query's SLO; None: nothing is missed."""
    settings = settings or DriftSettings()
    late = wrong = ""
    if len(observed.latency_s) >= settings.least:
        now = latency_estimate(
            observed.latency_s,
            statistic=slo.latency_statistic,
            population=_ENDLESS,
            confidence=settings.confidence,
        )
        if now.at_most(settings.margin * slo.latency_s) is SloState.VIOLATED:
            late = (
                f"latency is {units.seconds(now.value)}, "
                f"planned were {units.seconds(plan.latency_s.value)}, "
                f"allowed are {units.seconds(slo.latency_s)}"
            )
    if len(observed.scores) >= settings.least:
        now = accuracy_estimate(
            observed.scores, population=_ENDLESS, confidence=settings.confidence
        )
        if now.at_least(slo.accuracy) is SloState.VIOLATED:
            wrong = (
                f"accuracy is {now.value:.4g}, planned was {plan.accuracy.value:.4g}, "
                f"wanted is {slo.accuracy:.4g}"
            )
    words = ", ".join(filter(None, (late, wrong)))
    return Drift(latency=bool(late), accuracy=bool(wrong), words=words) if words else None


def parts_of(
    graph: PipelineGraph, infrastructure: Infrastructure, work: Work, plan: Plan
) -> LatencyParts:
    """Return where the seconds of a plan's requests go on an infrastructure, by its work."""
    free = replace(
        infrastructure,
        links=tuple(
            replace(link, delay_s=0.0, bandwidth_bytes_per_s=float_info.max)
            for link in infrastructure.links
        ),
    )
    uncalled = [
        replace(tier, call_s=0.0, call_s_per_byte=0.0, call_delay_s=0.0) for tier in free.tiers
    ]
    bare = replace(free, tiers=tuple(uncalled))
    own = divided(bare, plan.deployment.further)
    placement, shares = deployment_arrays(graph, own, plan.deployment)
    busy = busy_seconds(graph, own, work, placement, shares)[0].mean(axis=1)  # (O,)
    tier_s = dict.fromkeys(plan.deployment.tiers, 0.0)
    for operator, seconds in zip(graph.operators, busy, strict=True):
        tier_s[plan.deployment.placement[operator.name]] += float(seconds)
    whole, unmoved, operators = (
        float(request_seconds(graph, where, work, plan.deployment).mean())
        for where in (infrastructure, free, bare)
    )
    return LatencyParts(
        tier_s=tier_s, moved_s=whole - unmoved, called_s=unmoved - operators, latency_s=whole
    )


def as_observed(
    infrastructure: Infrastructure,  # as declared
    plan: Plan,  # that answered
    parts: LatencyParts,  # of its requests on that infrastructure
    observed: ObservedRequests,  # its latest requests
    settings: DriftSettings | None = None,  # what is noticeable
) -> Infrastructure:
    """Return the infrastructure that explains a plan's requests; itself: as declared.

    Tiers that took longer are slower by as much; one without machines has no speed. The requests
    do not show which link of the plan became thinner, nor whether in bandwidth or delay:
    all are taken to be, in both.
    """
    settings = settings or DriftSettings()
    slower, thinner = (
        _slower_tiers(parts, observed, settings),
        _thinner_by(parts, observed, settings),
    )
    if thinner <= 1 and not slower:
        return infrastructure

    def slowed(tier: Tier) -> Tier:
        if tier.remote:
            return tier
        by = slower.get(tier.name, 1.0)
        return tier.changed(lambda _, pool: replace(pool, speed_factor=pool.speed_factor / by))

    crossed = _crossed(infrastructure, plan) if thinner > 1 else set()
    return replace(
        infrastructure,
        tiers=tuple(map(slowed, infrastructure.tiers)),
        links=tuple(
            replace(
                link,
                bandwidth_bytes_per_s=link.bandwidth_bytes_per_s / thinner,
                delay_s=link.delay_s * thinner,
            )
            if frozenset(link.between) in crossed
            else link
            for link in infrastructure.links
        ),
    )


def eased(
    now: Infrastructure, before: Infrastructure, settings: DriftSettings | None = None
) -> bool:
    """Return whether a tier or link is noticeably faster than it was.

    Where none is, whatever was too slow before is too slow now: looking for plans again that were
    looked for in vain is of no use.
    """
    ratio = (settings or DriftSettings()).noticeable
    speeds = {tier.name: tier.speed_factor for tier in before.tiers}
    rates = {frozenset(link.between): link.bandwidth_bytes_per_s for link in before.links}
    faster = (tier.speed_factor >= ratio * speeds.get(tier.name, 0.0) for tier in now.tiers)
    wider = (
        link.bandwidth_bytes_per_s >= ratio * rates.get(frozenset(link.between), 0.0)
        for link in now.links
    )
    return any(faster) or any(wider)


def _slower_tiers(
    parts: LatencyParts, observed: ObservedRequests, settings: DriftSettings
) -> dict[str, float]:
    return {
        tier: ratio
        for tier, expected_s in parts.tier_s.items()
        if expected_s > 0
        and (ratio := observed.tier_s.get(tier, 0.0) / expected_s) >= settings.noticeable
    }


def _thinner_by(parts: LatencyParts, observed: ObservedRequests, settings: DriftSettings) -> float:
    more = observed.moved_s - parts.moved_s - parts.called_s
    # Beside the whole request, too: ten times a microsecond is no drift of a link.
    noticed = more >= (settings.noticeable - 1) * parts.latency_s
    if parts.moved_s <= 0 or not noticed:
        return 1.0
    return 1 + more / parts.moved_s


def _crossed(infrastructure: Infrastructure, plan: Plan) -> set[frozenset[str]]:
    """Return the links on the shortest ways between the tiers of a plan, from the origin."""
    stops = [infrastructure.origin or infrastructure.tiers[0].name, *plan.deployment.tiers]
    ways = [infrastructure.path(a, b) for a in stops for b in stops if a != b]
    return {frozenset(pair) for way in ways for pair in pairwise(way)}
