"""Makes what runs follow the schedule.

Ticked by the service in a loop of its own, beside the one that makes schedules. Starting a plan
takes seconds, and neither machines nor other plans wait for that. After a restart it
deploys the schedule again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from threading import Thread

from circinus.api.event_log import trouble
from circinus.api.phases import LIVE, QueryPhase
from circinus.api.schemas.events import EventKind
from circinus.api.store.records import NewEvent
from circinus.api.use_cases.deployer import Deployer
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.scheduling import Served, Target
from circinus.deploy.runtime.deployment import DeploymentPhase, DeploymentStatus
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.pipelines.backoff import Backoff
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.plan import Plan

_RETRIES = Backoff(1.0, 60.0)
_AT_ONCE_S = 0.1
"""The tick that starts a change reports it if it ends within that time, else a later one."""
_DEPLOYED = frozenset({QueryPhase.DEPLOYING, QueryPhase.SERVING})

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Change:
    """What is reported of a deployment."""

    state: str
    plan_id: str | None = None
    why: str | None = None

    def of(self, query_id: str, at: float) -> NewEvent:
        plan = "the deployment" if self.plan_id is None else f"plan {self.plan_id}"
        words = f"{plan} of {query_id} {self.state}" + (f": {self.why}" if self.why else "")
        data = {"state": self.state, "plan_id": self.plan_id, "why": self.why}
        kind = EventKind.DEPLOYMENT
        return NewEvent(kind=kind, at=at, query_id=query_id, words=words, data=data)


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Makes what runs follow `target`; None: it is not known yet. Used within one event loop."""

    parts: ServiceParts
    target: Callable[[], Target | None]
    deployer: Deployer
    _samples: Samples = field(init=False)
    _applied: Target | None = field(default=None, init=False)
    _generation: int = field(default=0, init=False)  # of what it was applied to
    _call: asyncio.Task[None] | None = field(default=None, init=False)  # None: it was answered
    _marked: set[str] = field(default_factory=set, init=False)
    _marks: dict[str, str] = field(default_factory=dict, init=False)  # query -> latest mark
    _deployed: dict[str, str] = field(default_factory=dict, init=False)  # query -> its plan
    # the same of those that are being stopped
    _ending: dict[str, str] = field(default_factory=dict, init=False)
    _unfit: dict[str, str] = field(default_factory=dict, init=False)  # query -> why not deployed
    _failures: int = field(default=0, init=False)
    _retry_at: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._samples = Samples(self.parts.sample)

    async def tick(self) -> None:
        """Look once; act if the target changed, or a deployment should be retried.

        While plans are starting, store the state of each.
        """
        target = self.target()
        retry = self._retry_at is not None and self.parts.clock.now() >= self._retry_at
        generation = self.deployer.generation
        same = target is self._applied and generation == self._generation
        if target is None or (same and not retry and self._call is None):
            return
        try:
            if retry or not same:
                self._applied, self._generation, self._retry_at = target, generation, None
                await self._set_out(target)
            await self._follow(target)
        except Exception:
            self._retry_later()
            raise

    async def _set_out(self, target: Target) -> None:
        serving = await self.deployer.serving()
        up = _up(target, serving)
        there = {**self._deployed, **serving}
        self._ending |= {q: plan for q, plan in there.items() if q not in target.served}
        self._deployed = {q: served.plan.id for q, served in target.served.items()}
        starting = {q: served.plan for q, served in target.served.items() if q not in up}
        samples = await self._samples.of({plan.pipeline for plan in starting.values()})
        desired = await asyncio.to_thread(self._prepare, target, starting, samples)
        if self._call is not None:
            self._call.cancel()  # this call reports its changes, or they are obsolete
        self._call = asyncio.create_task(self.deployer.apply(desired))
        await asyncio.wait({self._call}, timeout=_AT_ONCE_S)

    async def _follow(self, target: Target) -> None:
        call, over = self._call, self._call is None or self._call.done()
        if call is not None and over:
            self._call = None
            call.result()
            await self._tell_ended(target)
        up = _up(target, await self.deployer.serving())
        statuses = {q: await self.deployer.status(q) for q in target.served if q not in up or over}
        await asyncio.to_thread(self._mark_deployed, target.served, statuses, up, over=over)

    async def _tell_ended(self, target: Target) -> None:
        ended, self._ending = self._ending, {}
        now = self.parts.clock.timestamp()
        events = [
            _Change("ended", p).of(q, now) for q, p in ended.items() if q not in target.served
        ]
        if events:
            await asyncio.to_thread(self.parts.store.events.tell, *events)

    def _prepare(
        self, target: Target, starting: Mapping[str, Plan], samples: Mapping[str, Payload]
    ) -> dict[str, DesiredDeployment]:
        """Mark the phases of plans to start and of waiting queries; return the desired plans."""
        # A query marked under an older target after it had lost its machines waits after all.
        for query_id in sorted(self._marked & target.waiting.keys()):
            self._mark(query_id, QueryPhase.WAITING, target.waiting[query_id], _DEPLOYED)
        self._marked = set(target.served)
        self._unfit, self._marks = {}, {}
        for query_id, plan in starting.items():
            change = _Change("starts", plan.id)
            self._mark(query_id, QueryPhase.DEPLOYING, f"starting plan {plan.id}", change=change)
        desired = {}
        for query_id, served in target.served.items():
            try:
                desired[query_id] = self._desired(served, samples)
            except CircinusError as error:  # its pipeline is no longer offered: others are
                self._unfit[query_id] = str(error)
        return desired

    def _desired(self, served: Served, samples: Mapping[str, Payload]) -> DesiredDeployment:
        plan = served.plan
        reference = self.parts.catalogue.reference(plan.pipeline)
        return DesiredDeployment(
            pipeline_reference=reference,
            plan=plan,
            sample=samples.get(plan.pipeline),
            deadline_s=plan.deadline_s(served.slo),
            machine_types=served.machine_types,
            extras=served.extras,
            pool=served.pool,
        )

    def _mark_deployed(
        self,
        chosen: Mapping[str, Served],
        statuses: Mapping[str, DeploymentStatus | None],
        up: Collection[str],
        *,
        over: bool,
    ) -> None:
        failed = False
        latest = self.target()
        for query_id, plan in ((query_id, served.plan) for query_id, served in chosen.items()):
            if latest is not None and query_id not in latest.served:
                continue  # it lost its machines meanwhile
            status = statuses.get(query_id)
            if query_id in up:
                self._mark_once(query_id, QueryPhase.SERVING, "", _Change("serves", plan.id))
                # It serves, if not on the machines that it should be on.
                failed |= status is not None and status.reason is not None
                continue
            if not over and query_id not in self._unfit and not _has_failed(status):
                continue  # it is on its way
            failed = True
            reason = self._unfit.get(query_id, "it did not start")
            if status is not None:
                reason = status.reason or status.phase.value
            message = f"deploying plan {plan.id} failed and is tried again: {reason}"
            change = _Change("failed", plan.id, reason)
            if self._mark_once(query_id, QueryPhase.DEPLOYING, message, change):
                trouble(
                    _LOG, "deployment.failed", query_id=query_id, plan_id=plan.id, reason=reason
                )
        if failed:
            self._retry_later()
        elif over:
            self._failures, self._retry_at = 0, None

    def _retry_later(self) -> None:
        if self._retry_at is None:
            self._failures += 1
            self._retry_at = self.parts.clock.now() + _RETRIES.pause_s(self._failures)

    def _mark_once(self, query_id: str, to: QueryPhase, message: str, change: _Change) -> bool:
        """Mark a query unless that is its latest mark since its start; return whether it did."""
        mark = f"{to}: {message}"
        if self._marks.get(query_id) == mark:
            return False
        self._mark(query_id, to, message, change=change)
        self._marks[query_id] = mark
        return True

    def _mark(
        self,
        query_id: str,
        to: QueryPhase,
        message: str,
        expected: frozenset[QueryPhase] = LIVE,
        change: _Change | None = None,
    ) -> None:
        now, move = self.parts.clock.timestamp(), self.parts.store.move
        events = () if change is None else (change.of(query_id, now),)
        move(query_id, to, at=now, message=message, expected=expected, events=events)


