"""Makes what should run run, and sends requests to it.

`apply` compares what should run with what runs, starts what is missing, and only when a
query's new plan is ready moves its requests over and stops the old one: for that moment
both run. A plan that cannot start changes nothing about the one that serves. Where the plan
stays, and instances of it have to run elsewhere, these alone are replaced, in the same way.

Every query goes its own way there: one that takes minutes to start delays no other, nor does one
that cannot. What is desired last counts: a start that nobody wants any more is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from circinus.deploy.runtime.calls import CallGate, UnlimitedCalls
from circinus.deploy.runtime.demand import SeenDemand, TrafficNews
from circinus.deploy.runtime.dispatcher import (
    Dispatcher,
    Observed,
    RequestResult,
    RequestTerms,
    Taken,
)
from circinus.deploy.runtime.following import Followers, NoFollowers, ServedDeployment
from circinus.deploy.runtime.hearing import Came, Sightings, Took
from circinus.deploy.runtime.instances import (
    DesiredDeployment,
    InstanceKey,
    InstanceSpec,
    Launcher,
    instances_of,
)
from circinus.deploy.runtime.learning import LatencyMemory
from circinus.deploy.runtime.observed import SeenRequests
from circinus.deploy.runtime.served_bill import BillMemory, ServedBill
from circinus.deploy.runtime.supervisor import InstanceStatus, InstanceSupervisor, WarmUp
from circinus.deploy.runtime.tier_queue import QueueFigures
from circinus.deploy.runtime.traffic import Lately, SpanCounts
from circinus.deploy.workers.client import WorkerClient
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.payload import Payload
from circinus.scheduler.dispatch.policy import DispatchPolicy

_DRAIN_S = 5.0  # how long requests in hand may go on when a plan is replaced
_SLOT_S = 10.0  # after which an instance that is still starting lets others start beside it
_MEMORY_S = 10.0  # between two times that what was learnt is kept

_log = logging.getLogger(__name__)


class DeploymentPhase(StrEnum):
    """What a query's deployment is up to."""

    STARTING = "starting"  # its first instances are being started
    SERVING = "serving"  # every instance is up
    DEGRADED = "degraded"  # an instance is down and being started again
    FAILED = "failed"  # it did not start; nothing of it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentStatus:
    """A query's deployment, for people."""

    phase: DeploymentPhase  # what it is up to
    plan_id: str  # of the plan that serves, or that starts or failed when none serves
    instances: tuple[InstanceStatus, ...] = ()  # of the plan that serves
    observed: Observed | None = None  # what its requests took; None when it does not serve
    lately: tuple[Lately, ...] = ()  # what they got; empty when it does not serve
    reason: str | None = None  # why the latest plan did not start, or an instance is down


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """What the latest answers of a deployment took."""

    plan_id: str
    answered: int  # requests since it began, `taken` the last of them
    taken: tuple[Taken, ...]


@dataclass(slots=True, eq=False)
class _Deployment:
    """A plan that serves."""

    query_id: str
    plan_id: str
    dispatcher: Dispatcher
    supervisors: Sequence[InstanceSupervisor]
    warm_up: WarmUp
    desired: DesiredDeployment  # that it is, but for its deadline
    keeper: asyncio.Task[None] | None = None
    run: str = field(default_factory=partial(secrets.token_hex, 8))  # this one, of all ever made
    billed: ServedBill | None = None  # as it was kept last; None: it was not

    def served(self) -> ServedDeployment:
        deadline_s = self.dispatcher.deadline_s
        return ServedDeployment(
            desired=replace(self.desired, sample=None, deadline_s=deadline_s),
            addresses={
                str(each.spec.key): each.status.running.address
                for each in self.supervisors
                if each.status.up and each.status.running is not None
            },
        )

    def status(self, reason: str | None) -> DeploymentStatus:
        instances = tuple(supervisor.status.told() for supervisor in self.supervisors)
        down = [instance for instance in instances if not instance.up]
        ended = [f"{each.spec.key} ended: {each.ended}" for each in down if each.ended]
        return DeploymentStatus(
            phase=DeploymentPhase.DEGRADED if down else DeploymentPhase.SERVING,
            plan_id=self.plan_id,
            instances=instances,
            observed=self.dispatcher.latencies.observed(),
            lately=self.dispatcher.lately(),
            reason=reason or next(iter(ended), None),
        )


@dataclass(frozen=True, slots=True)
class _Way:
    """What is being done about a query."""

    goal: object  # see `DesiredDeployment.goal`; None: it ends
    task: asyncio.Task[None]


