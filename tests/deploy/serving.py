"""What the tests with real worker processes share."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from circinus.deploy.local.cgroups import Cgroups, available
from circinus.deploy.local.launcher import LocalLauncher
from circinus.deploy.profiling.pool import ProfilingPoolSettings
from circinus.deploy.profiling.tier import ProfiledTier, TierExecutor
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.learning import LatencyMemory
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.runtime.walk import RequestTerms
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.plan import Deployment, Plan
from circinus.pipelines.model.slo import Estimate
from circinus.pipelines.model.tiers import Tier
from circinus.pipelines.registry import load_pipeline
from circinus.scheduler.dispatch.matching import MinCostMatching

MODULE = "tests.deploy.tiny_pipelines"
ONE_TIER = Infrastructure(name="one", tiers=(Tier(name="cloud", machines=4),))
LOCAL = PRESETS["local"]
DUTY_CYCLES = "quotas are not wanted"


def reference(name: str) -> str:
    return f"{MODULE}:{name}"


def tiny(name: str) -> Pipeline:
    return load_pipeline(reference(name), allow_import=True)


def pipeline_of(ref: str) -> Pipeline:
    return load_pipeline(ref, allow_import=True)


def plan(
    name: str,
    placement: Mapping[str, str] | None = None,
    *,
    shares: Mapping[str, float] | None = None,
    replicas: Mapping[str, int] | None = None,
    configuration: Mapping[str, Mapping[str, KnobValue]] | None = None,
) -> Plan:
    """A plan for a tiny pipeline; shares and replicas are by tier, 1 where not given."""
    graph = tiny(name).graph
    placed = {op.name: (placement or {}).get(op.name, "cloud") for op in graph.operators}
    deployment = Deployment(
        placement=placed,
        allocation={o: (shares or {}).get(tier, 1.0) for o, tier in placed.items()},
        replicas={o: (replicas or {}).get(tier, 1) for o, tier in placed.items()},
    )
    estimate = Estimate(value=1.0, low=1.0, high=1.0, confidence=0.95, inputs=1)
    return Plan(
        pipeline=graph.name,
        configuration=ConfigurationSpace(graph).parse(configuration or {}),
        deployment=deployment,
        demand=deployment.demand(graph),
        accuracy=estimate,
        latency_s=estimate,
        cost_usd_per_hour=0.0,
        tier_service_s={},
    )


def desired(name: str, chosen: Plan | None = None, sample: Payload = None) -> DesiredDeployment:
    return DesiredDeployment(
        pipeline_reference=reference(name), plan=chosen or plan(name), sample=sample
    )


def within(timeout_s: float) -> RequestTerms:
    return RequestTerms(timeout_s=timeout_s)


def launcher(logs: Path, cgroups: Cgroups | str = DUTY_CYCLES, **options: float) -> LocalLauncher:
    memory = options.get("memory_bytes")
    return LocalLauncher(
        logs=logs,
        cgroups=cgroups,
        allow_import=True,
        start_timeout_s=options.get("start_timeout_s", 30.0),
        memory_bytes=None if memory is None else int(memory),
    )


def deployed(
    ref: str, pipeline: Pipeline, logs: Path, *, tier: Tier | None = None, **settings: float
) -> TierExecutor:
    """An executor over deployed workers of a tier that is as fast as the reference machine."""
    return TierExecutor(
        ref,
        pipeline.graph,
        ProfiledTier(tier=tier or ONE_TIER.tiers[0]),
        launcher(logs),
        SystemClock(),
        settings=ProfilingPoolSettings(**settings),  # type: ignore[arg-type]  # whichever the test sets
    )


@asynccontextmanager
async def serving(
    logs: Path,
    deployments: Mapping[str, DesiredDeployment],
    infrastructure: Infrastructure = ONE_TIER,
    *,
    cgroups: Cgroups | str = DUTY_CYCLES,
    queue_limit: int = 64,
    memory: LatencyMemory | None = None,
    pipelines: Callable[[str], Pipeline] = pipeline_of,
) -> AsyncIterator[Orchestrator]:
    """An orchestrator with these deployments; on the way out nothing of it may be left."""
    orchestrator = Orchestrator(
        infrastructure,
        launcher(logs, cgroups),
        pipelines,
        MinCostMatching(),
        SystemClock(),
        queue_limit=queue_limit,
        memory=memory,
    )
    try:
        await orchestrator.apply(deployments)
        yield orchestrator
    finally:
        await orchestrator.close()


def pids_of(orchestrator: Orchestrator, query: str) -> list[int]:
    return [
        each.running.pid
        for each in orchestrator.status(query).instances
        if each.running is not None and each.running.pid is not None
    ]


def is_alive(pid: int) -> bool:
    """Return whether a thread of a process still runs: the first one may end before the others."""
    states = []
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            states.append(thread.read_text().rpartition(")")[2].split()[0])
    return any(state not in "ZX" for state in states)


def own_cgroups() -> list[str]:
    """The cgroups this process made that are still there."""
    place = available()
    if isinstance(place, str):
        return []
    return [folder.name for folder in place.parent.glob(f"circinus-{os.getpid()}-*")]