def _up(target: Target, serving: Mapping[str, str]) -> set[str]:
    """Return the queries that are served by their plans."""
    return {q for q, served in target.served.items() if serving.get(q) == served.plan.id}


def _has_failed(status: DeploymentStatus | None) -> bool:
    return status is not None and status.phase is DeploymentPhase.FAILED


@dataclass(slots=True)
class Samples:
    """Makes one sample of each pipeline, in a daemon thread."""

    make: Callable[[str], Payload]  # of a pipeline, by name; raises if it has none
    patience_s: float = 5.0  # with a pipeline; later ones find what it made after all
    _made: dict[str, Future[Payload]] = field(default_factory=dict, init=False)

    async def of(self, pipelines: Iterable[str]) -> Mapping[str, Payload]:
        """Return the samples that there are."""
        pending = {name: self._sample_of(name) for name in pipelines}
        if pending:
            waited = [asyncio.wrap_future(made) for made in pending.values()]
            await asyncio.wait(waited, timeout=self.patience_s)
        return {name: made.result() for name, made in pending.items() if made.done()}

    def _sample_of(self, pipeline: str) -> Future[Payload]:
        if pipeline not in self._made:
            future = self._made[pipeline] = Future()
            ask = partial(self._ask, pipeline, future)
            Thread(target=ask, name=f"sample of {pipeline}", daemon=True).start()
        return self._made[pipeline]

    def _ask(self, pipeline: str, future: Future[Payload]) -> None:
        sample = None
        try:
            sample = self.make(pipeline)
        except CircinusError:
            pass  # it has none, or is not offered: deploying it reports that
        except Exception as error:  # noqa: BLE001 - the pipeline author's code
            trouble(_LOG, "sample.failed", pipeline=pipeline, error=error)
        future.set_result(sample)
