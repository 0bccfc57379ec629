"""A serving replica: `python -m circinus.api.serving.dispatch URL`, or CLI.

It answers requests to deployments itself, and proxies all else to the service at a URL, which
decides what serves. While that is away, or undecided, plans serve on: only another answer changes
what is served. It listens once it serves the service's plans, and ends by SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
from dataclasses import dataclass, field
from socket import gethostname
from typing import cast

import httpx
import uvicorn
from pydantic import ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from circinus.api.bootstrap.orchestrators import make_follower
from circinus.api.event_log import Outage, event, trouble
from circinus.api.schemas.following import (
    FOLLOWED,
    REPORTED,
    FollowedView,
    ServedView,
    addresses_in,
    to_desired,
)
from circinus.api.serving.edge import listening_at, run_serving, server_before
from circinus.api.serving.proxy import Proxy, Upstream
from circinus.api.serving.replicas import ReplicaReport, replica_reports, reports_to_json
from circinus.api.settings import Settings
from circinus.deploy.runtime.following import AddressedLauncher
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.io.infrastructure_file import infrastructure_from_dict

LEAVES_S = 8.0
"""Seconds that an ending dispatcher serves on: until clients no longer use it."""
_LASTS_S = 40  # that requests in hand have then: as long as clients wait, as a rule, and more
_LOG = logging.getLogger("circinus.api.serving.dispatch")
_REQUEST_S = 10.0  # longest that a question takes: it is held for half of it
_CONNECTS_S = 2.0
_PAUSE_S = 0.3  # before it calls a service again that is away
_REPORTS_S = 1.0  # between two reports
_AGAIN_S = 2.0  # after which what could not be served is tried again
_SETTLES_S = 60.0  # for a service's first answer; after it, it serves what it can
_NOTHING = 204


@dataclass(slots=True, eq=False)
class ServiceFollower:
    """Lets an orchestrator serve what the service at a URL serves. Used within one event loop."""

    orchestrator: Orchestrator
    launcher: AddressedLauncher
    service: str  # its URL
    token: str | None = None  # that it wants; None: none
    name: str = field(
        default_factory=lambda: f"{gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    )
    ready: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _view: FollowedView | None = field(default=None, init=False)  # the latest
    _served: dict[str, ServedView] = field(default_factory=dict, init=False)  # as it is desired
    _desired: dict[str, DesiredDeployment] = field(default_factory=dict, init=False)
    _applied: str = field(default="", init=False)  # state in force
    _applying: asyncio.Task[None] | None = field(default=None, init=False)
    _reported: dict[str, ReplicaReport] = field(default_factory=dict, init=False)
    _client: httpx.AsyncClient | None = field(default=None, init=False)  # while it follows
    _outage: Outage = field(default_factory=lambda: Outage(_LOG, "service.away"), init=False)

    async def run(self) -> None:
        """Follow until cancelled."""
        # Any name of loopback is one of a service's own.
        headers = {"Host": "localhost"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        timeout = httpx.Timeout(_REQUEST_S, connect=_CONNECTS_S)
        async with httpx.AsyncClient(
            base_url=self.service, headers=headers, timeout=timeout, trust_env=False
        ) as client:
            self._client = client
            reporting = asyncio.create_task(self._report_often())
            try:
                while True:
                    await self._step(client)
            finally:
                reporting.cancel()
                await asyncio.gather(reporting, return_exceptions=True)

    async def _step(self, client: httpx.AsyncClient) -> None:
        """Request a view once; request the next as soon as the view before is applied."""
        asking = asyncio.create_task(self._next_view(client))
        waits = {asking} if self._applying is None else {asking, self._applying}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if asking.done() and (view := asking.result()) is not None:
                await self._take(view)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        if self._applying is not None and self._applying.done():
            applying, self._applying = self._applying, None
            applying.result()

    async def _next_view(self, client: httpx.AsyncClient) -> FollowedView | None:
        since = "" if self._view is None else self._view.version
        params = {"since": since, "follower": self.name, "applied": self._applied}
        try:
            answer = await client.get(FOLLOWED, params=params)
            answer.raise_for_status()
            view = None
            if answer.status_code != _NOTHING:
                view = FollowedView.model_validate_json(answer.content)
        except (httpx.HTTPError, ValidationError) as error:
            self._outage.lasts(cause=str(error)[:300] or type(error).__name__)
            await asyncio.sleep(_PAUSE_S)
            return None
        self._outage.over()
        return view

    async def _take(self, view: FollowedView) -> None:
        if self._view is None:
            event(_LOG, "service.found", deployments=sorted(view.deployments))
            asyncio.get_running_loop().call_later(_SETTLES_S, self.ready.set)
        self._view = view
        self.launcher.set_addresses(addresses_in(view.deployments))
        desired = await asyncio.to_thread(self._read, view)
        self._desired = desired
        try:
            self.orchestrator.emulate(infrastructure_from_dict(view.emulated))
        except CircinusError as error:  # of another version: links stay as they are
            trouble(_LOG, "emulation.unread", cause=str(error))
        if self._applying is not None:
            self._applying.cancel()  # the call alone: transitions that are still wanted go on
        self._applying = asyncio.create_task(self._apply(view))

    def _read(self, view: FollowedView) -> dict[str, DesiredDeployment]:
        """Return the deployments of a view; one that cannot be read is served as before."""
        desired = {q: d for q, d in self._desired.items() if q in view.awaited}
        for query, served in view.deployments.items():
            before = self._desired.get(query)
            try:
                if before is None or self._served.get(query) != served:
                    graph = self.orchestrator.pipeline_of(served.pipeline).graph
                    before = to_desired(served, graph)
                    self._served[query] = served
            except CircinusError as error:
                trouble(_LOG, "deployment.unread", query_id=query, cause=str(error))
            if before is not None:
                desired[query] = before
        return desired

    async def _apply(self, view: FollowedView) -> None:
        while True:
            await self.orchestrator.apply(self._desired)
            if self._is_done():
                break
            await asyncio.sleep(_AGAIN_S)
        self._applied = view.version
        if not set(view.awaited) - self._desired.keys():
            self.ready.set()

    def _is_done(self) -> bool:
        serving = self.orchestrator.serving()
        return all(
            serving.get(query) == desired.plan.id
            and self.orchestrator.status(query).reason is None
            for query, desired in self._desired.items()
        )

    async def report(self) -> None:
        """Report figures of requests since the last report that the service accepted."""
        if self._client is None:
            return
        reports = replica_reports(self.orchestrator, self._reported)
        params, content = {"follower": self.name}, reports_to_json(reports)
        try:
            answer = await self._client.post(REPORTED, params=params, content=content)
            answer.raise_for_status()
        except httpx.HTTPError:
            return  # `_next_view` logs that the service is away
        self._reported = reports

    async def _report_often(self) -> None:
        while True:
            await asyncio.sleep(_REPORTS_S)
            await self.report()


@dataclass(slots=True, eq=False)
class Parting:
    """An application that lets no connection be used again, once that begins.

    Who closes a connection that a client is about to use fails that client's request.
    """

    app: ASGIApp
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, see ASGI."""

        async def parting(message: Message) -> None:
            if message["type"] == "http.response.start" and self.begun.is_set():
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, receive, parting)


