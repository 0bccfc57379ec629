"""Makes what should run run, and sends requests to it.

`apply` compares what should run with what runs, starts what is missing, and only when a
query's new plan is ready moves its requests over and stops the old one: for that moment
both run. A plan that cannot start changes nothing about the one that serves.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from deploy.dispatcher import Dispatcher, DispatchSettings, RequestResult
from deploy.errors import LaunchFailed
from deploy.instances import DesiredDeployment, InstanceKey, InstanceSpec, Launcher
from deploy.latency_memory import Forgetful, LatencyMemory
from deploy.monitor import Observed
from deploy.queue_figures import QueueFigures
from deploy.reconcile import changes, instances_of
from deploy.supervisor import InstanceStatus, RestartSettings, Supervisor
from deploy.warm_up import WarmUp
from deploy.workers.client import WorkerClient
from pipelines import checks
from pipelines.clock import Clock
from pipelines.errors import InvalidInput, Unavailable
from pipelines.graph import PipelineGraph
from pipelines.infrastructure import Infrastructure
from pipelines.payload import Payload
from scheduler.dispatch.policy import DispatchPolicy

_log = logging.getLogger(__name__)


class DeploymentPhase(StrEnum):
    """What a query's deployment is up to."""

    STARTING = "starting"
    """Its first instances are being started."""
    SERVING = "serving"
    """Every instance is up."""
    DEGRADED = "degraded"
    """An instance is down and being started again."""
    FAILED = "failed"
    """It did not start; nothing of it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentStatus:
    """A query's deployment, for people.

    Attributes:
        phase: What it is up to.
        plan_id: Of the plan that serves, or that starts or failed when none serves.
        instances: Of the plan that serves.
        observed: What its requests took; None when it does not serve.
        reason: Why the latest plan did not start; None if it did.
    """

    phase: DeploymentPhase
    plan_id: str
    instances: tuple[InstanceStatus, ...] = ()
    observed: Observed | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorSettings:
    """How deployments are started and ended.

    Attributes:
        dispatch: How requests are handled.
        restart: When instances are started again.
        warm_up_s: Longest first run of a segment, `> 0`. 120: it may load a large model.
        drain_s: How long requests in hand may go on when a plan is replaced, `> 0`.
        starts: Most instances started at once, `>= 1`; None: one per CPU.
        memory: Keeps learnt latencies over restarts.
        memory_s: Seconds between two times that they are kept, `> 0`.
    """

    dispatch: DispatchSettings = field(default_factory=DispatchSettings)
    restart: RestartSettings = field(default_factory=RestartSettings)
    warm_up_s: float = 120.0
    drain_s: float = 5.0
    starts: int | None = None
    memory: LatencyMemory = field(default_factory=Forgetful)
    memory_s: float = 10.0

    def __post_init__(self) -> None:
        checks.positive("warm_up_s", self.warm_up_s)
        checks.positive("drain_s", self.drain_s)
        checks.positive("memory_s", self.memory_s)
        if self.starts is not None:
            checks.require(self.starts >= 1, "starts", "must be >= 1", self.starts)


@dataclass(slots=True, eq=False)
class _Deployment:
    """A plan that serves."""

    plan_id: str
    dispatcher: Dispatcher
    supervisors: Mapping[InstanceKey, Supervisor]
    keeper: asyncio.Task[None] | None = None


class Orchestrator:
    """All deployments of one infrastructure. Used within one event loop."""

    def __init__(
        self,
        infrastructure: Infrastructure,
        launcher: Launcher,
        graph_of: Callable[[str], PipelineGraph],
        policy: DispatchPolicy,
        clock: Clock,
        settings: OrchestratorSettings | None = None,
    ) -> None:
        """Make an orchestrator of nothing.

        Args:
            infrastructure: Tiers and links.
            launcher: Starts instances.
            graph_of: Gives the graph of a pipeline reference; raises InvalidInput.
            policy: Picks the instance of a request.
            clock: For latencies.
            settings: None takes the defaults.
        """
        self._infrastructure = infrastructure
        self._imitated = infrastructure
        self._launcher = launcher
        self._graph_of = graph_of
        self._policy = policy
        self._clock = clock
        self._settings = settings or OrchestratorSettings()
        self._starts = asyncio.Semaphore(self._settings.starts or os.cpu_count() or 1)
        self._serving: dict[str, _Deployment] = {}
        self._pending: dict[str, str] = {}  # query -> plan that is being started
        self._failed: dict[str, tuple[str, str]] = {}  # query -> (plan, reason)
        self._one_at_a_time = asyncio.Lock()

    async def apply(self, desired: Mapping[str, DesiredDeployment]) -> None:
        """Let exactly the desired plans serve, by query id; return when they do.

        A plan that does not start is told by `status`, and tried again by the next call; the
        others are not held up by it.

        Raises:
            InvalidInput: If a plan does not fit its pipeline or the infrastructure; nothing was
                changed then.
        """
        async with self._one_at_a_time:
            graphs = {query: self._graph_of(d.pipeline_reference) for query, d in desired.items()}
            specs: dict[InstanceKey, InstanceSpec] = {}
            for query, deployment in desired.items():
                specs |= instances_of(query, deployment, graphs[query], self._infrastructure)
            running = [key for d in self._serving.values() for key in d.supervisors]
            todo = changes(specs, running)
            starting = dict.fromkeys(spec.key.query_id for spec in todo.start)
            ending = dict.fromkeys(key.query_id for key in todo.stop)
            self._failed = {q: why for q, why in self._failed.items() if q in starting}
            await asyncio.gather(
                *(self._replace(q, desired[q], graphs[q], specs) for q in starting),
                *(self._retire(q) for q in ending if q not in starting),
            )

    def imitate(self, infrastructure: Infrastructure) -> None:
        """Let emulated links be as thin as those of an infrastructure with the same tiers.

        Nobody who plans hears of it: so a drift of the network is tried out.
        """
        self._imitated = infrastructure
        for deployment in self._serving.values():
            deployment.dispatcher.imitate(infrastructure)

    async def request(self, query_id: str, input: Payload, *, timeout_s: float) -> RequestResult:
        """Give the output for an input; errors as `Dispatcher.request`.

        Raises:
            InvalidInput: If the query is not deployed.
            Unavailable: If its deployment does not serve (yet).
        """
        if query_id in self._serving:
            dispatcher = self._serving[query_id].dispatcher
            return await dispatcher.request(input, timeout_s=timeout_s)
        status = self.status(query_id)
        raise Unavailable(f"query {query_id} is {status.phase}", retry_after_s=1.0)

    def status(self, query_id: str) -> DeploymentStatus:
        """Give how a query's deployment fares.

        Raises:
            InvalidInput: If there is none.
        """
        reason = self._failed[query_id][1] if query_id in self._failed else None
        if query_id in self._serving:
            return _status(self._serving[query_id], reason)
        if query_id in self._pending:
            plan_id = self._pending[query_id]
            return DeploymentStatus(phase=DeploymentPhase.STARTING, plan_id=plan_id)
        if query_id in self._failed:
            plan_id = self._failed[query_id][0]
            return DeploymentStatus(phase=DeploymentPhase.FAILED, plan_id=plan_id, reason=reason)
        raise InvalidInput.of("query", "must be deployed", query_id)

    def figures(self) -> dict[str, dict[str, QueueFigures]]:
        """Give query id -> tier -> its queue at this moment, of the plans that serve."""
        return {query: d.dispatcher.figures() for query, d in self._serving.items()}

    async def close(self) -> None:
        """Stop everything; may be called again."""
        await self.apply({})

    async def _replace(
        self,
        query_id: str,
        desired: DesiredDeployment,
        graph: PipelineGraph,
        specs: Mapping[InstanceKey, InstanceSpec],
    ) -> None:
        plan_id = desired.plan.id
        self._pending[query_id] = plan_id
        try:
            own = [spec for key, spec in specs.items() if key.query_id == query_id]
            fresh = await self._started(desired, graph, own)
        except LaunchFailed as error:
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

    async def _started(
        self, desired: DesiredDeployment, graph: PipelineGraph, specs: Iterable[InstanceSpec]
    ) -> _Deployment:
        settings = self._settings
        dispatcher = Dispatcher(
            graph,
            desired.plan,
            self._imitated,
            self._policy,
            self._clock,
            settings.dispatch,
        )
        dispatcher.recall(await asyncio.to_thread(settings.memory.recall, desired.plan.id))
        warm_up = WarmUp(dispatcher.segments, desired.sample, timeout_s=settings.warm_up_s)
        supervisors = {
            spec.key: Supervisor(
                spec, self._launcher, dispatcher, warm_up, settings.restart, self._clock
            )
            for spec in specs
        }
        deployment = _Deployment(desired.plan.id, dispatcher, supervisors)
        try:
            await warm_up.all(await self._launched(supervisors))
            for supervisor in supervisors.values():
                supervisor.serve()
        except BaseException:  # also when cancelled: nothing may be left running
            await self._end(deployment)
            raise
        deployment.keeper = asyncio.get_running_loop().create_task(self._keep(deployment))
        return deployment

    async def _launched(
        self, supervisors: Mapping[InstanceKey, Supervisor]
    ) -> dict[str, list[WorkerClient]]:
        async def launch(supervisor: Supervisor) -> WorkerClient:
            async with self._starts:
                return await supervisor.launch()

        # All are waited for, so that none is still starting when the others are stopped.
        launches = [launch(supervisor) for supervisor in supervisors.values()]
        results = await asyncio.gather(*launches, return_exceptions=True)
        clients: dict[str, list[WorkerClient]] = {}
        for key, result in zip(supervisors, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            clients.setdefault(key.tier, []).append(result)
        return clients

    async def _retire(self, query_id: str) -> None:
        await self._end(self._serving.pop(query_id))
        _log.info("deployment_retired query_id=%s", query_id)

    async def _end(self, deployment: _Deployment) -> None:
        if deployment.keeper is not None:
            deployment.keeper.cancel()
            await asyncio.gather(deployment.keeper, return_exceptions=True)
        await deployment.dispatcher.close(drain_s=self._settings.drain_s)
        await self._keep_once(deployment)
        await asyncio.gather(*(s.stop() for s in deployment.supervisors.values()))

    async def _keep(self, deployment: _Deployment) -> None:
        while True:
            await asyncio.sleep(self._settings.memory_s)
            await self._keep_once(deployment)

    async def _keep_once(self, deployment: _Deployment) -> None:
        learnt = deployment.dispatcher.learnt()
        try:
            await asyncio.to_thread(self._settings.memory.keep, deployment.plan_id, learnt)
        except Exception:  # noqa: BLE001 - forgetting costs a few predictions, not the service
            _log.warning("latencies_not_kept plan_id=%s", deployment.plan_id, exc_info=True)


def _status(deployment: _Deployment, reason: str | None) -> DeploymentStatus:
    instances = tuple(supervisor.status() for supervisor in deployment.supervisors.values())
    up = all(instance.up for instance in instances)
    return DeploymentStatus(
        phase=DeploymentPhase.SERVING if up else DeploymentPhase.DEGRADED,
        plan_id=deployment.plan_id,
        instances=instances,
        observed=deployment.dispatcher.latencies.observed(),
        reason=reason,
    )
