"""What a service is told of its deployments where dispatchers of other processes serve them, too.

The calls that change anything are the orchestrator's own; figures are of all who dispatch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from circinus.api.keeper.figures import lately_of, queues_of, seen_of, status_of
from circinus.api.keeper.followed import Followed
from circinus.deploy.runtime.demand import SeenDemand, TrafficNews
from circinus.deploy.runtime.dispatcher import RequestResult, RequestTerms, elsewhere_s
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.observed import SeenRequests
from circinus.deploy.runtime.orchestrator import DeploymentStatus, Orchestrator, Recent
from circinus.deploy.runtime.tier_queue import QueueFigures
from circinus.deploy.runtime.traffic import Lately
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.payload import Payload


@dataclass(frozen=True, slots=True, eq=False)
class AllDispatchers:
    """An orchestrator and those who follow it, named as `Deployer` names it."""

    orchestrator: Orchestrator
    followed: Followed

    async def apply(self, desired: Mapping[str, DesiredDeployment]) -> None:
        """See `Deployer`, as all that follow."""
        await self.orchestrator.apply(desired)

    def withhold(self, query_id: str) -> None:
        """See there."""
        self.orchestrator.withhold(query_id)

    async def request(self, query_id: str, input: Payload, terms: RequestTerms) -> RequestResult:
        """See there."""
        return await self.orchestrator.request(query_id, input, terms)

    def imitate(self, infrastructure: Infrastructure) -> None:
        """See there."""
        self.orchestrator.imitate(infrastructure)

    def serving(self) -> Mapping[str, str]:
        """See there."""
        return self.orchestrator.serving()

    def news(self) -> Mapping[str, TrafficNews]:
        """See there: the dispatcher of here heard of all requests."""
        return self.orchestrator.news()

    def demand(self, query_id: str) -> SeenDemand | None:
        """See there: the dispatcher of here heard of all requests, answers are noted apart."""
        own, here = self.orchestrator.demand(query_id), self._own().get(query_id)
        if own is None or here is None:
            return own
        taken, queues = self._recent(query_id, here).taken, self.orchestrator.figures()[query_id]
        return replace(own, elsewhere_s=elsewhere_s(taken, queues))

    def figures(self) -> Mapping[str, Mapping[str, QueueFigures]]:
        """See there."""
        own, others = self.orchestrator.figures(), self.followed.figures()
        return {
            query: queues_of([tiers, *(each.queues for each in others.get(query, ()))])
            for query, tiers in own.items()
        }

    def lately(self) -> Mapping[str, Sequence[Lately]]:
        """See there."""
        own, others = self.orchestrator.counts(), self.followed.figures()
        return {
            query: lately_of([spans, *(each.spans for each in others.get(query, ()))])
            for query, spans in own.items()
        }

    def arrivals_per_s(self) -> Mapping[str, float]:
        """See there."""
        own, others = self.orchestrator.arrivals_per_s(), self.followed.figures()
        return {
            query: rate + sum(each.arrivals_per_s for each in others.get(query, ()))
            for query, rate in own.items()
        }

    def recent(self) -> Mapping[str, Recent]:
        """See there."""
        return {query: self._recent(query, own) for query, own in self._own().items()}

    def seen_requests(self) -> Mapping[str, SeenRequests]:
        """See there."""
        others, answers = self.followed.figures(), self.followed.answers()
        counts = self.orchestrator.counts()
        return {
            query: seen_of(own, counts[query], others.get(query, ()), answers.get(query, ()))
            for query, own in self.orchestrator.seen_requests().items()
        }

    def status(self, query_id: str) -> DeploymentStatus:
        """See there; InvalidInput if the query has no deployment."""
        own, here = self.orchestrator.status(query_id), self._own().get(query_id)
        if here is None:
            return own
        others = self.followed.figures().get(query_id, ())
        spans = self.orchestrator.counts()[query_id]
        return status_of(own, spans, others, self._recent(query_id, here))

    def _own(self) -> Mapping[str, Recent]:
        return self.orchestrator.recent()

    def _recent(self, query_id: str, own: Recent) -> Recent:
        journal = self.followed.journal(query_id, own.plan_id)
        journal.add_own(own)
        return journal.recent()