def compared(
    wanted: Mapping[InstanceKey, InstanceSpec], running: Iterable[InstanceSupervisor]
) -> tuple[list[InstanceSpec], list[InstanceSupervisor]]:
    """Return the instances of a plan that have to start, and those that have to end."""
    there = {supervisor.spec.key: supervisor for supervisor in running}
    missing = [spec for key, spec in wanted.items() if key not in there]
    return missing, [supervisor for key, supervisor in there.items() if key not in wanted]


@dataclass(slots=True, eq=False)
class Orchestrator:
    """All deployments of one infrastructure. Used within one event loop."""

    infrastructure: Infrastructure
    launcher: Launcher
    # of a reference; raises InvalidInput. Called off the event loop: loading may take long
    pipeline_of: Callable[[str], Pipeline]
    policy: DispatchPolicy  # picks the instance of a request
    clock: Clock  # for latencies
    queue_limit: int = 64  # most that wait for one tier, `>= 1`. More would wait for seconds
    memory: LatencyMemory | None = None  # keeps what was learnt over restarts; None: nothing does
    gate: CallGate = field(default_factory=UnlimitedCalls)  # of calls to endpoints
    bills: BillMemory | None = None  # keeps what they came to; None: nothing does
    followers: Followers = field(default_factory=NoFollowers)  # who send requests, too
    _imitated: Infrastructure = field(init=False)
    _starts: asyncio.Semaphore = field(init=False)
    _serving: dict[str, _Deployment] = field(default_factory=dict, init=False)  # by query
    _pending: dict[str, str] = field(default_factory=dict, init=False)  # plan that is started
    _failed: dict[str, tuple[str, str]] = field(default_factory=dict, init=False)  # plan, reason
    _withheld: set[str] = field(default_factory=set, init=False)  # queries about to end
    _desired: Mapping[str, DesiredDeployment] = field(default_factory=dict, init=False)
    _is_told: bool = field(default=False, init=False)  # what is desired
    _ways: dict[str, _Way] = field(default_factory=dict, init=False)  # of queries on one
    # of queries: who goes another way waits until what it left is put in order
    _turns: defaultdict[str, asyncio.Lock] = field(init=False)
    _endings: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._imitated = self.infrastructure
        checks.at_least("queue_limit", self.queue_limit, 1)
        self._starts = asyncio.Semaphore(os.cpu_count() or 1)
        self._turns = defaultdict(asyncio.Lock)

    async def apply(self, desired: Mapping[str, DesiredDeployment]) -> None:
        """Let exactly the desired plans serve, by query id; return when they do.

        A plan that does not start, or does not fit its pipeline or the infrastructure, is told by
        `status`, holds up no other, and is tried again by the next call. Calls may overlap: the
        latest says what is desired, and what has begun and is still desired goes on. A call that
        is cancelled stops nothing: only another call does.
        """
        self._desired, self._is_told = dict(desired), True
        for query in desired.keys() & self._serving.keys():  # also where the plan stays
            self._serving[query].dispatcher.deadline_s = desired[query].deadline_s
        self._failed = {
            q: why
            for q, why in self._failed.items()
            if q in desired and not self._is_served(q, desired[q])
        }
        self._withheld &= desired.keys()
        known = {*desired, *self._serving, *self._ways}
        ways = [self._set_out(query) for query in known]
        if ways:
            await asyncio.wait(ways)
        for way in ways:
            if not way.cancelled():  # then a later call wanted something else
                way.result()

    def imitate(self, infrastructure: Infrastructure) -> None:
        """Let emulated links be those of an infrastructure with equal tiers; no planner hears."""
        self._imitated = infrastructure
        for deployment in self._serving.values():
            deployment.dispatcher.imitate(infrastructure)

    async def request(self, query_id: str, input: Payload, terms: RequestTerms) -> RequestResult:
        """Return the output for an input; errors as `Dispatcher.request`.

        InvalidInput if the query is not deployed, Unavailable if it does not serve (yet).
        """
        if self.plan_serving(query_id) is not None:
            dispatcher = self._serving[query_id].dispatcher
            return await dispatcher.request(input, terms)
        status = self.status(query_id)
        raise Unavailable(f"query {query_id} is {status.phase}", retry_after_s=1.0)

    def withhold(self, query_id: str) -> None:
        """Answer no more requests to a query that is about to end."""
        self._withheld.add(query_id)

    def plan_serving(self, query_id: str) -> str | None:
        """Return the plan that answers requests to a query, by id; None: none does."""
        serving = self._serving.get(query_id)
        return None if serving is None or query_id in self._withheld else serving.plan_id

    def refuse_hopeless(
        self, query_id: str, arrived: float, *, unless: Callable[[], bool]
    ) -> None:
        """Raise TooManyRequests as `Dispatcher.refuse_hopeless` does, if the query is served."""
        if query_id in self._serving:
            self._serving[query_id].dispatcher.refuse_hopeless(arrived, unless=unless)

    def serving(self) -> dict[str, str]:
        """Return query id -> plan that serves, by id."""
        return {query: deployment.plan_id for query, deployment in self._serving.items()}

    def served(self) -> dict[str, ServedDeployment]:
        """Return query id -> what answers its requests, for others who send it some, too."""
        found = self._serving.items()
        return {q: d.served() for q, d in found if q not in self._withheld}

    def awaited(self) -> frozenset[str] | None:
        """Return the queries that should be served, and are not (yet); None: nobody said which."""
        return frozenset(self._desired.keys() - self._serving.keys()) if self._is_told else None

    @property
    def imitated(self) -> Infrastructure:
        """The infrastructure whose emulated links are waited for."""
        return self._imitated

    def status(self, query_id: str) -> DeploymentStatus:
        """Return how a query's deployment fares; InvalidInput if there is none."""
        failed, reason = self._failed.get(query_id, (None, None))
        if query_id in self._serving:
            return self._serving[query_id].status(reason)
        if query_id in self._pending:
            plan_id = self._pending[query_id]
            return DeploymentStatus(phase=DeploymentPhase.STARTING, plan_id=plan_id)
        if failed is not None:
            return DeploymentStatus(phase=DeploymentPhase.FAILED, plan_id=failed, reason=reason)
        raise InvalidInput.of("query", "must be deployed", query_id)

    def figures(self) -> dict[str, dict[str, QueueFigures]]:
        """Return query id -> tier -> its queue at this moment, of the plans that serve."""
        return {query: d.dispatcher.figures() for query, d in self._serving.items()}

    def lately(self) -> dict[str, tuple[Lately, ...]]:
        """Return query id -> what its requests got lately, of the plans that serve."""
        return {query: d.dispatcher.lately() for query, d in self._serving.items()}

    def counts(self) -> dict[str, tuple[SpanCounts, ...]]:
        """Return query id -> what `lately` is made of, as it is: not to be kept."""
        now = self.clock.now()
        return {query: d.dispatcher.traffic.counts(now) for query, d in self._serving.items()}

    def bills_so_far(self) -> dict[str, ServedBill]:
        """Return query id -> what its calls came to, of the plans that serve and call."""
        bills = {query: d.dispatcher.bill() for query, d in self._serving.items()}
        return {query: bill for query, bill in bills.items() if bill is not None}

    def recent(self) -> dict[str, Recent]:
        """Return query id -> what its latest answers took, of the plans that serve."""
        return {
            query: Recent(
                plan_id=d.plan_id,
                answered=d.dispatcher.latencies.count,
                taken=tuple(d.dispatcher.taken),
            )
            for query, d in self._serving.items()
        }

    def seen_requests(self) -> dict[str, SeenRequests]:
        """Return query id -> what its latest requests got, of the plans that serve."""
        return {query: d.dispatcher.seen_requests() for query, d in self._serving.items()}

    def news(self) -> dict[str, TrafficNews]:
        """Return query id -> whether its requests have become other ones, of plans that serve."""
        return {query: d.dispatcher.news() for query, d in self._serving.items()}

    def sightings(self, query_id: str) -> Sightings:
        """Return the latest requests from here to a query that serves, as they are kept."""
        return self._serving[query_id].dispatcher.sightings

    def hear(self, query_id: str, came: Iterable[Came], took: Iterable[Took]) -> None:
        """Learn from requests to a query, in order, that another dispatcher sent, if it serves."""
        if query_id in self._serving:
            self._serving[query_id].dispatcher.hear(came, took)

    def demand(self, query_id: str) -> SeenDemand | None:
        """Return what the requests to a query are lately; None: no plan serves it."""
        found = self._serving.get(query_id)
        return None if found is None else found.dispatcher.demand()

    def arrivals_per_s(self) -> dict[str, float]:
        """Return query id -> how many requests a second come now, of the plans that serve."""
        now = self.clock.now()
        return {q: d.dispatcher.traffic.arrivals_per_s(now) for q, d in self._serving.items()}

    async def close(self) -> None:
        """Stop everything; may be called again."""
        await self.apply({})
        if self._endings:
            await asyncio.wait(self._endings)

    def _is_served(self, query_id: str, desired: DesiredDeployment) -> bool:
        serving = self._serving.get(query_id)
        return serving is not None and serving.plan_id == desired.plan.id

    def _set_out(self, query_id: str) -> asyncio.Task[None]:
        """Send a query on the way to what is desired of it, unless it is on it."""
        desired, way = self._desired.get(query_id), self._ways.get(query_id)
        goal = None if desired is None else desired.goal
        if way is not None:
            if way.goal == goal:
                return way.task
            way.task.cancel()
        if desired is not None and query_id not in self._serving:
            self._pending[query_id] = desired.plan.id
        task = asyncio.create_task(self._go(query_id, desired))
        self._ways[query_id] = _Way(goal, task)
        task.add_done_callback(lambda task: self._arrive(query_id, task))
        return task

    def _arrive(self, query_id: str, task: asyncio.Task[None]) -> None:
        way = self._ways.get(query_id)
        if way is not None and way.task is task:
            del self._ways[query_id]
            self._turns.pop(query_id, None)
            self._pending.pop(query_id, None)

    async def _go(self, query_id: str, desired: DesiredDeployment | None) -> None:
        async with self._turns[query_id]:
            if desired is None:
                await self._retire(query_id)
            elif self._is_served(query_id, desired):
                await self._reshape(query_id, desired)
            else:
                await self._replace(query_id, desired)

    async def _replace(self, query_id: str, desired: DesiredDeployment) -> None:
        plan_id = desired.plan.id
        try:
            fresh = await self._started(query_id, desired)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one is no other's
            self._fail("deployment_failed", query_id, plan_id, error)
            return
        self._failed.pop(query_id, None)
        old = self._serving.get(query_id)
        # Both may have changed during the start.
        fresh.dispatcher.imitate(self._imitated)
        fresh.dispatcher.deadline_s = self._desired.get(query_id, desired).deadline_s
        self._serving[query_id] = fresh
        _log.info("deployment_serving query_id=%s plan_id=%s", query_id, plan_id)
        if old is not None:
            await self._surely(self._end(old))

    def _fail(self, what: str, query_id: str, plan_id: str, error: Exception) -> None:
        self._failed[query_id] = (plan_id, str(error) or type(error).__name__)
        foreseen = isinstance(error, CircinusError)
        _log.warning("%s query_id=%s cause=%s", what, query_id, error, exc_info=not foreseen)

    async def _surely(self, work: Coroutine[None, None, None]) -> None:
        """Wait for work that goes on, and is waited for by `close`, if this is cancelled."""
        task = asyncio.create_task(work)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        await asyncio.shield(task)

    async def _reshape(self, query_id: str, desired: DesiredDeployment) -> None:
        """Let a plan that serves have instances where it should, the others untouched."""
        deployment = self._serving[query_id]
        try:
            wanted = self._specs(query_id, desired, deployment.dispatcher.pipeline.graph)
            missing, surplus = compared(wanted, deployment.supervisors)
            fresh = [self._supervisor(spec, deployment) for spec in missing]
            try:
                await deployment.warm_up.run(await self._launched(fresh))
                for supervisor in fresh:
                    supervisor.serve()
            except BaseException:
                await self._surely(_stopped(fresh))
                raise
        except Exception as error:  # noqa: BLE001 - as there
            self._fail("reshaping_failed", query_id, deployment.plan_id, error)
            return
        kept = [s for s in deployment.supervisors if s not in surplus]
        deployment.supervisors, deployment.desired = [*kept, *fresh], desired
        if fresh or surplus:
            await self._surely(self._drained(surplus))
            told = (query_id, len(fresh), len(surplus))
            _log.info("deployment_reshaped query_id=%s started=%d ended=%d", *told)

    def _specs(
        self, query_id: str, desired: DesiredDeployment, graph: PipelineGraph
    ) -> dict[InstanceKey, InstanceSpec]:
        return instances_of(query_id, desired, graph, self.infrastructure)

    def _supervisor(self, spec: InstanceSpec, of: _Deployment) -> InstanceSupervisor:
        queue = of.dispatcher.queues[spec.key.tier]
        return InstanceSupervisor(spec, self.launcher, queue, of.warm_up, self.clock)

    async def _started(self, query_id: str, desired: DesiredDeployment) -> _Deployment:
        plan = desired.plan
        pipeline = await asyncio.to_thread(self.pipeline_of, desired.pipeline_reference)
        specs = self._specs(query_id, desired, pipeline.graph).values()
        dispatcher = Dispatcher(
            pipeline, plan, self._imitated, self.policy, self.clock, self.queue_limit, self.gate
        )
        dispatcher.deadline_s = desired.deadline_s
        if self.memory is not None:
            with contextlib.suppress(Unavailable):  # then it learns anew
                dispatcher.recall(await asyncio.to_thread(self.memory.recall, plan.id))
        remote = [tier.name for tier in self.infrastructure.tiers if tier.remote]
        warm_up = WarmUp(dispatcher.segments, desired.sample, remote)
        deployment = _Deployment(query_id, plan.id, dispatcher, [], warm_up, desired)
        deployment.supervisors = [self._supervisor(spec, deployment) for spec in specs]
        try:
            await warm_up.run(await self._launched(deployment.supervisors))
            for supervisor in deployment.supervisors:
                supervisor.serve()
        except BaseException:  # also when cancelled: nothing may be left running
            await self._surely(self._end(deployment))
            raise
        deployment.keeper = asyncio.get_running_loop().create_task(self._keep(deployment))
        return deployment

    async def _launched(
        self, supervisors: Sequence[InstanceSupervisor]
    ) -> list[tuple[str, WorkerClient]]:
        launches = [asyncio.ensure_future(self._launch(each)) for each in supervisors]
        # All are waited for, so that none is still starting when the others are stopped.
        await asyncio.gather(*launches, return_exceptions=True)
        return [launched.result() for launched in launches]

    async def _launch(self, supervisor: InstanceSupervisor) -> tuple[str, WorkerClient]:
        """Start an instance beside few others, for as long as it is as quick as they are."""
        async with self._starts:
            launching = asyncio.ensure_future(supervisor.launch())
            try:
                await asyncio.wait({launching}, timeout=_SLOT_S)
            except asyncio.CancelledError:
                launching.cancel()
                await asyncio.wait({launching})
                raise
        return await launching

    async def _retire(self, query_id: str) -> None:
        deployment = self._serving.pop(query_id, None)
        if deployment is not None:
            await self._surely(self._end(deployment))
            _log.info("deployment_retired query_id=%s", query_id)

    async def _end(self, deployment: _Deployment) -> None:
        if deployment.keeper is not None:
            deployment.keeper.cancel()
            await asyncio.gather(deployment.keeper, return_exceptions=True)
        await self.followers.left()
        await deployment.dispatcher.close(drain_s=_DRAIN_S)
        await self._keep_once(deployment)
        await _stopped(deployment.supervisors)

    async def _drained(self, supervisors: Sequence[InstanceSupervisor]) -> None:
        if supervisors:
            await self.followers.left()
        await asyncio.gather(*(each.retire(drain_s=_DRAIN_S) for each in supervisors))

    async def _keep(self, deployment: _Deployment) -> None:
        while True:
            await asyncio.sleep(_MEMORY_S)
            await self._keep_once(deployment)

    async def _keep_once(self, deployment: _Deployment) -> None:
        if self.memory is not None:
            learnt = deployment.dispatcher.learnt()
            keeping = asyncio.to_thread(self.memory.keep, deployment.plan_id, learnt)
            # forgetting costs a few predictions, not the service
            await _kept(keeping, "latencies_not_kept", deployment)
        bill = deployment.dispatcher.bill()
        if self.bills is not None and bill is not None and bill != deployment.billed:
            told = (deployment.run, deployment.query_id, bill)
            keeping = asyncio.to_thread(self.bills.keep, *told)
            if await _kept(keeping, "bill_not_kept", deployment):
                deployment.billed = bill


async def _kept(keeping: Awaitable[None], what: str, deployment: _Deployment) -> bool:
    """Say whether something was kept; if not, the next time is soon."""
    try:
        await keeping
    except Unavailable:  # the memory tells of it
        return False
    except Exception:  # noqa: BLE001 - no reason not to serve
        _log.warning("%s plan_id=%s", what, deployment.plan_id, exc_info=True)
        return False
    return True


async def _stopped(supervisors: Iterable[InstanceSupervisor]) -> None:
    await asyncio.gather(*(supervisor.stop() for supervisor in supervisors))
