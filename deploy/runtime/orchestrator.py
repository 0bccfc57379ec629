"""Makes what should run run, and sends requests to it.

`apply` compares what should run with what runs, starts what is missing, and only when a
query's new plan is ready moves its requests over and stops the old one: for that moment
both run. A plan that cannot start changes nothing about the one that serves. Where the plan
stays, and instances of it have to run elsewhere, these alone are replaced, in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from circinus.deploy.runtime.dispatcher import (
    Dispatcher,
    Observed,
    RequestResult,
    RequestTerms,
    Taken,
)
from circinus.deploy.runtime.instances import (
    DesiredDeployment,
    InstanceKey,
    InstanceSpec,
    Launcher,
    instances_of,
)
from circinus.deploy.runtime.learning import LatencyMemory
from circinus.deploy.runtime.supervisor import InstanceStatus, InstanceSupervisor, WarmUp
from circinus.deploy.runtime.tier_queue import QueueFigures
from circinus.deploy.runtime.traffic import Lately
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import LaunchFailed
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import InvalidInput, Unavailable
from circinus.pipelines.graph import PipelineGraph
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.payload import Payload
from circinus.pipelines.pipeline import Pipeline
from circinus.scheduler.dispatch.policy import DispatchPolicy

_DRAIN_S = 5.0  # how long requests in hand may go on when a plan is replaced
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
    reason: str | None = None  # why the latest plan did not start; None if it did


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """What the latest answers of a deployment took."""

    plan_id: str
    answered: int  # requests since it began, `taken` the last of them
    taken: tuple[Taken, ...]


@dataclass(slots=True, eq=False)
class _Deployment:
    """A plan that serves."""

    plan_id: str
    dispatcher: Dispatcher
    supervisors: Sequence[InstanceSupervisor]
    warm_up: WarmUp
    keeper: asyncio.Task[None] | None = None

    def status(self, reason: str | None) -> DeploymentStatus:
        instances = tuple(supervisor.status.told() for supervisor in self.supervisors)
        up = all(instance.up for instance in instances)
        return DeploymentStatus(
            phase=DeploymentPhase.SERVING if up else DeploymentPhase.DEGRADED,
            plan_id=self.plan_id,
            instances=instances,
            observed=self.dispatcher.latencies.observed(),
            lately=self.dispatcher.lately(),
            reason=reason,
        )


def changes(
    desired: Mapping[str, str], serving: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give the queries whose plan has to start, and those that have to end, from plans' ids."""
    start = tuple(query for query, plan in desired.items() if serving.get(query) != plan)
    return start, tuple(query for query in serving if query not in desired)


