"""What requests got from one dispatcher of several, as JSON, and how such figures add up."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from circinus.api.schemas.violations import violations_of
from circinus.deploy.runtime.dispatcher import RECENT, Observed, Taken
from circinus.deploy.runtime.hearing import Came, Took, latest
from circinus.deploy.runtime.observed import AnswersSeen, SeenRequests
from circinus.deploy.runtime.orchestrator import DeploymentStatus, Orchestrator, Recent
from circinus.deploy.runtime.tier_queue import QueueFigures
from circinus.deploy.runtime.traffic import Lately, SpanCounts, added
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.slo import LatencyStatistic


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFigures:
    """What the requests to one query got."""

    plan_id: str
    arrivals_per_s: float
    answered: int  # since the dispatcher began to serve the plan
    failed: int
    taken: tuple[Taken, ...]  # of the latest answers, those that were not told before
    queues: dict[str, QueueFigures]  # by tier
    spans: tuple[SpanCounts, ...]
    # of the answers that are kept one by one: how many seconds ago, when told, and the latency
    answers: tuple[tuple[float, float], ...] = ()
    came: tuple[Came, ...] = ()  # likewise, each so many seconds ago
    came_count: int = 0  # since the dispatcher began to serve the plan
    took: tuple[Took, ...] = ()
    took_count: int = 0

    @property
    def counts(self) -> Counts:
        """How many requests were told of so far."""
        return Counts(self.answered, self.came_count, self.took_count)


class Counts(NamedTuple):
    """How many requests a dispatcher had seen of a plan."""

    answered: int
    came: int
    took: int

    def since(self, before: QueryFigures | None, plan_id: str) -> Counts:
        """Return how many of them are new; all, if another plan's or nothing was told before."""
        if before is None or before.plan_id != plan_id:
            return self
        return Counts(*(max(now - then, 0) for now, then in zip(self, before.counts, strict=True)))


@dataclass(slots=True, eq=False)
class ToldAnswers:
    """The latest answers of a plan, by whichever dispatcher, in the order in which they are told.

    Sums only grow: what a dispatcher that ended had answered stays counted.
    """

    plan_id: str
    answered: int = 0
    taken: deque[Taken] = field(default_factory=lambda: deque(maxlen=RECENT))
    own: int = 0  # of those answered, by the dispatcher of here

    def add(self, taken: Sequence[Taken], count: int) -> None:
        """Take so many answers, with the latest of them."""
        self.answered += count
        self.taken.extend(latest(taken, count))

    def add_own(self, here: Recent) -> None:
        """Take those of the dispatcher of here that came since the last time."""
        self.add(here.taken, here.answered - self.own)
        self.own = here.answered

    def recent(self) -> Recent:
        """Return the latest."""
        return Recent(plan_id=self.plan_id, answered=self.answered, taken=tuple(self.taken))


_FIGURES = TypeAdapter[dict[str, QueryFigures]](dict[str, QueryFigures])


def figures_of(
    orchestrator: Orchestrator, told: Mapping[str, QueryFigures] | None = None
) -> dict[str, QueryFigures]:
    """Return query id -> what its requests got here, of all that serve.

    Sums are of all requests, what is told of single ones is of those since what was told before.
    """
    counts, queues = orchestrator.counts(), orchestrator.figures()
    arrivals, seen = orchestrator.arrivals_per_s(), orchestrator.seen_requests()
    now, found = orchestrator.clock.now(), {}
    for query, recent in orchestrator.recent().items():
        seen_here = orchestrator.sightings(query)
        observed, answers = orchestrator.status(query).observed, seen[query].answers
        counts_now = Counts(recent.answered, seen_here.came_count, seen_here.took_count)
        new = counts_now.since((told or {}).get(query), recent.plan_id)
        came = latest(seen_here.came, new.came)
        found[query] = QueryFigures(
            plan_id=recent.plan_id,
            arrivals_per_s=arrivals[query],
            answered=recent.answered,
            failed=0 if observed is None else observed.failed,
            taken=tuple(latest(recent.taken, new.answered)),
            queues=queues[query],
            spans=counts[query],
            answers=tuple(zip(answers.ago_s.tolist(), answers.latency_s.tolist(), strict=True)),
            came=tuple(each._replace(at=now - each.at) for each in came),
            came_count=counts_now.came,
            took=tuple(latest(seen_here.took, new.took)),
            took_count=counts_now.took,
        )
    return found


