"""A running operator: preflight, probes, then leadership, then a controller while it leads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from circinus.api.client import Client
from circinus.api.operator.claims import Claims, Whose, whose
from circinus.api.operator.controller import Controller
from circinus.api.operator.leadership import ClusterLeases, Contender, lead
from circinus.deploy.kubernetes.access import (
    FOLLOWER,
    LEADER,
    SEEING_ALL,
    NotAllowed,
    lacking,
    require_access,
)
from circinus.deploy.kubernetes.api import Cluster, Object, own_namespace
from circinus.deploy.kubernetes.ownership import DEFAULT_RELEASE, ObjectOwner, check_release
from circinus.pipelines import checks
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput

LEASE_S = 10.0
"""After which a silent leader is replaced: it renews every two seconds."""
_RENEWALS = 5
_SILENT = 3  # leases without an answer of the cluster, after which this one is unready
_STUCK_S = 120.0  # a try to renew: each call has 35 s


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Whose objects are followed."""

    namespaces: tuple[str, ...] = ()  # empty: the operator's own
    everywhere: bool = False  # all of the cluster; then no namespaces are named

    def __post_init__(self) -> None:
        named = self.everywhere and self.namespaces
        rule = "must be left out with --all-namespaces"
        checks.require(not named, "namespace", rule, ", ".join(self.namespaces))

    @property
    def home(self) -> str:
        """The namespace of the lease: the pod's own; outside of a cluster the first followed."""
        return own_namespace(self.namespaces[0] if self.namespaces else "default")

    @property
    def followed(self) -> tuple[str | None, ...]:
        """Each namespace that is followed; None: all."""
        if self.everywhere:
            return (None,)
        return tuple(dict.fromkeys(self.namespaces)) or (self.home,)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """The settings of an operator."""

    scope: Scope = field(default_factory=Scope)
    release: str = DEFAULT_RELEASE  # for which it takes objects, and whose operators share a lease
    pod: ObjectOwner | None = None  # in which it runs; None: outside of the cluster
    lease_s: float = LEASE_S  # a leader that is silent for so long is replaced, `> 0`
    look_s: float = 1.0  # between two readings of the service's queries, `> 0`

    def __post_init__(self) -> None:
        check_release(self.release)
        checks.positive("every", self.look_s)


@dataclass(slots=True, kw_only=True, eq=False)
class OperatorProcess:
    """One of several operators: leads or waits, until SIGTERM or an interrupt."""

    service: Client
    cluster: Cluster
    settings: OperatorSettings
    clock: SystemClock = field(default_factory=SystemClock)
    _contender: Contender = field(init=False)
    _controller: Controller | None = field(default=None, init=False)  # None: it does not lead

    def __post_init__(self) -> None:
        settings = self.settings
        identity = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        leases = ClusterLeases(
            cluster=self.cluster,
            namespace=settings.scope.home,
            release=settings.release,
            pod=settings.pod,
            duration_s=settings.lease_s,
        )
        self._contender = Contender(
            identity=identity,
            leases=leases,
            clock=self.clock,
            renew_s=settings.lease_s / _RENEWALS,
        )

    async def run(self, health: int | None) -> None:
        """Follow the objects; answer probes on a port, None: on none.

        InvalidInput if a figure breaks a rule, NotAllowed (naming all of them) if the account
        lacks permissions, Unavailable if the cluster does not answer.
        """
        elsewhere = await asyncio.to_thread(self._preflight)

        async def act(over: asyncio.Event) -> None:
            """Follow the objects until the event is set."""
            controller = Controller(
                cluster=self.cluster,
                service=self.service,
                namespaces=self.settings.scope.followed,
                identity=self._contender.identity,
                clock=self.clock,
                tick_s=self.settings.look_s,
                elsewhere=elsewhere,
                ours=self.is_ours,
            )
            self._controller = controller
            running = asyncio.ensure_future(asyncio.to_thread(controller.run))
            ending = asyncio.ensure_future(over.wait())
            await asyncio.wait([running, ending], return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            controller.stop()
            self._controller = None
            await running

        with contextlib.ExitStack() as probed:
            if health is not None:
                paths = {"/healthz": self.stuck, "/readyz": self.unready}
                probed.enter_context(answering(health, paths))
            leading = asyncio.ensure_future(lead(self._contender, act))
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, leading.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await leading

    def is_ours(self, manifest: Object) -> bool:
        """Return whether an object is the release's; claim one without a label."""
        metadata, release = manifest["metadata"], self.settings.release
        known = whose(metadata, release)
        if known is Whose.NOBODYS:
            Claims(cluster=self.cluster, release=release).ours(metadata)
        return known is Whose.OURS

    def stuck(self) -> Sequence[str]:
        """Return what hangs, in words: only being started again would help."""
        silent_s = self.clock.now() - self._contender.tried_at
        hangs = [] if silent_s <= _STUCK_S else [f"renewing the lease lasts {silent_s:.0f} s"]
        controller = self._controller
        return hangs if controller is None else [*hangs, *controller.stuck()]

    def unready(self) -> Sequence[str]:
        """Return why this one should not be counted on, in words."""
        silent_s = self.clock.now() - self._contender.answered_at
        if silent_s > _SILENT * self.settings.lease_s:
            return ["the cluster does not answer"]
        controller = self._controller
        return [] if controller is None else controller.unsynced()

    def _preflight(self) -> bool:
        """Return whether the account sees all namespaces; NotAllowed if it does not suffice."""
        missing: list[str] = []
        scope = self.settings.scope
        required = [(scope.home, LEADER), *((name or "", FOLLOWER) for name in scope.followed)]
        for namespace, needs in required:
            try:
                require_access(self.cluster, namespace, needs)
            except NotAllowed as refused:
                missing += refused.missing
        if missing:
            raise NotAllowed(missing)
        return not lacking(self.cluster, "", SEEING_ALL)


Ailing = Callable[[], Sequence[str]]
"""Returns what is wrong, in words; nothing: all is well. Called from any thread."""

_LARGEST_PORT = 65535


@contextmanager
def answering(port: int, paths: Mapping[str, Ailing]) -> Iterator[int]:
    """Answer `GET` of each path with 200, or 503 and the problem; return the port.

    `port` 0: any that is free. InvalidInput if it is taken.
    """
    checks.require(0 <= port <= _LARGEST_PORT, "health", "must be in [0, 65535]", port)
    try:
        listener = socket.create_server(("", port))
    except OSError as error:
        rule = f"must be a port that is free ({error.strerror})"
        raise InvalidInput.of("health", rule, port) from error

    def answer(request: Request) -> JSONResponse:
        if (ailing := paths.get(request.url.path)) is None:
            return JSONResponse({"status": "no such path", "paths": sorted(paths)}, 404)
        if wrong := list(ailing()):
            return JSONResponse({"status": "unavailable", "wrong": wrong}, 503)
        return JSONResponse({"status": "ok"})

    app = Starlette(routes=[Route("/{path:path}", answer)])
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,  # probes arrive every few seconds
    )
    server = uvicorn.Server(config)
    # Of its own: probes are answered also while the loop of the operator hangs.
    thread = Thread(target=server.run, args=[[listener]], name="health", daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
