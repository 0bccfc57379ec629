"""Makes what runs follow the schedule.

Ticked by the service in a loop of its own, beside the one that makes schedules: starting a plan
takes seconds, and nobody's machines wait for that. After a restart it deploys the schedule again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from circinus.api.event_log import trouble
from circinus.api.phases import LIVE, QueryPhase
from circinus.api.use_cases.deployer import Deployer
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.scheduling import Served, Target
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.orchestrator import DeploymentStatus
from circinus.pipelines.errors import CircinusError
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
    _generation: int = field(default=0, init=False)  # of what it was applied to
    _marked: set[str] = field(default_factory=set, init=False)
    _unfit: dict[str, str] = field(default_factory=dict, init=False)  # query -> why not deployed
    _failures: int = field(default=0, init=False)
    _retry_at: float | None = field(default=None, init=False)

    async def tick(self) -> None:
        """Look once; act only if the target changed, or a deployment should be retried."""
        target = self.target()
        retry = self._retry_at is not None and self.parts.clock.now() >= self._retry_at
        generation = self.deployer.generation
        same = target is self._applied and generation == self._generation
        if target is None or (same and not retry):
            return
        self._applied, self._generation, self._retry_at = target, generation, None
        try:
            await self._deploy(target)
        except Exception:
            self._retry_later()
            raise

    async def _deploy(self, target: Target) -> None:
        up = await self._up(target)
        starting = {q: served.plan for q, served in target.served.items() if q not in up}
        await self.deployer.apply(await asyncio.to_thread(self._prepare, target, starting))
        up = await self._up(target)
        statuses = {q: await self.deployer.status(q) for q in target.served}
        await asyncio.to_thread(self._mark_deployed, target.served, statuses, up)

    async def _up(self, target: Target) -> set[str]:
        """Give the queries that are served by their plans."""
        serving = await self.deployer.serving()
        return {q for q, served in target.served.items() if serving.get(q) == served.plan.id}

    def _prepare(
        self, target: Target, starting: Mapping[str, Plan]
    ) -> dict[str, DesiredDeployment]:
        """Mark the phases of what will be started and what waits; give what is desired."""
        # Whoever was marked under an older target after it had lost its machines waits after all.
        for query_id in sorted(self._marked & target.waiting.keys()):
            self._mark(query_id, QueryPhase.WAITING, target.waiting[query_id], _DEPLOYED)
        self._marked = set(target.served)
        self._unfit = {}
        for query_id, plan in starting.items():
            self._mark(query_id, QueryPhase.DEPLOYING, f"starting plan {plan.id}")
        desired = {}
        for query_id, served in target.served.items():
            try:
                desired[query_id] = self._desired(served, is_new=query_id in starting)
            except CircinusError as error:  # its pipeline is no longer offered: others are
                self._unfit[query_id] = str(error)
        return desired

    def _desired(self, served: Served, *, is_new: bool) -> DesiredDeployment:
        plan = served.plan
        reference = self.parts.catalogue.reference(plan.pipeline)
        return DesiredDeployment(
            pipeline_reference=reference,
            plan=plan,
            sample=self.parts.sample(plan.pipeline) if is_new else None,
            deadline_s=plan.deadline_s(served.slo),
            machine_types=served.machine_types,
            extras=served.extras,
        )

    def _mark_deployed(
        self,
        chosen: Mapping[str, Served],
        statuses: Mapping[str, DeploymentStatus | None],
        up: Collection[str],
    ) -> None:
        failed = False
        latest = self.target()
        for query_id, plan in ((query_id, served.plan) for query_id, served in chosen.items()):
            if latest is not None and query_id not in latest.served:
                continue  # it lost its machines meanwhile
            status = statuses[query_id]
            if query_id in up:
                self._mark(query_id, QueryPhase.SERVING, "")
                # It serves, if not on the machines that it should be on.
                failed |= status is not None and status.reason is not None
                continue
            failed = True
            reason = self._unfit.get(query_id, "it did not start")
            if status is not None:
                reason = status.reason or status.phase.value
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
