"""Instances in pods that another process makes: discovered by which addresses are ready.

The service applies, replaces and deletes pods. A follower needs no right but to watch
EndpointSlices, and goes on while the service is away.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from circinus.deploy.kubernetes.api import Cluster
from circinus.deploy.kubernetes.launcher import PodInstance, ReadyWorkers
from circinus.deploy.kubernetes.pods import name_of
from circinus.deploy.kubernetes.resources import enforcement_of
from circinus.deploy.runtime.instances import InstanceSpec, RunningInstance
from circinus.deploy.workers.errors import LaunchFailed
from circinus.deploy.workers.transport import LARGEST_MESSAGE, TlsFiles


@dataclass(slots=True, eq=False)
class FollowingLauncher:
    """A `Launcher` that creates and deletes nothing. Used within one event loop.

    A pod that is ending takes no more requests, and what it has in hand it may finish.
    """

    cluster: Cluster
    namespace: str  # of the workers
    release: str  # whose they are
    tls: TlsFiles  # with what to call them
    message_bytes: int = LARGEST_MESSAGE  # of the largest call or answer
    patience_s: float = 180.0  # until an instance's pod is ready
    ready: ReadyWorkers = field(init=False)

    def __post_init__(self) -> None:
        self.ready = ReadyWorkers(self.cluster, self.namespace, self.release)

    async def start(self, spec: InstanceSpec) -> RunningInstance:
        """Wait until a pod of the instance answers; errors as `Launcher`."""
        service = name_of(spec.key)
        try:
            async with asyncio.timeout(self.patience_s):
                pod, address = await self.ready.answering(service, self.tls)
        except TimeoutError as error:
            cause = f"no pod of {service} was ready within {self.patience_s:g} s"
            raise LaunchFailed(str(spec.key), cause, "(no log)") from error
        return PodInstance(
            address=address,
            tls=self.tls,
            enforcement=enforcement_of(spec, cgroups=False),
            note="the worker keeps to it",
            message_bytes=self.message_bytes,
            service=service,
            pod=pod,
            ready=self.ready,
        )

    def stop(self) -> None:
        """Listen no longer."""
        self.ready.stop()
