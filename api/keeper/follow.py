"""A dispatcher's way to its service: asks what serves, serves it, too, and tells what came of it.

Nothing is given up because the service is away, or does not know yet: only another answer of it
changes what is served.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from dataclasses import dataclass, field
from socket import gethostname

import httpx
from pydantic import ValidationError

from circinus.api.event_log import Outage, event, trouble
from circinus.api.keeper.figures import QueryFigures, figures_of, figures_to_json
from circinus.api.schemas.following import (
    FOLLOWED,
    REPORTED,
    FollowedView,
    ServedView,
    addresses_in,
    to_desired,
)
from circinus.deploy.runtime.following import ToldLauncher
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.io.infrastructure_file import infrastructure_from_dict

_ASKS_S = 10.0  # longest that a question takes: it is held for half of it
_CONNECTS_S = 2.0
_PAUSE_S = 0.3  # before it asks a service again that is away
_TELLS_S = 1.0  # between two reports
_AGAIN_S = 2.0  # after which what could not be served is tried again
_SETTLES_S = 60.0  # for what a service says first; after it, it serves what it can
_NOTHING = 204
_LOG = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class ServiceFollower:
    """Lets an orchestrator serve what the service at a URL serves. Used within one event loop."""

    orchestrator: Orchestrator
    told: ToldLauncher
    service: str  # its URL
    token: str | None = None  # that it wants; None: none
    name: str = field(
        default_factory=lambda: f"{gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    )
    ready: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _view: FollowedView | None = field(default=None, init=False)  # the latest
    _served: dict[str, ServedView] = field(default_factory=dict, init=False)  # as it is desired
    _desired: dict[str, DesiredDeployment] = field(default_factory=dict, init=False)
    _applied: str = field(default="", init=False)  # state that it goes by
    _applying: asyncio.Task[None] | None = field(default=None, init=False)
    _reported: dict[str, QueryFigures] = field(default_factory=dict, init=False)
    _client: httpx.AsyncClient | None = field(default=None, init=False)  # while it follows
    _outage: Outage = field(default_factory=lambda: Outage(_LOG, "service.away"), init=False)

    async def run(self) -> None:
        """ServiceFollower until cancelled."""
        # Any name of loopback is one of a service's own.
        headers = {"Host": "localhost"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        timeout = httpx.Timeout(_ASKS_S, connect=_CONNECTS_S)
        async with httpx.AsyncClient(
            base_url=self.service, headers=headers, timeout=timeout, trust_env=False
        ) as client:
            self._client = client
            reporting = asyncio.create_task(self._report())
            try:
                while True:
                    await self._step(client)
            finally:
                reporting.cancel()
                await asyncio.gather(reporting, return_exceptions=True)

    async def _step(self, client: httpx.AsyncClient) -> None:
        """Ask once; put the question again when what was told has been done."""
        asking = asyncio.create_task(self._asked(client))
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

    async def _asked(self, client: httpx.AsyncClient) -> FollowedView | None:
        since = "" if self._view is None else self._view.version
        asked = {"since": since, "follower": self.name, "applied": self._applied}
        try:
            answer = await client.get(FOLLOWED, params=asked)
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
        self.told.tell(addresses_in(view.deployments))
        desired = await asyncio.to_thread(self._read, view)
        self._desired = desired
        try:
            self.orchestrator.imitate(infrastructure_from_dict(view.emulated))
        except CircinusError as error:  # of another version: links stay as they are
            trouble(_LOG, "emulation.unread", cause=str(error))
        if self._applying is not None:
            self._applying.cancel()  # the call alone: what it began goes on if it is still wanted
        self._applying = asyncio.create_task(self._apply(view))

    def _read(self, view: FollowedView) -> dict[str, DesiredDeployment]:
        """Return what is to be served; what cannot be read is served as before."""
        found = {q: d for q, d in self._desired.items() if q in view.awaited}
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
                found[query] = before
        return found

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

    async def tell(self) -> None:
        """Tell what requests got since the last time; if nobody hears it, the next time tells."""
        if self._client is None:
            return
        figures = figures_of(self.orchestrator, self._reported)
        asked, content = {"follower": self.name}, figures_to_json(figures)
        try:
            answer = await self._client.post(REPORTED, params=asked, content=content)
            answer.raise_for_status()
        except httpx.HTTPError:
            return  # that the service is away is told by who asks it
        self._reported = figures

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_TELLS_S)
            await self.tell()
