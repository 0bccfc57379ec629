"""Follows a route's capacity and moves its traffic: one loop, woken by what happens.

Watches report Deployments, pods, nodes, NodeClaims and refusals (`mirror`: it goes on after
breaks and expired versions). At each change, and at the time that the route's controller names, it
decides, and what differs from before is written at once. The paper's checker looks every five
minutes.

All is derived from the cluster, so a restarted follower goes on, but for how long ago
capacity returned, and how often it was lost in this cycle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from threading import Event, Lock

from circinus.deploy.kubernetes.api import Cluster, Object, collection_of
from circinus.deploy.kubernetes.diagnosis import iso_time
from circinus.deploy.kubernetes.mirror import Mirror
from circinus.deploy.kubernetes.nodes import NODES
from circinus.deploy.kubernetes.routing.applied import (
    OF_NO_NAMESPACE,
    RouteWriter,
    listed_by_name,
    path_of_routed,
)
from circinus.deploy.kubernetes.routing.capacity import (
    REFUSED,
    ClusterState,
    UnitState,
    unit_states,
    waiting_pods,
)
from circinus.deploy.kubernetes.routing.objects import RouteDirection, objects_of
from circinus.deploy.kubernetes.routing.targets import ClusterRoute
from circinus.deploy.kubernetes.routing.verifying import UnitVerdicts, UnitVerifier
from circinus.deploy.routes.probing import EndpointProbes
from circinus.pipelines.backoff import Backoff
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError, Unavailable
from circinus.scheduler.routing.controller import (
    RouteActions,
    RouteController,
    RouteObservation,
    UnitObservation,
)
from circinus.scheduler.routing.regimes import Regime
from circinus.scheduler.routing.traffic import RouteTraffic

_RESYNC_S = 60.0  # after which all is written again, so that what others undid is done again
_PAUSES = Backoff(0.5, 10.0)  # after a failure
_NEEDED = {"deployments", "pods"}  # before the first step; a cluster may be without Karpenter
_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
_REFUSALS = f"/api/v1/namespaces/{OF_NO_NAMESPACE}/events"
_OF_REFUSALS = f"involvedObject.kind=NodeClaim,reason={REFUSED}"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSteered:
    """The result of one step of a route."""

    direction: RouteDirection
    traffic: RouteTraffic
    units: Mapping[str, UnitState]
    written: tuple[str, ...] = ()  # `Kind/name` that were written; none: all was so already
    reaction_s: float | None = None  # from a change to having written; None: there was none
    # unit -> why its ready pods get no requests: its outputs do not agree, or are not verified yet
    unverified: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, eq=False)
class RouteFollower:
    """Moves a route's traffic. `run` in one thread; `ingest` in others."""

    cluster: Cluster
    route: ClusterRoute
    clock: Clock
    writer: RouteWriter
    # takes what was written, and what is verified
    on_steered: Callable[[RouteSteered], object] = lambda _: None
    with_nodes: bool = True  # whether nodes are watched: pods of one that is gone are lost at once
    probes: EndpointProbes | None = None  # by which units are verified first; None: none is
    urls: Mapping[str, str] | None = None  # where units are verified; None: at their Services
    _woken: Event = field(default_factory=Event, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)
    _collections: dict[str, Mapping[str, Object]] = field(default_factory=dict, init=False)
    _changed_s: float | None = field(default=None, init=False)
    _waiting_since: dict[str, float] = field(default_factory=dict, init=False)
    _epoch_s: float = field(init=False)  # of the clock's zero: cycles begin at whole ones of it
    _controller: RouteController = field(init=False)
    _direction: RouteDirection | None = field(default=None, init=False)
    _written: dict[str, Object] = field(default_factory=dict, init=False)
    _known: str | None = field(default=None, init=False)  # regime that was reported last
    _verifier: UnitVerifier | None = field(default=None, init=False)
    _unverified: Mapping[str, str] = field(default_factory=dict, init=False)  # reported last

    def __post_init__(self) -> None:
        self._epoch_s = self.clock.timestamp() - self.clock.now()
        self._controller = self.route.controller(verifies=self.probes is not None)
        if self.probes is not None:
            urls = self.route.urls if self.urls is None else self.urls
            self._verifier = UnitVerifier(
                urls={unit.name: urls[unit.name] for unit in self.route.route.quick},
                probes=self.probes,
                clock=self.clock,
                on_change=self.wake,
            )

    @property
    def collections(self) -> dict[str, tuple[str, str]]:
        """Return what is watched: path and selector of fields, by what it is called here."""
        namespace = self.route.namespace
        sources = {
            "deployments": (collection_of("Deployment", namespace), ""),
            "pods": (collection_of("Pod", namespace), ""),
            **({"nodes": (NODES, "")} if self.with_nodes else {}),
        }
        if any(target.node_pool is not None for target in self.route.targets.values()):
            sources |= {"claims": (_CLAIMS, ""), "refusals": (_REFUSALS, _OF_REFUSALS)}
        return sources

    def once(self) -> RouteSteered:
        """Look once and write what is other than it should be; raises as `Cluster` does."""
        for name, (path, fields) in self.collections.items():
            query = {"fieldSelector": fields} if fields else {}
            self._collections[name] = listed_by_name(self.cluster, path, **query)
        if self._verifier is not None:
            self._verified(self._units(self._collections))
            self._verifier.wait()
        return self.step()[0]

    def run(self, over: Event) -> None:
        """Follow until `over` is set; the caller that sets it also calls `wake`."""
        mirrors = [
            Mirror(
                cluster=self.cluster,
                path=path,
                on_change=partial(self.ingest, name),
                fields=fields,
            )
            for name, (path, fields) in self.collections.items()
        ]
        for mirror in mirrors:
            mirror.start()
        try:
            self._follow(over)
        finally:
            for mirror in mirrors:
                mirror.stop()

    def _follow(self, over: Event) -> None:
        due_s, synced_s, failures = inf, self.clock.now(), 0
        while not over.is_set():
            self._woken.wait(max(0.0, min(due_s - self.clock.now(), _RESYNC_S)))
            self._woken.clear()
            if over.is_set() or not self._collections.keys() >= _NEEDED:
                continue
            if self.clock.now() - synced_s >= _RESYNC_S:
                self._written.clear()
                synced_s = self.clock.now()
            try:
                due_s, failures = self.step()[1], 0
            except CircinusError as error:
                name = self.route.route.name
                _log.warning("route_not_written route=%s cause=%s", name, error)
                retry_after_s = error.retry_after_s if isinstance(error, Unavailable) else 0.0
                failures += 1
                pause_s = max(_PAUSES.pause_s(failures), retry_after_s)
                due_s = self.clock.now() + min(pause_s, _PAUSES.longest_s)

    def wake(self) -> None:
        """Make `run` steer at once."""
        self._woken.set()

    def ingest(self, name: str, objects: Mapping[str, Object]) -> None:
        """Take a collection as it is now."""
        with self._lock:
            self._collections[name] = objects
            if self._changed_s is None:
                self._changed_s = self.clock.now()
        self._woken.set()

    def step(self) -> tuple[RouteSteered, float]:
        """Steer by what was ingested, and write; return the result and when to look again.

        The time is the clock's; inf: when something happens. Raises as `Cluster` does; what was
        not written then is written by the next step.
        """
        with self._lock:
            objects, changed_s, self._changed_s = dict(self._collections), self._changed_s, None
        now, units = self.clock.now(), self._units(objects)
        verdicts = self._verified(units)
        actions = self._controller.step(self._observed(now, units, verdicts))
        direction = self._directed(actions, units)
        documents = objects_of(self.route, direction, actions.counts)
        written, failure = self._write(documents, direction, held=self._held(verdicts))
        reaction_s = None if changed_s is None else self.clock.now() - changed_s
        result = RouteSteered(
            direction=direction,
            traffic=actions.traffic,
            units=units,
            written=written,
            reaction_s=reaction_s,
            unverified={} if verdicts is None else verdicts.words,
        )
        if written or result.unverified != self._unverified:
            self._unverified = result.unverified
            self.on_steered(result)
        if failure is not None:
            raise failure
        due_s = min(actions.again_s - self._epoch_s, *(unit.again_s for unit in units.values()))
        return result, due_s if verdicts is None else min(due_s, verdicts.again_s)

    def _units(self, objects: Mapping[str, Mapping[str, Object]]) -> dict[str, UnitState]:
        now = self.clock.now()
        return unit_states(self.route, self._state(objects, now), now)

    def _verified(self, units: Mapping[str, UnitState]) -> UnitVerdicts | None:
        """Return the verdicts of probes on units' outputs; None: no probes are sent."""
        if self._verifier is None:
            return None
        return self._verifier.verify({name: unit.templates for name, unit in units.items()})

    def _observed(
        self, now: float, units: Mapping[str, UnitState], verdicts: UnitVerdicts | None
    ) -> RouteObservation:
        agree = {} if verdicts is None else verdicts.by_unit
        return RouteObservation(
            at_s=self._epoch_s + now,
            demand_per_s=self.route.route.demand_per_s,
            units={
                name: UnitObservation(
                    ready=unit.ready,
                    available=unit.available,
                    is_retried=True,  # pods of a unit that is lost stay pending
                    agrees=agree.get(name),
                )
                for name, unit in units.items()
            },
        )

    def _held(self, verdicts: UnitVerdicts | None) -> bool:
        """Whether requests go where they did before this follower: no unit's outputs agree."""
        if verdicts is None or self._known is not None or verdicts.agree:
            return False
        return bool(self._controller.router.route.quick)

    def _state(self, objects: Mapping[str, Mapping[str, Object]], now: float) -> ClusterState:
        pods = [*objects["pods"].values()]
        uids = [pod["metadata"]["uid"] for pod in waiting_pods(pods)]
        self._waiting_since = {uid: self._waiting_since.get(uid, now) for uid in uids}
        return ClusterState(
            deployments=objects["deployments"],
            pods=pods,
            claims=[*objects.get("claims", {}).values()],
            refusals=[*objects.get("refusals", {}).values()],
            nodes=objects.get("nodes"),
            waiting_since=self._waiting_since,
        )

    def _directed(self, actions: RouteActions, units: Mapping[str, UnitState]) -> RouteDirection:
        """Return where requests go; the reason is that of the moment in which a regime began."""
        before, regime = self._direction, actions.traffic.regime
        if before is not None and before.regime is regime:
            self._direction = replace(before, weights=actions.weights)
            return self._direction
        reasons = [f"{name}: {unit.why}" for name, unit in units.items() if unit.why]
        self._direction = RouteDirection(
            regime=regime,
            why="; ".join([actions.traffic.why, *(reasons if regime is Regime.CAPACITY else [])]),
            since=iso_time(self.clock.timestamp()),
            weights=actions.weights,
        )
        return self._direction

    def _write(
        self, documents: list[Object], direction: RouteDirection, *, held: bool
    ) -> tuple[tuple[str, ...], CircinusError | None]:
        """Write what differs from before; return what was written, and the first failure.

        Where requests are held to where they go, what sends them is left as it is.
        """
        written, failure = [], None
        for document in documents[held:]:
            path = path_of_routed(document)
            if self._written.get(path) == document:
                continue
            front = document is documents[0]
            try:
                if front and self._known is None:
                    self._known = self.writer.regime_of(document) or Regime.COST.value
                stored = self.writer.apply(document)
            except CircinusError as error:
                failure = failure or error
                continue
            self._written[path] = document
            written.append(f"{document['kind']}/{document['metadata']['name']}")
            if front:
                self._tell(stored, direction)
        return tuple(written), failure

    def _tell(self, stored: Object, direction: RouteDirection) -> None:
        regime = direction.regime
        if self._known == regime.value:
            return
        parts = ", ".join(f"{name} {part:.1%}" for name, part in direction.weights.items())
        message = f"{self._known} -> {regime.value}: {direction.why}; traffic: {parts or 'none'}"
        self._known = regime.value
        try:
            self.writer.tell(stored, message, warning=regime is Regime.CAPACITY)
        except CircinusError as error:  # traffic was moved, which counts
            _log.warning("regime_not_told route=%s cause=%s", self.route.route.name, error)
