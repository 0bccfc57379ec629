"""Tells whoever watches an object what happened: as events of the cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from circinus.api.event_log import trouble
from circinus.api.operator.definition import GROUP, KIND, VERSION
from circinus.api.operator.following import Event
from circinus.deploy.kubernetes.api import Cluster, Object
from circinus.deploy.kubernetes.events import EventReporter
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError

_COMPONENT = "circinus-operator"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTeller:
    """Makes events of objects. Safe to share between threads."""

    cluster: Cluster
    identity: str  # who tells
    clock: Clock

    def tell(self, found: Object, events: Iterable[Event]) -> None:
        """Tell events of an object; what the cluster does not take is logged, and no trouble."""
        reporter = EventReporter(component=_COMPONENT, instance=self.identity)
        of = {**found, "apiVersion": f"{GROUP}/{VERSION}", "kind": KIND}  # lists leave them out
        for event in events:
            try:
                namespace = found["metadata"]["namespace"]
                path = f"/api/v1/namespaces/{namespace}/events"
                document = reporter.event(
                    of,
                    event.reason,
                    event.message,
                    warning=event.warning,
                    at_s=self.clock.timestamp(),
                )
                self.cluster.create(path, document)
            except CircinusError as error:
                uid = found["metadata"]["uid"]
                trouble(_LOG, "operator.event_not_told", uid=uid, event=event, reason=str(error))
