"""Whether a deployed plan still gives what it was planned for, and what the world is like now.

Circinus 4.3: a monitor compares what requests take, and score where the output is known,
with the plan's estimates; what drifted is planned anew. A drift is told only where the SLO
is missed: a plan that is merely worse than thought, yet good enough, is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from pipelines import checks
from pipelines.infrastructure import Infrastructure, Link
from pipelines.plan import Plan
from pipelines.profile import FloatArray
from pipelines.slo import Slo, SloState
from planner.estimates import accuracy_estimate, latency_estimate

_ENDLESS = 10**9
"""Requests to come: what was seen of them is a vanishing part."""
_LEAST_MOVED_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSettings:
    """When a plan counts as drifted.

    Attributes:
        least: Fewest requests (or known outputs) to judge by, `>= 2`. 20: as many as a plan's
            latency rests on.
        confidence: Of the interval that must miss the SLO entirely, in (0, 1). 99.9 %: it is
            looked at often.
        noticeable: Least ratio of observed to planned seconds of a tier or of links that is
            taken over, `> 1`. 1.2: below, it is noise of a loaded machine.
    """

    least: int = 20
    confidence: float = 0.999
    noticeable: float = 1.2

    def __post_init__(self) -> None:
        checks.require(self.least >= 2, "drift.least", "must be >= 2", self.least)
        within = 0 < self.confidence < 1
        checks.require(within, "drift.confidence", "must be in (0, 1)", self.confidence)
        checks.require(self.noticeable > 1, "drift.noticeable", "must be > 1", self.noticeable)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seen:
    """What requests to a plan gave lately.

    Attributes:
        latency_s: Of each, in the SLO's sense, shape (n,).
        tier_s: Tier -> mean seconds that a request kept its instances busy.
        moved_s: Mean seconds between tiers.
        scores: Of those whose output is known, shape (k,).
    """

    latency_s: FloatArray
    tier_s: Mapping[str, float]
    moved_s: float
    scores: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What a plan no longer gives.

    Attributes:
        latency: Whether the latency SLO is missed.
        accuracy: Whether the accuracy SLO is missed.
        words: Both, with figures.
        tiers: Tier -> how many times as long as planned it takes, those that differ noticeably.
        links: How many times as long as planned data travels; 1: as planned.
    """

    latency: bool
    accuracy: bool
    words: str
    tiers: Mapping[str, float] = field(default_factory=dict)
    links: float = 1.0


def drifted(
    plan: Plan, slo: Slo, seen: Seen, settings: DriftSettings | None = None
) -> Drift | None:
    """Give what a plan no longer gives; None: nothing is known to be missed.

    Args:
        plan: As deployed.
        slo: Of its query.
        seen: What its requests gave lately.
        settings: When to call it a drift.
    """
    settings = settings or DriftSettings()
    words: list[str] = []
    late = _is_late(plan, slo, seen, settings, words)
    wrong = _is_wrong(plan, slo, seen, settings, words)
    if not (late or wrong):
        return None
    return Drift(
        latency=late,
        accuracy=wrong,
        words=", ".join(words),
        tiers=_slower_tiers(plan, seen, settings) if late else {},
        links=_slower_links(plan, seen, settings) if late else 1.0,
    )


def as_observed(infrastructure: Infrastructure, plan: Plan, drift: Drift) -> Infrastructure:
    """Give the infrastructure as the requests to a plan found it.

    Tiers that took longer are slower by as much. Of the links on the plan's ways which one
    became thinner cannot be told apart: all of them are taken to be.
    """
    if drift.links <= 1 and not drift.tiers:
        return infrastructure
    crossed = _crossed(infrastructure, plan) if drift.links > 1 else set()
    return replace(
        infrastructure,
        tiers=tuple(
            replace(tier, speed_factor=tier.speed_factor / drift.tiers.get(tier.name, 1.0))
            for tier in infrastructure.tiers
        ),
        links=tuple(
            _thinner(link, drift.links) if frozenset(link.between) in crossed else link
            for link in infrastructure.links
        ),
    )


def _is_late(plan: Plan, slo: Slo, seen: Seen, settings: DriftSettings, words: list[str]) -> bool:
    if len(seen.latency_s) < settings.least:
        return False
    now = latency_estimate(
        seen.latency_s,
        statistic=slo.latency_statistic,
        population=_ENDLESS,
        confidence=settings.confidence,
    )
    late = now.at_most(slo.latency_s) is SloState.VIOLATED
    if late:
        words.append(
            f"latency is {now.value:.4g} s, planned were {plan.latency_s.value:.4g} s, "
            f"allowed are {slo.latency_s:.4g} s"
        )
    return late


def _is_wrong(plan: Plan, slo: Slo, seen: Seen, settings: DriftSettings, words: list[str]) -> bool:
    if len(seen.scores) < settings.least:
        return False
    now = accuracy_estimate(seen.scores, population=_ENDLESS, confidence=settings.confidence)
    wrong = now.at_least(slo.accuracy) is SloState.VIOLATED
    if wrong:
        words.append(
            f"accuracy is {now.value:.4g}, planned was {plan.accuracy.value:.4g}, "
            f"wanted is {slo.accuracy:.4g}"
        )
    return wrong


def _slower_tiers(plan: Plan, seen: Seen, settings: DriftSettings) -> dict[str, float]:
    ratios = {
        tier: seen.tier_s[tier] / planned
        for tier, planned in plan.tier_service_s.items()
        if planned > 0 and tier in seen.tier_s
    }
    return {tier: ratio for tier, ratio in ratios.items() if ratio >= settings.noticeable}


def _slower_links(plan: Plan, seen: Seen, settings: DriftSettings) -> float:
    planned = plan.latency_s.value - sum(plan.tier_service_s.values())
    if seen.moved_s <= _LEAST_MOVED_S:
        return 1.0
    ratio = seen.moved_s / max(planned, _LEAST_MOVED_S)
    return ratio if ratio >= settings.noticeable else 1.0


def _crossed(infrastructure: Infrastructure, plan: Plan) -> set[frozenset[str]]:
    """Give the links on the shortest ways between the tiers that a plan uses, from the origin."""
    stops = [infrastructure.origin or infrastructure.tiers[0].name, *plan.deployment.tiers]
    ways = [infrastructure.path(a, b) for a in stops for b in stops if a != b]
    return {frozenset(pair) for way in ways for pair in pairwise(way)}


def _thinner(link: Link, ratio: float) -> Link:
    return replace(
        link,
        bandwidth_bytes_per_s=link.bandwidth_bytes_per_s / ratio,
        delay_s=link.delay_s * ratio,
    )
