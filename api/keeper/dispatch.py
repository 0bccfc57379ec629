"""A dispatcher: a keeper that follows. `python -m circinus.api.keeper.dispatch URL`, or CLI.

It listens where clients do, answers requests to deployments itself, and hands all else on to the
service at a URL. What serves is the service's to say; while that is away it goes on with what it
was told last. It listens once it serves what it should, and is told to end by SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from dataclasses import dataclass, field
from typing import cast

import uvicorn
import uvloop
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from circinus.api.bootstrap.orchestrators import make_follower
from circinus.api.event_log import event, start_event_log
from circinus.api.http.loop_lag import LoopLag
from circinus.api.keeper.bounded import EdgeLimits
from circinus.api.keeper.edge import listening_at, server_before
from circinus.api.keeper.follow import ServiceFollower
from circinus.api.keeper.proxy import Proxy, Upstream
from circinus.api.settings import Settings, allow_descriptors
from circinus.deploy.runtime.following import ToldLauncher
from circinus.deploy.workers.process import PRIVATE
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import CircinusError

LEAVES_S = 8.0
"""Seconds that a dispatcher that is to end serves on: until clients know that it goes."""
_LASTS_S = 40  # that requests in hand have then: as long as clients wait, as a rule, and more
_LOG = logging.getLogger("circinus.api.keeper.dispatch")


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
    upstream, told, over = Upstream.of(service), ToldLauncher(), asyncio.Event()
    told.message_bytes = settings.message_limit_bytes
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    orchestrator = make_follower(settings, told)
    follow = ServiceFollower(orchestrator, told, service, settings.token_text)
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
    lag = LoopLag(SystemClock())
    lag.start()
    largest = max(settings.body_limit_bytes, settings.dataset_limit_bytes)
    others = Proxy(upstream, largest, settings.control_limit, settings.stream_limit)
    limits = EdgeLimits(connections=settings.connection_limit, apart=others.streams)
    server = server_before(others, follow.orchestrator, settings, lag, limits)
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
    await follow.tell()


def run(settings: Settings, service: str) -> None:
    """Dispatch until told to end; errors as `dispatch`."""
    os.umask(PRIVATE)
    allow_descriptors()
    start_event_log(settings.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(dispatch(settings, service))


def main() -> int:
    """Dispatch as the environment says, for the service at the URL that is the only argument."""
    try:
        run(Settings(), sys.argv[1])
    except CircinusError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
