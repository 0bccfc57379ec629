"""A running operator: preflight, then leadership, then the controller."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import dataclass
from pathlib import Path

from api.operator.controller import ControllerSettings, Handlers, control
from api.operator.following import Service
from api.operator.leadership import Candidate, LeadershipSettings, lead
from deploy.kubernetes.access import OPERATOR, require_access
from deploy.kubernetes.api import Cluster
from deploy.kubernetes.connection import connect, connection_of, own_namespace
from deploy.kubernetes.leases import ClusterLeases
from pipelines.clock import SystemClock

LEASE_NAME = "circinus-operator"
_RENEWALS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """How an operator works.

    Attributes:
        namespace: Whose objects it follows; None: the pod's own.
        kubeconfig: The way to the cluster; None: the pod's own, or `KUBECONFIG`.
        identity: Unlike that of any other operator.
        lease_s: A silent leader is replaced after.
        look_s: Seconds between two looks at an object.
    """

    namespace: str | None
    kubeconfig: Path | None
    identity: str
    lease_s: float
    look_s: float


def run(settings: OperatorSettings, service: Service) -> None:
    """Follow the objects of a namespace until SIGTERM or an interrupt.

    Raises:
        InvalidInput: If there is no way to the cluster, or a setting breaks a rule.
        NotAllowed: If the account lacks a permission; the message names all of them.
        Unavailable: If the cluster does not answer.
    """
    asyncio.run(_run(settings, service))


async def _run(settings: OperatorSettings, service: Service) -> None:
    namespace = settings.namespace or own_namespace()
    client = connect(settings.kubeconfig)
    cluster = Cluster(client)
    await asyncio.to_thread(require_access, cluster, namespace, OPERATOR)
    clock = SystemClock()
    leadership = LeadershipSettings(
        duration_s=settings.lease_s, renew_s=settings.lease_s / _RENEWALS
    )
    leases = ClusterLeases(
        cluster=cluster, namespace=namespace, name=LEASE_NAME, duration_s=settings.lease_s
    )
    candidate = Candidate(
        identity=settings.identity, leases=leases, clock=clock, settings=leadership
    )
    chosen = ControllerSettings(
        namespace=namespace, look_s=settings.look_s, identity=settings.identity
    )
    handlers = Handlers(service=service, clock=clock)

    async def act(over: asyncio.Event) -> None:
        await control(chosen, lambda: connection_of(client), handlers, over)

    await _until_told(asyncio.ensure_future(lead(candidate, act)))


async def _until_told(leading: asyncio.Future[None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leading.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await leading
