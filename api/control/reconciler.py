"""Makes what runs follow the schedule.

Ticked by the service in a loop of its own, beside the one that makes schedules: starting a plan
takes seconds, and nobody's machines wait for that. After a restart it deploys the schedule again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from circinus.api.event_log import trouble
from circinus.api.phases import LIVE, QueryPhase
from circinus.api.use_cases.deployer import Deployer, found_status, serving_plan
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.scheduling import Target
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.orchestrator import DeploymentStatus
from circinus.pipelines.plan import Plan

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
_DEPLOYED = frozenset({QueryPhase.DEPLOYING, QueryPhase.SERVING})

_LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Makes what runs follow `target`; None: it is not known yet. Used within one event loop."""

    parts: ServiceParts
    target: Callable[[], Target | None]
    deployer: Deployer
    _applied: Target | None = field(default=None, init=False)
    _marked: set[str] = field(default_factory=set, init=False)
    _failures: int = field(default=0, init=False)
    _retry_at: float | None = field(default=None, init=False)

    async def tick(self) -> None:
        """Look once; act only if the target changed, or a deployment should be retried."""
        target = self.target()
        retry = self._retry_at is not None and self.parts.clock.now() >= self._retry_at
        if target is None or (target is self._applied and not retry):
            return
        self._applied, self._retry_at = target, None
        try:
            await self._deploy(target)
        except Exception:
            self._retry_later()
            raise

    async def _deploy(self, target: Target) -> None:
        starting = {
            query_id: plan
            for query_id, plan in target.plans.items()
            if serving_plan(found_status(self.deployer, query_id)) != plan.id
        }
        await self.deployer.apply(await asyncio.to_thread(self._prepare, target, starting))
        statuses = {query_id: found_status(self.deployer, query_id) for query_id in target.plans}
        await asyncio.to_thread(self._mark_deployed, target.plans, statuses)

    def _prepare(
        self, target: Target, starting: Mapping[str, Plan]
    ) -> dict[str, DesiredDeployment]:
        """Mark the phases of what will be started and what waits; give what is desired."""
        # Whoever was marked under an older target after it had lost its machines waits after all.
        for query_id in sorted(self._marked & target.waiting.keys()):
            self._mark(query_id, QueryPhase.WAITING, target.waiting[query_id], _DEPLOYED)
        self._marked = set(target.plans)
        for query_id, plan in starting.items():
            self._mark(query_id, QueryPhase.DEPLOYING, f"starting plan {plan.id}")
        return {query_id: self._desired(plan) for query_id, plan in target.plans.items()}

    def _desired(self, plan: Plan) -> DesiredDeployment:
        sample = self.parts.examples(plan.pipeline, 1, 0).examples[0].input
        reference = self.parts.catalogue.reference(plan.pipeline)
        return DesiredDeployment(pipeline_reference=reference, plan=plan, sample=sample)

    def _mark_deployed(
        self, chosen: Mapping[str, Plan], statuses: Mapping[str, DeploymentStatus | None]
    ) -> None:
        failed = False
        latest = self.target()
        for query_id, plan in chosen.items():
            if latest is not None and query_id not in latest.plans:
                continue  # it lost its machines meanwhile
            status = statuses[query_id]
            if serving_plan(status) == plan.id:
                self._mark(query_id, QueryPhase.SERVING, "")
                continue
            failed = True
            reason = "it did not start" if status is None else status.reason or status.phase.value
            trouble(_LOG, "deployment.failed", query_id=query_id, plan_id=plan.id, reason=reason)
            message = f"deploying plan {plan.id} failed and is tried again: {reason}"
            self._mark(query_id, QueryPhase.DEPLOYING, message)
        if failed:
            self._retry_later()
        else:
            self._failures, self._retry_at = 0, None

    def _retry_later(self) -> None:
        pause = min(FIRST_RETRY_S * 2**self._failures, LONGEST_RETRY_S)
        self._failures += 1
        self._retry_at = self.parts.clock.now() + pause

    def _mark(
        self, query_id: str, to: QueryPhase, message: str, expected: frozenset[QueryPhase] = LIVE
    ) -> None:
        now = self.parts.clock.timestamp()
        self.parts.store.move(query_id, to, at=now, message=message, expected=expected)
