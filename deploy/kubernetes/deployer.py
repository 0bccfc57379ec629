"""Deployments as pods of a cluster, with the dispatcher and the policies of local ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from deploy.dispatcher import RequestResult
from deploy.instances import DesiredDeployment
from deploy.kubernetes.launcher import ClusterLauncher
from deploy.orchestrator import DeploymentStatus, Orchestrator
from deploy.queue_figures import QueueFigures
from pipelines.errors import CircinusError
from pipelines.infrastructure import Infrastructure
from pipelines.payload import Payload

_log = logging.getLogger(__name__)


class ClusterDeployer:
    """Runs deployments in a cluster. Used within one event loop.

    What an earlier run of the service left is taken over where it is still wanted, and pruned
    where it is not. Closing leaves everything running for the next run.
    """

    def __init__(self, orchestrator: Orchestrator, launcher: ClusterLauncher) -> None:
        self._orchestrator = orchestrator
        self._launcher = launcher

    async def apply(self, desired: Mapping[str, DesiredDeployment]) -> None:
        """Let exactly the desired plans serve, by query id; return when they do.

        Raises:
            InvalidInput: If a plan does not fit its pipeline or the infrastructure; nothing was
                changed then.
        """
        await self._orchestrator.apply(desired)
        wanted = {(query_id, deployment.plan.id) for query_id, deployment in desired.items()}
        # A plan that did not start leaves the one before serving.
        wanted |= {(query_id, self.status(query_id).plan_id) for query_id in desired}
        try:
            pruned = await self._launcher.prune(wanted)
        except CircinusError as error:  # what is too much harms nobody until the next time
            _log.warning("prune_failed cause=%s", error)
            return
        if pruned:
            _log.info("pruned names=%s", ",".join(pruned))

    async def request(self, query_id: str, input: Payload, *, timeout_s: float) -> RequestResult:
        """Give the output for an input; errors as `Orchestrator.request`."""
        return await self._orchestrator.request(query_id, input, timeout_s=timeout_s)

    def imitate(self, infrastructure: Infrastructure) -> None:
        """Let emulated links be as thin as those of an infrastructure with the same tiers."""
        self._orchestrator.imitate(infrastructure)

    def status(self, query_id: str) -> DeploymentStatus:
        """Give how a query's deployment fares.

        Raises:
            InvalidInput: If there is none.
        """
        return self._orchestrator.status(query_id)

    def figures(self) -> dict[str, dict[str, QueueFigures]]:
        """See `Orchestrator.figures`."""
        return self._orchestrator.figures()

    async def close(self) -> None:
        """Let go of everything, and leave it running; may be called again."""
        self._launcher.leaving = True
        await self._orchestrator.close()
        self._launcher.ready.stop()
