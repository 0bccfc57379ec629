"""Makes what runs follow what is planned: schedules the live queries and deploys the schedule.

A loop of its own in the service. Every step can be repeated: after a restart it
starts from the stored schedule and deploys it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from api.documents import from_document, to_document
from api.event_log import event, trouble
from api.phases import LIVE, Phase
from api.services.catalogue import Catalogue
from api.services.deployer import Deployer
from api.services.examples import ExampleSource
from api.services.listing import all_in
from api.services.retirement import retire_expired
from api.services.scheduling import LiveQuery, chosen_plans, problem_of
from api.store.records import Move, QueryRecord
from api.store.store import Store
from deploy.instances import DesiredDeployment
from deploy.orchestrator import DeploymentPhase, DeploymentStatus
from pipelines.clock import Clock
from pipelines.errors import CircinusError, InvalidInput
from pipelines.infrastructure import Infrastructure
from pipelines.plan import Plan
from scheduler.displacement import displacements
from scheduler.policy import SchedulingPolicy
from scheduler.problem import Schedule, validate

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0

_LOG = logging.getLogger(__name__)


class WrongSchedule(CircinusError):
    """A policy gave a schedule that breaks rules; the one in force stays."""


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Keeps schedule and deployments up to date. Used within one event loop.

    Attributes:
        store: With the queries.
        infrastructure: Scheduled on.
        policy: Chooses the schedule.
        deployer: Runs it.
        catalogue: With the pipelines.
        examples: To warm deployments up with.
        clock: Says when.
        every_s: Seconds between two looks.
    """

    store: Store
    infrastructure: Infrastructure
    policy: SchedulingPolicy
    deployer: Deployer
    catalogue: Catalogue
    examples: ExampleSource
    clock: Clock
    every_s: float
    _scheduled: frozenset[tuple[str, int]] | None = field(default=None, init=False)
    _plans: dict[tuple[str, int], tuple[Plan, ...]] = field(default_factory=dict, init=False)
    _failures: int = field(default=0, init=False)
    _retry_at: float | None = field(default=None, init=False)

    async def run(self) -> None:
        """Keep on until cancelled."""
        while True:
            try:
                await self.tick()
            except Exception as error:  # noqa: BLE001 - the loop's edge: the next look goes on
                trouble(_LOG, "reconciler.tick_failed", error=error)
                self._retry_later()
            await asyncio.sleep(self.every_s)

    async def tick(self) -> None:
        """Look once; act only if the live queries changed, or a deployment should be retried."""
        live = await asyncio.to_thread(self._survey)
        ids = frozenset((record.id, record.replans) for record in live)
        retry = self._retry_at is not None and self.clock.now() >= self._retry_at
        if ids == self._scheduled and not retry:
            return
        queries, schedule = await asyncio.to_thread(self._schedule, live)
        self._scheduled, self._retry_at = ids, None
        await self._deploy(queries, schedule)

    def _survey(self) -> list[QueryRecord]:
        live = list(all_in(self.store, LIVE))
        expired = retire_expired(self.store, live, now=self.clock.timestamp())
        for query_id in expired:
            event(_LOG, "query.expired", query_id=query_id)
        return [record for record in reversed(live) if record.id not in expired]

    def _schedule(self, live: Iterable[QueryRecord]) -> tuple[list[LiveQuery], Schedule]:
        queries = [self._live_query(record) for record in live]
        stored = self.store.schedule()
        running = None if stored is None else from_document(Schedule, stored)
        problem = problem_of(queries, self.infrastructure, running)
        schedule = self.policy.schedule(problem)
        violations = validate(problem, schedule)
        if violations:
            raise WrongSchedule(" ".join(violations))
        now = self.clock.timestamp()
        self.store.set_schedule(to_document(schedule), at=now)
        event(
            _LOG,
            "schedule.made",
            admitted=[assignment.query_id for assignment in schedule.assignments],
            waiting=list(schedule.waiting),
            displaced=[found.words for found in displacements(problem, schedule)],
        )
        for query_id, reason in schedule.waiting.items():
            self._move(query_id, LIVE, Phase.WAITING, reason)
        return queries, schedule

    def _live_query(self, record: QueryRecord) -> LiveQuery:
        key = (record.id, record.replans)
        if key not in self._plans:  # plans change by replanning alone
            stored = self.store.plans(record.id)
            self._plans = {k: plans for k, plans in self._plans.items() if k[0] != record.id}
            self._plans[key] = tuple(from_document(Plan, entry.plan) for entry in stored)
        weight = record.spec.get("weight", 1.0)
        return LiveQuery(id=record.id, weight=float(str(weight)), plans=self._plans[key])

    async def _deploy(self, queries: list[LiveQuery], schedule: Schedule) -> None:
        chosen = chosen_plans(queries, schedule)
        starting = {q: p for q, p in chosen.items() if not _serves(self._status(q), p)}
        await asyncio.to_thread(self._mark_deploying, starting)
        desired = {
            query_id: await asyncio.to_thread(self._desired, plan)
            for query_id, plan in chosen.items()
        }
        live = {query.id for query in queries}
        self._plans = {key: plans for key, plans in self._plans.items() if key[0] in live}
        await self.deployer.apply(desired)
        statuses = {query_id: self._status(query_id) for query_id in chosen}
        await asyncio.to_thread(self._mark_deployed, chosen, statuses)

    def _mark_deploying(self, starting: Mapping[str, Plan]) -> None:
        for query_id, plan in starting.items():
            self._move(query_id, LIVE, Phase.DEPLOYING, f"starting plan {plan.id}")

    def _desired(self, plan: Plan) -> DesiredDeployment:
        sample = self.examples.examples(plan.pipeline, 1, 0).examples[0].input
        reference = self.catalogue.reference(plan.pipeline)
        return DesiredDeployment(pipeline_reference=reference, plan=plan, sample=sample)

    def _status(self, query_id: str) -> DeploymentStatus | None:
        try:
            return self.deployer.status(query_id)
        except InvalidInput:
            return None

    def _mark_deployed(
        self, chosen: Mapping[str, Plan], statuses: Mapping[str, DeploymentStatus | None]
    ) -> None:
        failed = False
        for query_id, plan in chosen.items():
            status = statuses[query_id]
            if _serves(status, plan):
                self._move(query_id, LIVE, Phase.SERVING, "")
                continue
            failed = True
            reason = "it did not start" if status is None else status.reason or status.phase.value
            trouble(_LOG, "deployment.failed", query_id=query_id, plan_id=plan.id, reason=reason)
            message = f"deploying plan {plan.id} failed and is tried again: {reason}"
            self._move(query_id, LIVE, Phase.DEPLOYING, message)
        if failed:
            self._retry_later()
        else:
            self._failures, self._retry_at = 0, None

    def _retry_later(self) -> None:
        pause = min(FIRST_RETRY_S * 2**self._failures, LONGEST_RETRY_S)
        self._failures += 1
        self._retry_at = self.clock.now() + pause

    def _move(self, query_id: str, expected: frozenset[Phase], to: Phase, message: str) -> None:
        now = self.clock.timestamp()
        self.store.move(Move(query_id=query_id, expected=expected, to=to, at=now, message=message))


def _serves(status: DeploymentStatus | None, plan: Plan) -> bool:
    serving = (DeploymentPhase.SERVING, DeploymentPhase.DEGRADED)
    return status is not None and status.phase in serving and status.plan_id == plan.id
