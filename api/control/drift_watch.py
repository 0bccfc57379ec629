"""Looks whether deployed plans still give what they were planned for; what drifted is replanned.

A loop of its own in the service, in its event loop; computing and the store are in threads.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from circinus.api.event_log import event, trouble
from circinus.api.phases import QueryPhase
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.replanning import Drifted, deployed_plan, replan_for_drift
from circinus.api.use_cases.requests import RequestWindows
from circinus.pipelines.errors import CircinusError
from circinus.planner.answers.drift import DriftSettings, drifted

_LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class DriftWatch:
    """Watches all deployed queries; `settings` say what a drift is. Used within one event loop."""

    parts: ServiceParts
    windows: RequestWindows
    settings: DriftSettings = field(default_factory=DriftSettings)

    async def run(self) -> None:
        """Keep on until cancelled."""
        while True:
            await asyncio.sleep(self.parts.settings.drift_s)
            try:
                await self.tick()
            except Exception as error:  # noqa: BLE001 - the loop's edge: the next look goes on
                trouble(_LOG, "drift.look_failed", error=error)

    async def tick(self) -> None:
        """Look at every query once."""
        for query_id, plan_id in self.windows.queries():
            try:
                await self._look(query_id, plan_id)
            except CircinusError as error:
                trouble(_LOG, "drift.replan_failed", query_id=query_id, error=error)
                self.windows.forget(query_id)

    async def _look(self, query_id: str, plan_id: str) -> None:
        record = await asyncio.to_thread(self.parts.store.query, query_id)
        plan = await asyncio.to_thread(deployed_plan, self.parts.store, query_id, plan_id)
        if record.phase is not QueryPhase.SERVING or plan is None:
            self.windows.forget(query_id)
            return
        seen = self.windows.seen(query_id)
        drift = drifted(plan, record.query.slo, seen, self.settings)
        if drift is None:
            return
        found = Drifted(drift=drift, seen=seen, data=self.windows.data(query_id))
        event(_LOG, "plan.drifted", query_id=query_id, plan_id=plan_id, drift=drift.words)
        done = await asyncio.to_thread(replan_for_drift, self.parts, record, plan, found)
        # Judged anew by new requests, also where nothing could be done.
        self.windows.forget(query_id)
        event(_LOG, "query.replanned", query_id=query_id, outcome=done)
