"""Listens to `PipelineQuery` objects with kopf: finalizers, retries, events; the rest decides.

Every object is looked at anew at a fixed interval, whatever the cluster told or forgot to tell.
Requests to the service are blocking calls, so kopf runs the handlers in threads of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import kopf

from api.client import Refused
from api.event_log import trouble
from api.operator.definition import GROUP, PLURAL, VERSION
from api.operator.following import Look, Seen, Service, follow, release
from api.operator.status import Event, Status, transition
from deploy.kubernetes.connection import Connection
from pipelines.clock import Clock
from pipelines.errors import CircinusError, Unavailable

FINALIZER = f"{GROUP}/finalizer"
_RETRY_S = 1.0

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """How the controller works.

    Attributes:
        namespace: Whose objects it follows.
        look_s: Seconds between two looks at an object.
        identity: Of this controller, for events.
    """

    namespace: str
    look_s: float = 1.0
    identity: str = "circinus-operator"


async def control(
    settings: ControllerSettings,
    connect: Callable[[], Connection],
    handlers: Handlers,
    over: asyncio.Event,
) -> None:
    """Follow the objects of a namespace until the event is set.

    Args:
        settings: How.
        connect: Gives the way to the API server; asked again when a token has run out.
        handlers: What to do.
        over: Ends it.
    """
    registry = kopf.OperatorRegistry()
    kind = (GROUP, VERSION, PLURAL)
    kopf.on.login(registry=registry, id="login")(lambda **_: _connection_info(connect()))
    kopf.timer(*kind, registry=registry, id="look", interval=settings.look_s)(handlers.look)
    kopf.on.delete(*kind, registry=registry, id="release")(handlers.delete)
    await kopf.operator(
        registry=registry,
        settings=_kopf_settings(settings),
        standalone=True,  # which of several acts is the lease's to say, not kopf's peering
        namespaces=[settings.namespace],
        stop_flag=over,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """What is done when kopf calls.

    Attributes:
        service: Of the queries.
        clock: Says when.
    """

    service: Service
    clock: Clock

    def look(self, body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:  # noqa: ANN401 - kopf's own
        """Look at one object: call the service, write the status if it changed."""
        seen = seen_of(body)
        document = self._looked(seen, body)
        changed = {k: v for k, v in document.items() if seen.status.get(k) != v}
        if changed:
            patch.status.update(changed)

    def delete(self, body: kopf.Body, **_: Any) -> None:  # noqa: ANN401 - kopf's own
        """Stop what an object asked for; the object goes when nothing of it runs."""
        try:
            left = release(seen_of(body), self.service)
        except Refused as error:
            raise kopf.TemporaryError(str(error), delay=_RETRY_S) from error
        except Unavailable as error:
            raise kopf.TemporaryError(str(error), delay=error.retry_after_s) from error
        if left:
            told = f"still being stopped: {', '.join(left)}"
            raise kopf.TemporaryError(told, delay=_RETRY_S)

    def _looked(self, seen: Seen, body: kopf.Body) -> dict[str, Any]:
        try:
            look = follow(seen, self.service)
        except Unavailable as error:
            look = _unreachable(seen, error)
        except Refused as error:  # such as a token that the service does not know
            trouble(_LOG, "operator.refused", uid=seen.uid, reason=str(error))
            look = _unreachable(seen, error)
        document = look.status.document(seen.status, at=self.clock.timestamp())
        new = transition(seen.status, document)
        for event in (*look.events, *((new,) if new else ())):
            _tell(body, event)
        return document


def _connection_info(connection: Connection) -> kopf.ConnectionInfo:
    return kopf.ConnectionInfo(
        server=connection.server,
        ca_path=connection.authority,
        insecure=connection.insecure,
        scheme="Bearer" if connection.token else None,
        token=connection.token,
        certificate_path=connection.certificate,
        private_key_path=connection.key,
    )


def _kopf_settings(settings: ControllerSettings) -> kopf.OperatorSettings:
    chosen = kopf.OperatorSettings()
    chosen.persistence.finalizer = FINALIZER
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    chosen.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
    chosen.scanning.disabled = True  # no need to read the cluster's CRDs and namespaces
    chosen.posting.enabled = True
    chosen.posting.loggers = False  # events are ours to choose
    chosen.posting.reporting_component = settings.identity
    chosen.process.ultimate_exiting_timeout = None  # who started us decides
    return chosen


def seen_of(body: Mapping[str, Any]) -> Seen:
    """Give an object as the cluster has it."""
    metadata = body["metadata"]
    return Seen(
        uid=metadata["uid"],
        generation=metadata["generation"],
        spec=_plain(body.get("spec", {})),
        status=_plain(body.get("status", {})),
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - a JSON tree
    """Give a JSON tree of dicts and lists, none of kopf's live views."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _unreachable(seen: Seen, error: CircinusError) -> Look:
    return Look(status=Status.unreachable(seen.generation, seen.status, str(error)))


def _tell(body: kopf.Body, event: Event) -> None:
    kind = "Warning" if event.warning else "Normal"
    kopf.event(body, type=kind, reason=event.reason, message=event.message)
