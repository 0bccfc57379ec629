"""Makes what runs follow the schedule.

A loop of its own in the service, beside the one that makes schedules: starting a plan takes
seconds, and nobody's machines wait for that. After a restart it deploys the schedule again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from api.event_log import trouble
from api.phases import LIVE, Phase
from api.services.catalogue import Catalogue
from api.services.deployer import Deployer
from api.services.examples import ExampleSource
from api.services.scheduling import Target
from api.store.records import Move
from api.store.store import Store
from deploy.instances import DesiredDeployment
from deploy.orchestrator import DeploymentPhase, DeploymentStatus
from pipelines.clock import Clock
from pipelines.errors import InvalidInput
from pipelines.plan import Plan

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
_DEPLOYED = frozenset({Phase.DEPLOYING, Phase.SERVING})

_LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Keeps deployments up to date. Used within one event loop.

    Attributes:
        store: With the queries.
        target: Gives what should run; None: that is not known yet.
        deployer: Runs it.
        catalogue: With the pipelines.
        examples: To warm deployments up with.
        clock: Says when.
        every_s: Seconds between two looks.
    """

    store: Store
    target: Callable[[], Target | None]
    deployer: Deployer
    catalogue: Catalogue
    examples: ExampleSource
    clock: Clock
    every_s: float
    _applied: Target | None = field(default=None, init=False)
    _marked: set[str] = field(default_factory=set, init=False)
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
        """Look once; act only if the target changed, or a deployment should be retried."""
        target = self.target()
        retry = self._retry_at is not None and self.clock.now() >= self._retry_at
        if target is None or (target is self._applied and not retry):
            return
        self._applied, self._retry_at = target, None
        await self._deploy(target)

    async def _deploy(self, target: Target) -> None:
        starting = {q: p for q, p in target.plans.items() if not _serves(self._status(q), p)}
        await asyncio.to_thread(self._mark_phases, target, starting)
        desired = {
            query_id: await asyncio.to_thread(self._desired, plan)
            for query_id, plan in target.plans.items()
        }
        await self.deployer.apply(desired)
        statuses = {query_id: self._status(query_id) for query_id in target.plans}
        await asyncio.to_thread(self._mark_deployed, target.plans, statuses)

    def _mark_phases(self, target: Target, starting: Mapping[str, Plan]) -> None:
        # Whoever was marked under an older target after it had lost its machines waits after all.
        for query_id in sorted(self._marked & target.waiting.keys()):
            self._move(query_id, _DEPLOYED, Phase.WAITING, target.waiting[query_id])
        self._marked = set(target.plans)
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
        latest = self.target()
        for query_id, plan in chosen.items():
            if latest is not None and query_id not in latest.plans:
                continue  # it lost its machines meanwhile
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
