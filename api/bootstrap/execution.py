"""What runs operators while planning: this process, workers of a pool, a tier or Ray."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from circinus.api.executor_choice import ExecutorChoice, ExecutorKind
from circinus.deploy.local.cgroups import available
from circinus.deploy.local.launcher import LocalLauncher
from circinus.deploy.profiling.pool import ProfilingPoolSettings, WorkerPool
from circinus.deploy.profiling.processes import ProcessPool
from circinus.deploy.profiling.tier import ProfiledTier, TierExecutor
from circinus.deploy.runtime.instances import emulated_speed
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.graph import PipelineGraph
from circinus.pipelines.infrastructure import Infrastructure, Tier
from circinus.pipelines.needs import package, require
from circinus.pipelines.pipeline import Pipeline
from circinus.profiler.execution import Executor, InProcess


@contextmanager
def opened_executor(
    choice: ExecutorChoice,
    reference: str,
    pipeline: Pipeline,
    infrastructure: Infrastructure,
    logs: Path,
) -> Iterator[Executor]:
    """Give what runs operators while planning; its workers end with the context.

    Args:
        choice: Which.
        reference: Names the pipeline, see `load_pipeline`.
        pipeline: The same.
        infrastructure: With the tier, for deployed workers.
        logs: Folder for the logs of deployed workers.

    Raises:
        InvalidInput: If the infrastructure has no such tier, or Ray is not installed.
    """
    clock = SystemClock()
    how = ProfilingPoolSettings(
        workers=choice.workers, timeout_s=choice.timeout_s, memory_bytes=choice.memory_bytes
    )
    if choice.kind is ExecutorKind.IN_PROCESS:
        yield InProcess(clock)
    elif choice.kind is ExecutorKind.POOL:
        with ProcessPool(reference, clock, how) as pool:
            yield pool
    elif choice.kind is ExecutorKind.RAY:
        with _ray_executor(choice.detail, reference, clock, how) as actors:
            yield actors
    else:
        tier = infrastructure.tier(choice.detail)
        launcher = LocalLauncher(
            logs=logs,
            cgroups=available(),
            allow_import=":" in reference,
            memory_bytes=how.memory_bytes,
        )
        place = ProfiledTier(tier=tier, speeds=_profiled_speeds(tier, pipeline.graph))
        with TierExecutor(
            reference, pipeline.graph, place, launcher, clock, settings=how
        ) as deployed:
            yield deployed


def _profiled_speeds(tier: Tier, graph: PipelineGraph) -> dict[str, float]:
    """Give what an operator's seconds on a worker of the tier are worth on the reference machine.

    An emulated tier is this computer, and only its waits are to be taken out again: a worker that
    profiles is as warm as this process would be, so that what a calibration found is not in it.
    """
    names = zip(graph.operators, graph.classes, strict=True)
    if tier.emulated:
        return {operator.name: emulated_speed(tier) for operator, _ in names}
    return {operator.name: tier.speed_of(name) for operator, name in names}


def _ray_executor(
    address: str, reference: str, clock: Clock, settings: ProfilingPoolSettings
) -> WorkerPool:
    require("executor", "ray", [package("ray", extra="ray")])
    ray = import_module("circinus.deploy.profiling.ray")  # an extra: only where it is asked for
    ray.connect(address or None)
    pool: WorkerPool = ray.RayExecutor(reference, clock, settings)
    return pool
