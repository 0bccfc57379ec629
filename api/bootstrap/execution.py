"""What runs operators to plan, in this process, a pool, on a tier or Ray, and to calibrate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from circinus.api.bootstrap.calls import calling_here, calls_endpoints, planning_gate
from circinus.api.bootstrap.planning import PriorWork, plan_query
from circinus.api.settings import ExecutorChoice, ExecutorKind, Settings
from circinus.deploy.local.cgroups import available
from circinus.deploy.local.launcher import LocalLauncher
from circinus.deploy.profiling.calibration import CalibrationSettings, Workload, all_calibrated
from circinus.deploy.profiling.calls import CallingSide
from circinus.deploy.profiling.checking import checked
from circinus.deploy.profiling.pool import ProfilingPoolSettings
from circinus.deploy.profiling.processes import ForkedPool, ProcessPool
from circinus.deploy.profiling.tier import ProfiledTier, TierExecutor
from circinus.deploy.runtime.instances import AttachedLauncher, Launcher, emulated_speed
from circinus.deploy.workers.process import busy_s
from circinus.deploy.workers.transport import files_in
from circinus.pipelines import checks
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.calling import OpenGate, PermitGate
from circinus.pipelines.execution.needs import package, require
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.query import Query
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.result import Observer, PlanningResult
from circinus.profiler.execution import Executor, InProcess

_CALIBRATION_STREAM = 2
_LARGEST_DRAW = 1_000_000


@contextmanager
def opened_executor(
    choice: ExecutorChoice,
    reference: str,
    pipeline: Pipeline,
    infrastructure: Infrastructure,
    logs: Path,
    gate: PermitGate | None = None,
) -> Iterator[Executor]:
    """Return what runs operators while planning; its workers end with the context.

    The reference names the pipeline, see `load_pipeline`; empty: fresh processes cannot import it,
    and the pool's are copies of this one. `logs` is a folder, for those of deployed workers.
    Operators that call endpoints need the gate's permit; None: no operator calls. InvalidInput if
    there is no such tier, Ray is not installed, or operators call where they cannot.
    """
    clock, calling = SystemClock(), calls_endpoints(pipeline)
    how = ProfilingPoolSettings(
        workers=max(choice.workers, choice.calling) if calling else choice.workers,
        at_once=choice.workers,
        timeout_s=choice.timeout_s,
        memory_bytes=choice.memory_bytes,
    )
    if calling:
        rule = f"must be pool or in-process: operators of {pipeline.name} call endpoints"
        here = choice.kind in (ExecutorKind.IN_PROCESS, ExecutorKind.POOL)
        checks.require(here, "executor", rule, choice.kind.value)
        rule = f"must be given a gate: operators of {pipeline.name} call endpoints"
        checks.require(gate is not None, "executor", rule, None)
    permit = gate or OpenGate()
    side = CallingSide.of(infrastructure.endpoints, permit)
    if choice.kind is ExecutorKind.IN_PROCESS:
        yield InProcess(clock, calling_here(infrastructure, permit, clock), busy_s)
    elif choice.kind is ExecutorKind.POOL:
        pool = (
            ProcessPool(reference, clock, how, calling=side)
            if reference
            else ForkedPool(pipeline, clock, how, calling=side)
        )
        with pool:
            yield pool
    elif choice.kind is ExecutorKind.RAY:
        require("executor", "ray", [package("ray", extra="ray")])
        ray = import_module("circinus.deploy.profiling.ray")  # only where it is used
        with (
            ray.connected(choice.detail or None),
            ray.RayExecutor(reference, clock, how) as actors,
        ):
            yield actors
    else:
        tier = infrastructure.tier(choice.detail)
        launcher = LocalLauncher(
            logs=logs,
            cgroups=available(),
            allow_import=":" in reference,
            memory_bytes=how.memory_bytes,
        )
        # An emulated tier is this computer, and only its waits are to be taken out again: a worker
        # that profiles is as warm as this process, so that it is not part of a calibration.
        graph = pipeline.graph
        speeds = {
            operator.name: emulated_speed(tier) if tier.emulated else tier.speed_of(name)
            for operator, name in zip(graph.operators, graph.classes, strict=True)
        }
        place = ProfiledTier(tier=tier, speeds=speeds)
        with TierExecutor(reference, graph, place, launcher, clock, settings=how) as deployed:
            yield deployed


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSampling:
    """With how many configurations, drawn at random, and examples for each to calibrate."""

    configurations: int
    inputs: int
    seed: int


def calibrated_infrastructure(
    infrastructure: Infrastructure,
    named: tuple[str, Pipeline],
    sampling: CalibrationSampling,
    settings: CalibrationSettings,
    *,
    addresses: Mapping[str, str],
    logs: Path,
) -> Infrastructure:
    """Return the infrastructure with the speed factors of its tiers, measured with one pipeline.

    Tiers without a machine are left out. The pipeline is `named` by its reference; what it needs
    once is prepared first. `addresses` are of workers that run, by tier; for the others workers
    are started by `Settings.target`: here, or as a pod for each. Those on other computers
    are called with the certificates in `Settings.worker_tls`. InvalidInput if the pipeline has
    no examples; in a cluster as `make_cluster_launcher`.
    """
    reference, pipeline = named
    if pipeline.examples is None:
        raise InvalidInput.of("pipeline", "must bring examples", pipeline.name)
    pipeline.make_ready()
    space = ConfigurationSpace(pipeline.graph)
    rng = np.random.default_rng([sampling.seed, _CALIBRATION_STREAM])
    count = min(sampling.configurations, space.size)
    numbers = rng.choice(min(space.size, _LARGEST_DRAW), count, replace=False).tolist()
    dataset = pipeline.examples(sampling.inputs, sampling.seed)
    workload = Workload(
        reference=reference,
        pipeline=pipeline,
        configurations=[space.configuration(number) for number in numbers],
        inputs=[example.input for example in dataset.examples],
    )
    with threadpool_limits(1):  # a machine of a local tier is one core
        tiers = asyncio.run(_measured(infrastructure, workload, settings, addresses, logs))
    return replace(infrastructure, tiers=tuple(tiers))


async def _measured(
    infrastructure: Infrastructure,
    workload: Workload,
    settings: CalibrationSettings,
    addresses: Mapping[str, str],
    logs: Path,
) -> list[Tier]:
    configured = Settings()
    with ExitStack() as last:
        started: Launcher
        in_pods = configured.target == "kubernetes"
        if in_pods:
            from circinus.api.bootstrap.orchestrators import make_cluster_launcher

            started = pods = make_cluster_launcher(configured)
            last.callback(pods.ready.stop)
        else:
            allows = ":" in workload.reference
            started = LocalLauncher(logs=logs, cgroups=available(), allow_import=allows)
        launcher = AttachedLauncher(addresses, started, files_in(configured.worker_tls))
        tiers, clock = infrastructure.tiers, SystemClock()
        return await all_calibrated(
            tiers, workload, launcher, clock, settings, one_computer=not in_pods
        )


def plan_here(  # noqa: PLR0913 - a query's four parts, and four that have a default
    query: Query,
    infrastructure: Infrastructure,
    pipeline: Pipeline,
    dataset: Dataset,
    *,
    observer: Observer | None = None,
    reference: str = "",
    executor: ExecutorChoice | None = None,
    prior: PriorWork | None = None,
) -> PlanningResult:
    """Return the plans of a query on a pipeline, or why there are none.

    Operators run in a process of their own, which is ended when they hang or eat memory: a fresh
    one that loads `reference` (`module:attribute`, or a registered name), or a copy of this one
    where there is none, so that a pipeline made in a notebook or a shell can be planned. The
    executor defaults to that of `Settings`. The observer receives progress and may cancel;
    `prior` is of earlier planning. InvalidInput if the parts do not fit together, or a
    pipeline that was read off a chain does not return what the chain returns.
    """
    settings = Settings()
    cancelled = (lambda: False) if observer is None else observer.cancelled
    check = checked(reference, pipeline, dataset.examples, cancelled=cancelled)
    prior = replace(prior or PriorWork(), draws=check.draws)
    choice = executor or settings.executor_choice
    logs = settings.worker_logs
    with (
        planning_gate(query, infrastructure, pipeline, prior.ledger) as gate,
        opened_executor(choice, reference, pipeline, infrastructure, logs, gate.permits) as runs,
    ):
        result = plan_query(
            query,
            infrastructure,
            pipeline,
            dataset,
            observer,
            prior=prior,
            executor=runs,
            gate=gate,
        )
    return replace(result, remarks=tuple(dict.fromkeys((*check.remarks, *result.remarks))))
