"""Watches whether served queries meet their objectives, and stores events when that changes.

The state is held in memory: after a restart it is computed anew from the reports of the
deployments. Only changes between met and missed, and overloads, become events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from circinus.api.event_log import event
from circinus.api.schemas.events import EventKind
from circinus.api.store.records import NewEvent
from circinus.api.use_cases.deployer import Deployer
from circinus.api.use_cases.objectives import (
    FollowedOverload,
    ObservedObjectives,
    ObservedState,
    OverloadSettings,
    Spending,
    judged,
    overloaded,
)
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.requests import RequestWindows
from circinus.api.use_cases.scheduling import ScaledTier, Served, Target
from circinus.deploy.runtime.report import DeploymentReport
from circinus.pipelines.model.profile import FloatArray

LOOK_S = 1.0
_LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class ObjectiveWatcher:
    """Looks at the requests of all deployments. Used within one event loop."""

    parts: ServiceParts
    deployer: Deployer
    target: Callable[[], Target | None]  # what should be served
    windows: RequestWindows  # of what outputs scored
    now: dict[str, ObservedObjectives]  # how queries fare, by id: renewed by each look
    overload: OverloadSettings = field(default_factory=OverloadSettings)
    _overloads: dict[str, FollowedOverload] = field(default_factory=dict, init=False)
    _announced: dict[str, ObservedState] = field(default_factory=dict, init=False)  # met or missed

    async def tick(self) -> None:
        """Look once; store events of changes."""
        target = self.target()
        served = {} if target is None else target.served
        every = await self.deployer.reports()
        # While another plan starts, requests are those of the plan before.
        reports = {q: each for q, each in every.items() if _is_of(served.get(q), each)}
        scores = {q: self.windows.scores(q, each.plan_id) for q, each in reports.items()}
        now, news = await asyncio.to_thread(self._look, served, reports, scores)
        for gone in self.now.keys() - now.keys():
            del self.now[gone]
        self.now.update(now)
        if news:
            await asyncio.to_thread(self.parts.store.events.tell, *news)

    def _look(
        self,
        served: Mapping[str, Served],
        reports: Mapping[str, DeploymentReport],
        scores: Mapping[str, FloatArray],
    ) -> tuple[dict[str, ObservedObjectives], list[NewEvent]]:
        clock = self.parts.clock
        before, self._overloads = self._overloads, {}
        now: dict[str, ObservedObjectives] = {}
        news: list[NewEvent] = []
        for query_id, each in reports.items():
            known = before.get(query_id, FollowedOverload())
            why = self._too_much(served[query_id], each)
            self._overloads[query_id] = after = known.after(why, clock.now(), self.overload)
            outcome = self._judged(served[query_id], each, scores[query_id], after.reason)
            now[query_id] = outcome
            news += self._news(query_id, outcome, known.reason, clock.timestamp())
        self._announced = {q: state for q, state in self._announced.items() if q in now}
        return now, news

    def _too_much(self, served: Served, report: DeploymentReport) -> str:
        # A pool has unlike machines: the plan's own replicas do not determine its capacity.
        planned = None if served.pool else served.rate_per_s
        return overloaded(served.plan, report, planned, self.overload.beyond)

    def _judged(
        self, served: Served, report: DeploymentReport, scores: FloatArray, overload: str
    ) -> ObservedObjectives:
        spending = Spending(
            machines_usd_per_hour=served.machines_usd_per_hour(self.parts.infrastructure),
            rated=served.plan.requests_per_s is not None,
        )
        scaled = ScaledTier.of(served.plan, self.parts.infrastructure)
        return ObservedObjectives(
            plan_id=served.plan.id,
            objectives=judged(served.slo, report, scores, spending),
            report=report,
            planned_per_s=served.rate_per_s,
            overload=overload,
            scaled_tier=None if scaled is None else scaled.tier,
        )

    def _news(
        self, query_id: str, outcome: ObservedObjectives, known: str, at: float
    ) -> Iterator[NewEvent]:
        state = outcome.state
        if state is not ObservedState.UNSURE and self._announced.get(query_id) is not state:
            self._announced[query_id] = state
            event(_LOG, "objectives.judged", query_id=query_id, state=state.value)
            yield _objectives_event(query_id, outcome, at)
        if bool(known) is not bool(outcome.overload):
            what = "overload.began" if outcome.overload else "overload.ended"
            event(_LOG, what, query_id=query_id, why=outcome.overload or known)
            yield _overload_event(query_id, outcome, known, at)


def _is_of(served: Served | None, report: DeploymentReport) -> bool:
    return served is not None and served.plan.id == report.plan_id


def _objectives_event(query_id: str, outcome: ObservedObjectives, at: float) -> NewEvent:
    did = "meet" if outcome.state is ObservedState.MET else "miss"
    data = {
        "state": outcome.state.value,
        "plan_id": outcome.plan_id,
        "states": {each.name: each.state.value for each in outcome.objectives},
        "why": outcome.sentence,
    }
    words = f"requests of {query_id} {did} its objectives: {outcome.sentence}"
    return NewEvent(kind=EventKind.OBJECTIVES, at=at, query_id=query_id, words=words, data=data)


def _overload_event(query_id: str, outcome: ObservedObjectives, known: str, at: float) -> NewEvent:
    state = "began" if outcome.overload else "ended"
    data = {
        "state": state,
        "why": outcome.overload or known,
        "rate_per_s": outcome.report.arrivals_per_s,
        "planned_per_s": outcome.planned_per_s,
        "waiting": outcome.waiting,
        "turned_away": outcome.report.spans[0].turned_away,
    }
    words = f"overload of {query_id} {state}: {outcome.overload or known}"
    return NewEvent(kind=EventKind.OVERLOAD, at=at, query_id=query_id, words=words, data=data)