def compared(
    wanted: Mapping[InstanceKey, InstanceSpec], running: Iterable[InstanceSupervisor]
) -> tuple[list[InstanceSpec], list[InstanceSupervisor]]:
    """Give the instances of a plan that have to start, and those that have to end."""
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
    _imitated: Infrastructure = field(init=False)
    _starts: asyncio.Semaphore = field(init=False)
    _serving: dict[str, _Deployment] = field(default_factory=dict, init=False)  # by query
    _pending: dict[str, str] = field(default_factory=dict, init=False)  # plan that is started
    _failed: dict[str, tuple[str, str]] = field(default_factory=dict, init=False)  # plan, reason
    _withheld: set[str] = field(default_factory=set, init=False)  # queries about to end
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        self._imitated = self.infrastructure
        checks.at_least("queue_limit", self.queue_limit, 1)
        self._starts = asyncio.Semaphore(os.cpu_count() or 1)

    async def apply(self, desired: Mapping[str, DesiredDeployment]) -> None:
        """Let exactly the desired plans serve, by query id; return when they do.

        A plan that does not start, or does not fit its pipeline or the infrastructure, is told by
        `status`, holds up no other, and is tried again by the next call.
        """
        async with self._one_at_a_time:
            start, end = changes(
                {query: d.plan.id for query, d in desired.items()},
                {query: d.plan_id for query, d in self._serving.items()},
            )
            for query in desired.keys() & self._serving.keys():  # also where the plan stays
                self._serving[query].dispatcher.deadline_s = desired[query].deadline_s
            self._failed = {q: why for q, why in self._failed.items() if q in start}
            self._withheld &= desired.keys()
            await asyncio.gather(
                *(self._replace(q, desired[q]) for q in start),
                *(self._reshape(q, desired[q]) for q in desired if q not in start),
                *(self._retire(q) for q in end),
            )

    def imitate(self, infrastructure: Infrastructure) -> None:
        """Let emulated links be those of an infrastructure with equal tiers; no planner hears."""
        self._imitated = infrastructure
        for deployment in self._serving.values():
            deployment.dispatcher.imitate(infrastructure)

    async def request(self, query_id: str, input: Payload, terms: RequestTerms) -> RequestResult:
        """Give the output for an input; errors as `Dispatcher.request`.

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
        """Give the plan that answers requests to a query, by id; None: none does."""
        serving = self._serving.get(query_id)
        return None if serving is None or query_id in self._withheld else serving.plan_id

    def refuse_hopeless(
        self, query_id: str, arrived: float, *, unless: Callable[[], bool]
    ) -> None:
        """Raise TooManyRequests as `Dispatcher.refuse_hopeless` does, if the query is served."""
        if query_id in self._serving:
            self._serving[query_id].dispatcher.refuse_hopeless(arrived, unless=unless)

    def serving(self) -> dict[str, str]:
        """Give query id -> plan that serves, by id."""
        return {query: deployment.plan_id for query, deployment in self._serving.items()}

    def status(self, query_id: str) -> DeploymentStatus:
        """Give how a query's deployment fares; InvalidInput if there is none."""
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
        """Give query id -> tier -> its queue at this moment, of the plans that serve."""
        return {
            query: {tier: queue.figures() for tier, queue in d.dispatcher.queues.items()}
            for query, d in self._serving.items()
        }

    def lately(self) -> dict[str, tuple[Lately, ...]]:
        """Give query id -> what its requests got lately, of the plans that serve."""
        return {query: d.dispatcher.lately() for query, d in self._serving.items()}

    def recent(self) -> dict[str, Recent]:
        """Give query id -> what its latest answers took, of the plans that serve."""
        return {
            query: Recent(
                plan_id=d.plan_id,
                answered=d.dispatcher.latencies.count,
                taken=tuple(d.dispatcher.taken),
            )
            for query, d in self._serving.items()
        }

    def arrivals_per_s(self) -> dict[str, float]:
        """Give query id -> how many requests a second come now, of the plans that serve."""
        now = self.clock.now()
        return {q: d.dispatcher.traffic.arrivals_per_s(now) for q, d in self._serving.items()}

    async def close(self) -> None:
        """Stop everything; may be called again."""
        await self.apply({})

    async def _replace(self, query_id: str, desired: DesiredDeployment) -> None:
        plan_id = desired.plan.id
        self._pending[query_id] = plan_id
        try:
            fresh = await self._started(query_id, desired)
        except (LaunchFailed, InvalidInput) as error:
            _log.warning("deployment_failed query_id=%s plan_id=%s", query_id, plan_id)
            self._failed[query_id] = (plan_id, str(error))
            return
        finally:
            del self._pending[query_id]
        self._failed.pop(query_id, None)
        old = self._serving.get(query_id)
        fresh.dispatcher.imitate(self._imitated)  # it may have changed during the start
        self._serving[query_id] = fresh
        _log.info("deployment_serving query_id=%s plan_id=%s", query_id, plan_id)
        if old is not None:
            await self._end(old)

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
                await asyncio.gather(*(s.stop() for s in fresh))
                raise
        except (LaunchFailed, InvalidInput) as error:
            _log.warning("reshaping_failed query_id=%s cause=%s", query_id, error)
            self._failed[query_id] = (deployment.plan_id, str(error))
            return
        kept = [s for s in deployment.supervisors if s not in surplus]
        deployment.supervisors = [*kept, *fresh]
        if fresh or surplus:
            await asyncio.gather(*(s.retire(drain_s=_DRAIN_S) for s in surplus))
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
            pipeline, plan, self._imitated, self.policy, self.clock, self.queue_limit
        )
        dispatcher.deadline_s = desired.deadline_s
        if self.memory is not None:
            with contextlib.suppress(Unavailable):  # then it learns anew
                dispatcher.recall(await asyncio.to_thread(self.memory.recall, plan.id))
        warm_up = WarmUp(dispatcher.segments, desired.sample)
        deployment = _Deployment(plan.id, dispatcher, [], warm_up)
        deployment.supervisors = [self._supervisor(spec, deployment) for spec in specs]
        try:
            await warm_up.run(await self._launched(deployment.supervisors))
            for supervisor in deployment.supervisors:
                supervisor.serve()
        except BaseException:  # also when cancelled: nothing may be left running
            await self._end(deployment)
            raise
        deployment.keeper = asyncio.get_running_loop().create_task(self._keep(deployment))
        return deployment

    async def _launched(
        self, supervisors: Sequence[InstanceSupervisor]
    ) -> list[tuple[str, WorkerClient]]:
        async def launch(supervisor: InstanceSupervisor) -> tuple[str, WorkerClient]:
            async with self._starts:
                return await supervisor.launch()

        launches = [asyncio.ensure_future(launch(supervisor)) for supervisor in supervisors]
        # All are waited for, so that none is still starting when the others are stopped.
        await asyncio.gather(*launches, return_exceptions=True)
        return [launched.result() for launched in launches]

    async def _retire(self, query_id: str) -> None:
        await self._end(self._serving.pop(query_id))
        _log.info("deployment_retired query_id=%s", query_id)

    async def _end(self, deployment: _Deployment) -> None:
        if deployment.keeper is not None:
            deployment.keeper.cancel()
            await asyncio.gather(deployment.keeper, return_exceptions=True)
        await deployment.dispatcher.close(drain_s=_DRAIN_S)
        await self._keep_once(deployment)
        await asyncio.gather(*(s.stop() for s in deployment.supervisors))

    async def _keep(self, deployment: _Deployment) -> None:
        while True:
            await asyncio.sleep(_MEMORY_S)
            await self._keep_once(deployment)

    async def _keep_once(self, deployment: _Deployment) -> None:
        if self.memory is None:
            return
        learnt = deployment.dispatcher.learnt()
        try:
            await asyncio.to_thread(self.memory.keep, deployment.plan_id, learnt)
        except Unavailable:  # the memory tells of it; the next time is soon
            pass
        except Exception:  # noqa: BLE001 - forgetting costs a few predictions, not the service
            _log.warning("latencies_not_kept plan_id=%s", deployment.plan_id, exc_info=True)
