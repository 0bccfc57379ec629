"""A running operator: preflight, then leadership, then `PipelineQuery` objects by way of kopf.

kopf has the finalizers, retries and events; `following` decides. Every object is looked at anew at
a fixed interval, whatever the cluster told or forgot to tell. Requests to the service are blocking
calls, so kopf runs the handlers in threads of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kopf

from circinus.api.client import Client, Refused
from circinus.api.event_log import trouble
from circinus.api.operator.claims import FINALIZER, Claims, Whose, whose
from circinus.api.operator.definition import GROUP, PLURAL, VERSION
from circinus.api.operator.following import SeenQuery, Status, follow, release, transition
from circinus.api.operator.leadership import ClusterLeases, Contender, lead
from circinus.deploy.kubernetes.access import OPERATOR, require_access
from circinus.deploy.kubernetes.api import Cluster, connect, own_namespace
from circinus.deploy.kubernetes.ownership import ObjectOwner, check_release
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.errors import CircinusError, Unavailable

_RENEWALS = 5
_RETRY_S = 1.0

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """What an operator is told."""

    namespace: str | None  # whose objects; None: the pod's own
    kubeconfig: Path | None  # the way to the cluster; None: the pod's own
    release: str  # for which it takes objects, and whose operators share a lease
    pod: ObjectOwner | None  # in which it runs; None: outside of the cluster
    lease_s: float  # after which a silent leader is replaced, `> 0`
    look_s: float  # between two looks at an object, `> 0`

    def __post_init__(self) -> None:
        check_release(self.release)


async def run(service: Client, settings: OperatorSettings) -> None:
    """Follow the objects of a namespace until SIGTERM or an interrupt.

    InvalidInput if there is no way to the cluster or a figure breaks a rule, NotAllowed (naming
    all of them) if the account lacks permissions, Unavailable if the cluster does not answer.
    """
    namespace, release = settings.namespace or own_namespace(), settings.release
    cluster = Cluster(connect(settings.kubeconfig))
    await asyncio.to_thread(require_access, cluster, namespace, OPERATOR)
    clock = SystemClock()
    leases = ClusterLeases(
        cluster=cluster,
        namespace=namespace,
        release=release,
        pod=settings.pod,
        duration_s=settings.lease_s,
    )
    identity = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    pause_s = settings.lease_s / _RENEWALS
    contender = Contender(identity=identity, leases=leases, clock=clock, renew_s=pause_s)
    claims = Claims(cluster=cluster, release=release)
    handlers = Handlers(service=service, clock=clock, claims=claims)

    async def act(over: asyncio.Event) -> None:
        """Follow the objects of the namespace until the event is set."""
        registry = kopf.OperatorRegistry()
        kind = (GROUP, VERSION, PLURAL)
        kopf.on.login(registry=registry, id="login")(lambda **_: connection_of(cluster))
        ours, free = handlers.when(Whose.OURS), handlers.when(Whose.NOBODYS)
        every = settings.look_s
        kopf.on.event(*kind, registry=registry, id="claim", when=free)(handlers.claim)
        kopf.timer(*kind, registry=registry, id="look", interval=every, when=ours)(handlers.look)
        kopf.on.delete(*kind, registry=registry, id="release", when=ours)(handlers.delete)
        await kopf.operator(
            registry=registry,
            settings=_kopf_settings(identity),
            standalone=True,  # which of several acts is the lease's to say, not kopf's peering
            namespaces=[namespace],
            stop_flag=over,
        )

    leading = asyncio.ensure_future(lead(contender, act))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leading.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await leading


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """What is done when kopf calls."""

    service: Client
    clock: Clock
    claims: Claims

    def when(self, wanted: Whose) -> Callable[..., bool]:
        """Give the filter of objects that are so, seen from the release."""
        release = self.claims.release
        return lambda meta, **_: whose(meta, release) is wanted

    def claim(self, meta: kopf.Meta, **_: Any) -> None:  # noqa: ANN401 - kopf's own
        """Take an object that is nobody's."""
        try:
            self.claims.ours(meta)
        except CircinusError as error:
            trouble(_LOG, "operator.not_claimed", uid=meta["uid"], reason=str(error))

    def look(self, body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:  # noqa: ANN401 - kopf's own
        """Look at one object: call the service, write the status if it changed."""
        seen = seen_of(body)
        try:
            status, events = follow(seen, self.service)
        except (Unavailable, Refused) as error:
            if isinstance(error, Refused):  # such as a token that the service does not know
                trouble(_LOG, "operator.refused", uid=seen.uid, reason=str(error))
            status, events = Status.unreachable(seen.generation, seen.status, str(error)), []
        document = status.document(seen.status, at=self.clock.timestamp())
        for event in (*events, *transition(seen.status, document)):
            kind = "Warning" if event.warning else "Normal"
            kopf.event(body, type=kind, reason=event.reason, message=event.message)
        if changed := {k: v for k, v in document.items() if seen.status.get(k) != v}:
            patch.status.update(changed)

    def delete(self, body: kopf.Body, **_: Any) -> None:  # noqa: ANN401 - kopf's own
        """Stop what an object asked for; the object goes when nothing of it runs."""
        try:
            left = release(seen_of(body), self.service)
        except (Unavailable, Refused) as error:
            pause = error.retry_after_s if isinstance(error, Unavailable) else _RETRY_S
            raise kopf.TemporaryError(str(error), delay=pause) from error
        if left:
            told = f"still being stopped: {', '.join(left)}"
            raise kopf.TemporaryError(told, delay=_RETRY_S)


def connection_of(cluster: Cluster) -> kopf.ConnectionInfo:
    """Give the way to a cluster; asked again, with a fresh token."""
    chosen = cluster.client.configuration
    header = chosen.get_api_key_with_prefix("BearerToken") or chosen.get_api_key_with_prefix(
        "authorization"
    )
    return kopf.ConnectionInfo(
        server=chosen.host,
        ca_path=chosen.ssl_ca_cert,
        insecure=not chosen.verify_ssl,
        scheme="Bearer" if header else None,
        token=header.rpartition(" ")[2] if header else None,  # "Bearer X", or in small letters
        certificate_path=chosen.cert_file,
        private_key_path=chosen.key_file,
    )


def _kopf_settings(identity: str) -> kopf.OperatorSettings:
    chosen = kopf.OperatorSettings()
    chosen.persistence.finalizer = FINALIZER
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    chosen.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
    chosen.scanning.disabled = True  # no need to read the cluster's CRDs and namespaces
    chosen.posting.enabled = True
    chosen.posting.loggers = False  # events are ours to choose
    chosen.posting.reporting_component = identity
    chosen.process.ultimate_exiting_timeout = None  # who started us decides
    return chosen


def seen_of(body: Mapping[str, Any]) -> SeenQuery:
    """Give an object as the cluster has it."""
    metadata = body["metadata"]
    return SeenQuery(
        uid=metadata["uid"],
        generation=metadata["generation"],
        spec=body.get("spec", {}),  # what the cluster sent: kopf's live views are attributes
        status=body.get("status", {}),
    )
