"""Chooses the pools of queries anew when their requests have become other ones.

Where deployments run the last 10,000 requests are watched (`scheduler.pool.monitor`): their sizes,
their rate, and the queue that they meet. An event reports each change and the pool chosen anew
for the requests since. A pool that follows is changed: new instances serve before old ones end.
Soon after a change there are few new requests, so the choice is repeated whenever their number
has tripled, up to a thousand.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from circinus.api.event_log import event, trouble
from circinus.api.schemas.events import EventKind
from circinus.api.schemas.pools import ChooseQueryPoolBody, QueryPoolView
from circinus.api.store.failures import DatabaseFailed
from circinus.api.store.query_rows import pool_event
from circinus.api.store.records import NewEvent
from circinus.api.use_cases.deployer import Deployer
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.query_pools import apply_pool
from circinus.deploy.runtime.report import DeploymentReport
from circinus.pipelines.errors import CircinusError
from circinus.scheduler.pool.monitor import TrafficChange
from circinus.scheduler.rolling.pooling import Slices

ENOUGH = 1_000
"""Requests of a new mix whose sizes determine the best pool."""
_MORE = 3  # times as many requests are worth another look
_PAUSE_S = 30.0
_LOG = logging.getLogger(__name__)

Choose = Callable[[str, ChooseQueryPoolBody], Awaitable[QueryPoolView]]
"""(query id, terms) -> the pool that would serve it best."""


@dataclass(frozen=True, slots=True)
class _Followed:
    """How far the changes of a plan's requests were followed."""

    plan_id: str
    changes: int  # those that the pool was chosen for
    by: int  # so many requests
    not_before: float = 0.0  # after a failure


@dataclass(slots=True, kw_only=True)
class PoolFollower:
    """Looks after the pools of a service. Used within one event loop."""

    parts: ServiceParts
    deployer: Deployer
    choose: Choose
    _followed: dict[str, _Followed] = field(default_factory=dict, init=False)

    async def tick(self) -> None:
        """Look once; choose anew where requests have changed."""
        pools = await asyncio.to_thread(self.parts.store.pools)
        self._followed = {q: known for q, known in self._followed.items() if q in pools}
        if not pools:
            return
        for query_id, report in (await self.deployer.reports()).items():
            if query_id in pools and self._is_due(query_id, report):
                await self._look(query_id, report, pools[query_id])

    def _is_due(self, query_id: str, report: DeploymentReport) -> bool:
        known = self._followed.get(query_id)
        if known is None or known.plan_id != report.plan_id:
            # An earlier service may not have followed its own events.
            by = 0 if report.changes else ENOUGH
            known = self._followed[query_id] = _Followed(report.plan_id, report.changes, by)
        if self.parts.clock.now() < known.not_before:
            return False
        if report.changes > known.changes:
            return True
        return known.by < ENOUGH and report.known_requests >= min(_MORE * known.by, ENOUGH)

    async def _look(self, query_id: str, report: DeploymentReport, pool: Slices) -> None:
        changed = report.changes > self._followed[query_id].changes
        if changed and report.last_change is not None:
            news = _change_event(query_id, report.last_change, self.parts.clock.timestamp())
            event(_LOG, "requests.changed", query_id=query_id, **news.data)
            await asyncio.to_thread(self.parts.store.events.tell, news)
        self._followed[query_id] = _Followed(
            report.plan_id, report.changes, by=report.known_requests
        )
        tier = next(iter(pool))
        try:
            answer = await self.choose(query_id, ChooseQueryPoolBody(tier=tier))
            await asyncio.to_thread(self._follow, query_id, pool, answer)
        except DatabaseFailed:
            self._again(query_id)
            raise
        except CircinusError as error:  # it is served no more, say, or others use the capacity
            self._again(query_id)
            trouble(_LOG, "pool.not_followed", query_id=query_id, cause=str(error))

    def _again(self, query_id: str) -> None:
        later = self.parts.clock.now() + _PAUSE_S
        known = self._followed[query_id]
        self._followed[query_id] = replace(known, by=0, not_before=later)

    def _follow(self, query_id: str, pool: Slices, answer: QueryPoolView) -> None:
        """Change the pool, or store an event with the better one."""
        record = self.parts.store.query(query_id)
        if record.pool != pool:
            return  # it was changed meanwhile
        if answer.slices is None or answer.slices == pool:
            state, slices = "kept", pool
        else:
            state, slices = "proposed", answer.slices
            if record.pool_follows:
                why = answer.choice.reason
                apply_pool(self.parts, query_id, slices, follows=True, why=why)
                event(_LOG, "pool.followed", query_id=query_id, pool=slices)
                return
        at = self.parts.clock.timestamp()
        news = pool_event(query_id, state, at, slices, answer.choice.reason)
        self.parts.store.events.tell(news)


def _change_event(query_id: str, change: TrafficChange, at: float) -> NewEvent:
    data: Mapping[str, object] = {
        "mix": change.mix,
        "rate": change.rate,
        "queue": change.queue,
        "requests": change.requests,
        "distance": change.distance,
        "rate_per_s": change.rate_rps,
        "was_per_s": change.was_rps,
        "waiting": change.waiting,
    }
    parts = [
        f"their sizes ({change.distance:.0%} of them are others)" if change.mix else "",
        f"{change.rate_rps:.3g}/s instead of {change.was_rps:.3g}/s" if change.rate else "",
        f"a queue that grows ({change.waiting} wait)" if change.queue else "",
    ]
    words = f"requests of {query_id} have changed: {', '.join(filter(None, parts))}"
    return NewEvent(kind=EventKind.TRAFFIC, at=at, query_id=query_id, words=words, data=data)