async def dispatch(settings: Settings, service: str, leaves_s: float = LEAVES_S) -> None:
    """Answer requests to what the service at a URL serves, until SIGTERM and `leaves_s` after it.

    InvalidInput if the URL is none or the address is not free; and as `make_follower` raises.
    """
    upstream, launcher, over = Upstream.of(service), AddressedLauncher(), asyncio.Event()
    launcher.message_bytes = settings.message_limit_bytes
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    orchestrator = make_follower(settings, launcher)
    follow = ServiceFollower(orchestrator, launcher, service, settings.token_text)
    following = asyncio.create_task(follow.run())
    following.add_done_callback(lambda _: over.set())  # it ends only by an error
    ready = asyncio.create_task(follow.ready.wait())
    ends = asyncio.create_task(over.wait())
    try:
        await asyncio.wait({ready, ends}, return_when=asyncio.FIRST_COMPLETED)
        if not over.is_set():
            await _serve(settings, upstream, follow, over, leaves_s)
        if following.done():
            following.result()
    finally:
        for task in (ready, ends, following):
            task.cancel()
        await asyncio.gather(ready, ends, following, return_exceptions=True)
        await orchestrator.close()


async def _serve(
    settings: Settings,
    upstream: Upstream,
    follow: ServiceFollower,
    over: asyncio.Event,
    leaves_s: float,
) -> None:
    others = Proxy.to(upstream, settings)
    server = server_before(others, follow.orchestrator, settings, streams=others.streams)
    server.config.timeout_graceful_shutdown = _LASTS_S
    # Signals are handled here: the server would end at once, and raise them again.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    parting = Parting(cast("ASGIApp", server.config.app))
    server.config.app = parting
    listening = listening_at(settings.host, settings.port)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    serving.add_done_callback(lambda _: over.set())
    event(_LOG, "dispatcher.serves", deployments=sorted(follow.orchestrator.serving()))
    await over.wait()
    event(_LOG, "dispatcher.leaves", within_s=leaves_s)
    parting.begun.set()
    with contextlib.suppress(TimeoutError):  # it ends by itself only if it cannot go on
        async with asyncio.timeout(leaves_s):
            await asyncio.shield(serving)
    await _ended(server, serving, others, follow)


async def _ended(
    server: uvicorn.Server, serving: asyncio.Task[None], others: Proxy, follow: ServiceFollower
) -> None:
    server.should_exit = True
    await others.end_streams()
    await serving
    await follow.report()


def run(settings: Settings, service: str) -> None:
    """Dispatch until SIGTERM; errors as `dispatch`."""
    run_serving(dispatch(settings, service), settings)


def main() -> int:
    """Dispatch by the environment, for the service at the URL that is the only argument."""
    try:
        run(Settings(), sys.argv[1])
    except CircinusError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