def figures_to_json(figures: Mapping[str, QueryFigures]) -> bytes:
    """Return figures as JSON."""
    return _FIGURES.dump_json(dict(figures))


def figures_from(document: bytes) -> dict[str, QueryFigures]:
    """Return figures of JSON; InvalidInput if they are none."""
    try:
        return _FIGURES.validate_json(document)
    except ValidationError as error:
        raise InvalidInput(violations_of(error)) from error


def lately_of(spans: Sequence[Sequence[SpanCounts]]) -> tuple[Lately, ...]:
    """Return what requests got from dispatchers together, span by span."""
    return tuple(added(each).lately() for each in zip(*spans, strict=True))


def status_of(
    own: DeploymentStatus,
    spans: Sequence[SpanCounts],
    others: Sequence[QueryFigures],
    recent: Recent,
) -> DeploymentStatus:
    """Return the state of a deployment from the latest answers of its dispatchers.

    Percentiles are over the answers that are kept one by one, so over fewer than those of one.
    """
    if own.observed is None or own.observed.count == recent.answered:  # nobody else had any
        return own
    latencies = np.array([each.latency_s for each in recent.taken])
    observed = Observed(
        count=recent.answered,
        failed=own.observed.failed + sum(each.failed for each in others),
        window=len(latencies),
        **{s.value: float(s.of(latencies)) for s in LatencyStatistic if len(latencies)},
    )
    lately = lately_of([spans, *(each.spans for each in others)])
    return replace(own, observed=observed, lately=lately)


def seen_of(
    own: SeenRequests,
    spans: Sequence[SpanCounts],
    others: Sequence[QueryFigures],
    answers: Sequence[AnswersSeen],  # of the others, as long ago as they are by now
) -> SeenRequests:
    """Return what requests got from several dispatchers, who send to the same instances."""
    every = [own.answers, *answers]
    ago_s = np.concatenate([each.ago_s for each in every])
    order = np.argsort(-ago_s, kind="stable")
    tiers = {
        tier: replace(load, waiting=load.waiting + sum(_waiting(each, tier) for each in others))
        for tier, load in own.tiers.items()
    }
    return replace(
        own,
        arrivals_per_s=own.arrivals_per_s + sum(each.arrivals_per_s for each in others),
        lately=lately_of([spans, *(each.spans for each in others)])[0],
        answers=AnswersSeen(
            ago_s=ago_s[order],
            latency_s=np.concatenate([each.latency_s for each in every])[order],
            usd=np.concatenate([each.usd for each in every])[order],
        ),
        tiers=tiers,
    )


def _waiting(figures: QueryFigures, tier: str) -> int:
    return figures.queues[tier].waiting if tier in figures.queues else 0


def queues_of(tiers: Sequence[Mapping[str, QueueFigures]]) -> dict[str, QueueFigures]:
    """Return tier -> its queues of several dispatchers, added up; the first says which tiers."""
    first, *others = tiers
    return {
        tier: reduce(_both, (other[tier] for other in others if tier in other), figures)
        for tier, figures in first.items()
    }


def _both(one: QueueFigures, other: QueueFigures) -> QueueFigures:
    answered = one.answered + other.answered
    weighed = (
        one.answered * one.observed_over_predicted + other.answered * other.observed_over_predicted
    )
    return QueueFigures(
        waiting=one.waiting + other.waiting,
        busy=tuple(dict.fromkeys((*one.busy, *other.busy))),
        idle=min(one.idle, other.idle),  # who is at work for one is so for all
        answered=answered,
        late=one.late + other.late,
        late_s=one.late_s + other.late_s,
        late_max_s=max(one.late_max_s, other.late_max_s),
        turned_away=one.turned_away + other.turned_away,
        lost=one.lost + other.lost,
        waited_s=one.waited_s + other.waited_s,
        predicted_s=one.predicted_s + other.predicted_s,
        observed_s=one.observed_s + other.observed_s,
        drifts=one.drifts + other.drifts,
        observed_over_predicted=weighed / answered if answered else 1.0,
        endpoints=one.endpoints.plus(other.endpoints),
    )
