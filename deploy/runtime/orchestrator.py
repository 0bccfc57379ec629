"""Brings what runs to what should run, and sends requests to it.

`apply` compares both, starts what is missing, and only when a query's new plan is ready moves its
requests over and stops the old one: for that moment both run. A plan that cannot start changes
nothing about the one that serves. Where the plan stays, and instances of it have to run elsewhere,
these alone are replaced, in the same way.

Every query has a transition of its own: one that takes minutes to start delays no other, nor does
one that cannot. What is desired last counts: a start that is no longer desired is abandoned.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field

from circinus.deploy.runtime.calls import CallGate, UnlimitedCalls
from circinus.deploy.runtime.deployment import (
    DeploymentPhase,
    DeploymentStatus,
    InstanceStarts,
    RunningDeployment,
)
from circinus.deploy.runtime.dispatcher import Dispatcher
from circinus.deploy.runtime.following import Followers, NoFollowers, ServedDeployment
from circinus.deploy.runtime.instances import DesiredDeployment, Launcher, instances_of
from circinus.deploy.runtime.learning import LatencyMemory
from circinus.deploy.runtime.report import BillMemory, DeploymentReport
from circinus.deploy.runtime.supervisor import WarmUp
from circinus.deploy.runtime.walk import RequestResult, RequestTerms
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.payload import Payload
from circinus.scheduler.dispatch.policy import DispatchPolicy

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Transition:
    """A query on its way to what is desired of it."""

    goal: object  # see `DesiredDeployment.goal`; None: it ends
    task: asyncio.Task[None]


@dataclass(slots=True, eq=False)
class Orchestrator:
    """All deployments of one infrastructure. Used within one event loop."""

    infrastructure: Infrastructure
    launcher: Launcher
    # of a reference; raises InvalidInput. Called off the event loop: loading may take long
    pipeline_of: Callable[[str], Pipeline]
    policy: DispatchPolicy  # picks the instance of a request
    clock: Clock  # for latencies
    # deviates: bounded-queue
    queue_limit: int = 64  # most that wait for one tier, `>= 1`. More would wait for seconds
    memory: LatencyMemory | None = None  # keeps what was learnt over restarts; None: nothing does
    gate: CallGate = field(default_factory=UnlimitedCalls)  # of calls to endpoints
    bills: BillMemory | None = None  # stores their usage; None: nothing does
    followers: Followers = field(default_factory=NoFollowers)  # who send requests, too
    emulated: Infrastructure = field(init=False)  # whose emulated links are waited for
    _starts: InstanceStarts = field(init=False)
    _serving: dict[str, RunningDeployment] = field(default_factory=dict, init=False)  # by query
    _pending: dict[str, str] = field(default_factory=dict, init=False)  # plan that is started
    _failed: dict[str, tuple[str, str]] = field(default_factory=dict, init=False)  # plan, reason
    _withheld: set[str] = field(default_factory=set, init=False)  # queries about to end
    # what should serve, by query; None: not set yet
    _desired: Mapping[str, DesiredDeployment] | None = field(default=None, init=False)
    _transitions: dict[str, _Transition] = field(default_factory=dict, init=False)
    # of queries: a new transition waits until the one before is put in order
    _turns: defaultdict[str, asyncio.Lock] = field(init=False)
    _endings: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.emulated = self.infrastructure
        checks.at_least("queue_limit", self.queue_limit, 1)
        self._starts = InstanceStarts(self.launcher, self.clock)
        self._turns = defaultdict(asyncio.Lock)

    async def apply(self, desired: Mapping[str, DesiredDeployment]) -> None:
        """Serve exactly the desired plans, by query id; return when they serve.

        A plan that does not start, or does not fit its pipeline or the infrastructure, is reported
        by `status`, holds up no other, and is tried again by the next call. Calls may overlap: the
        latest sets what is desired, and what has begun and is still desired goes on. A call that
        is cancelled stops nothing: only another call does.
        """
        self._desired = dict(desired)
        for query in desired.keys() & self._serving.keys():  # also where the plan stays
            self._serving[query].dispatcher.deadline_s = desired[query].deadline_s
        self._failed = {
            q: why
            for q, why in self._failed.items()
            if q in desired and not self._is_served(q, desired[q])
        }
        self._withheld &= desired.keys()
        known = {*desired, *self._serving, *self._transitions}
        tasks = [self._start_transition(query) for query in known]
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():  # then a later call wanted something else
                task.result()

    def emulate(self, infrastructure: Infrastructure) -> None:
        """Emulate the links of an infrastructure with equal tiers, unknown to planners."""
        self.emulated = infrastructure
        for deployment in self._serving.values():
            deployment.dispatcher.emulate(infrastructure)

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

    def shed_infeasible(
        self, query_id: str, arrived: float, *, unless: Callable[[], bool]
    ) -> None:
        """Raise TooManyRequests as `Dispatcher.shed_infeasible` does, if the query is served."""
        if query_id in self._serving:
            self._serving[query_id].dispatcher.shed_infeasible(arrived, unless=unless)

    def serving(self) -> dict[str, str]:
        """Return query id -> plan that serves, by id."""
        return {query: deployment.plan_id for query, deployment in self._serving.items()}

    def served(self) -> dict[str, ServedDeployment]:
        """Return query id -> what answers its requests, for others who send it some, too."""
        return {q: d.served() for q, d in self._serving.items() if q not in self._withheld}

    def awaited(self) -> frozenset[str] | None:
        """Return the queries that should be served, and are not (yet); None: not set."""
        return None if self._desired is None else frozenset(self._desired.keys() - self._serving)

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

    def reports(self) -> dict[str, DeploymentReport]:
        """Return query id -> what its requests got from here, of the plans that serve."""
        return {query: dispatcher.report() for query, dispatcher in self.dispatchers().items()}

    def dispatchers(self) -> dict[str, Dispatcher]:
        """Return query id -> what sends its requests to instances, of the plans that serve."""
        return {query: deployment.dispatcher for query, deployment in self._serving.items()}

    async def close(self) -> None:
        """Stop everything; may be called again."""
        await self.apply({})
        if self._endings:
            await asyncio.wait(self._endings)

    def _is_served(self, query_id: str, desired: DesiredDeployment) -> bool:
        serving = self._serving.get(query_id)
        return serving is not None and serving.plan_id == desired.plan.id

    def _start_transition(self, query_id: str) -> asyncio.Task[None]:
        """Send a query on the way to what is desired of it, unless it is on it."""
        desired = (self._desired or {}).get(query_id)
        current = self._transitions.get(query_id)
        goal = None if desired is None else desired.goal
        if current is not None:
            if current.goal == goal:
                return current.task
            current.task.cancel()
        if desired is not None and query_id not in self._serving:
            self._pending[query_id] = desired.plan.id
        task = asyncio.create_task(self._run(query_id, desired))
        self._transitions[query_id] = _Transition(goal, task)
        task.add_done_callback(lambda task: self._finish(query_id, task))
        return task

    def _finish(self, query_id: str, task: asyncio.Task[None]) -> None:
        current = self._transitions.get(query_id)
        if current is not None and current.task is task:
            del self._transitions[query_id]
            self._turns.pop(query_id, None)
            self._pending.pop(query_id, None)

    async def _run(self, query_id: str, desired: DesiredDeployment | None) -> None:
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
            deployment = await self._start(query_id, desired)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one is no other's
            self._fail("deployment_failed", query_id, plan_id, error)
            return
        self._failed.pop(query_id, None)
        old = self._serving.get(query_id)
        # Both may have changed during the start.
        deployment.dispatcher.emulate(self.emulated)
        latest = (self._desired or {}).get(query_id, desired)
        deployment.dispatcher.deadline_s = latest.deadline_s
        self._serving[query_id] = deployment
        _log.info("deployment_serving query_id=%s plan_id=%s", query_id, plan_id)
        if old is not None:
            await self._shielded(old.end())

    async def _start(self, query_id: str, desired: DesiredDeployment) -> RunningDeployment:
        pipeline = await asyncio.to_thread(self.pipeline_of, desired.pipeline_reference)
        specs = instances_of(query_id, desired, pipeline.graph, self.infrastructure)
        dispatcher = Dispatcher(
            pipeline,
            desired.plan,
            self.emulated,
            self.policy,
            self.clock,
            self.queue_limit,
            self.gate,
        )
        dispatcher.deadline_s = desired.deadline_s
        remote = [tier.name for tier in self.infrastructure.tiers if tier.remote]
        deployment = RunningDeployment(
            query_id,
            desired,
            dispatcher,
            WarmUp(dispatcher.segments, desired.sample, remote),
            self._starts,
            shield=self._shielded,
            left=lambda: self.followers.left(),
            memory=self.memory,
            bills=self.bills,
        )
        await deployment.start(specs.values())
        return deployment

    async def _reshape(self, query_id: str, desired: DesiredDeployment) -> None:
        deployment = self._serving[query_id]
        try:
            graph = deployment.dispatcher.pipeline.graph
            specs = instances_of(query_id, desired, graph, self.infrastructure)
            await deployment.reshape(specs, desired)
        except Exception as error:  # noqa: BLE001 - as there
            self._fail("reshaping_failed", query_id, deployment.plan_id, error)

    def _fail(self, event: str, query_id: str, plan_id: str, error: Exception) -> None:
        self._failed[query_id] = (plan_id, str(error) or type(error).__name__)
        foreseen = isinstance(error, CircinusError)
        _log.warning("%s query_id=%s cause=%s", event, query_id, error, exc_info=not foreseen)

    async def _retire(self, query_id: str) -> None:
        deployment = self._serving.pop(query_id, None)
        if deployment is not None:
            await self._shielded(deployment.end())
            _log.info("deployment_retired query_id=%s", query_id)

    async def _shielded(self, work: Coroutine[None, None, None]) -> None:
        """Wait for work that goes on, and is waited for by `close`, if this is cancelled."""
        task = asyncio.create_task(work)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        await asyncio.shield(task)
