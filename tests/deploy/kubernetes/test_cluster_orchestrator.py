"""What a cluster's deployments add: spare pods are pruned, and closing leaves all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

from circinus.deploy.kubernetes.launcher import ClusterOrchestrator
from circinus.deploy.runtime.deployment import DeploymentPhase
from circinus.deploy.runtime.instances import InstanceSpec, RunningInstance
from circinus.deploy.workers.errors import LaunchFailed
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import CircinusError
from circinus.scheduler.dispatch.matching import MinCostMatching
from tests.deploy.serving import ONE_TIER, desired, pipeline_of


class Starting:
    """A launcher whose pods never start."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.leaving = False
        self.pruned: list[set[tuple[str, str]]] = []
        self.refuses = refuses
        self.over: list[bool] = []
        self.ready: Any = SimpleNamespace(stop=lambda: self.over.append(True))

    async def start(self, spec: InstanceSpec) -> RunningInstance:
        raise LaunchFailed(str(spec.key), "no room", "")

    async def prune(
        self,
        wanted: Collection[tuple[str, str]],
        serving: Mapping[tuple[str, str], Collection[str]],
    ) -> tuple[str, ...]:
        assert not serving
        self.pruned.append(set(wanted))
        if self.refuses:
            raise CircinusError("not now")
        return ("spare",)


def test_only_wanted_plans_stay_and_closing_prunes_nothing() -> None:
    async def scenario(launcher: Starting) -> None:
        orchestrator = ClusterOrchestrator(
            ONE_TIER,
            launcher,
            pipeline_of,
            MinCostMatching(),
            SystemClock(),
        )
        wanted = {"q": desired("echo")}
        await orchestrator.apply(wanted)
        assert orchestrator.status("q").phase is DeploymentPhase.FAILED
        assert launcher.pruned == [{("q", wanted["q"].plan.id)}]
        await orchestrator.close()
        assert len(launcher.pruned) == 1
        assert (launcher.leaving, launcher.over) == (True, [True])

    asyncio.run(scenario(Starting()))
    asyncio.run(scenario(Starting(refuses=True)))  # what is too much harms nobody
