"""The keeper process: `python -m circinus.api.keeper.process`, with pickled settings on stdin.

On standard output it pickles None when it answers, or the error for which it cannot. Its service
is whoever is connected; it ends when told to, or when nobody came for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from circinus.api.bootstrap.orchestrators import call_gate, make_orchestrator
from circinus.api.bootstrap.planning import installed_version
from circinus.api.event_log import event, start_event_log
from circinus.api.http.loop_lag import LoopLag
from circinus.api.keeper.all_dispatchers import AllDispatchers
from circinus.api.keeper.bounded import EdgeLimits
from circinus.api.keeper.channel import CallServer, Handlers, from_bytes, to_bytes
from circinus.api.keeper.edge import listening_at, server_before
from circinus.api.keeper.followed import Followed, FollowedApp
from circinus.api.keeper.proxy import Proxy, Upstream
from circinus.api.keeper.routes import ServedRoutes
from circinus.api.settings import Settings, allow_descriptors
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.workers.process import PRIVATE
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import CircinusError, InvalidInput

_POLL_S = 0.5
_SOCKETS = "w"  # folder of the workers': no longer with a number in it than the others' names
_LOG = logging.getLogger("circinus.api.keeper.process")


def keeper_socket(folder: Path) -> Path:
    """Return where the keeper of a folder takes calls."""
    return folder / "keeper.sock"


def service_socket(folder: Path) -> Path:
    """Return where the service of a folder takes requests that are not for deployments."""
    return folder / "service.sock"


def fingerprint(settings: Settings) -> str:
    """Return what equals only between processes of one version, with the same settings."""
    token = settings.token_text or ""
    told = (installed_version("circinus"), sys.version, settings.model_dump_json(), token)
    return hashlib.sha256(repr(told).encode()).hexdigest()


_OF_DEPLOYMENTS = (
    "apply",
    "arrivals_per_s",
    "demand",
    "figures",
    "imitate",
    "lately",
    "news",
    "recent",
    "request",
    "seen_requests",
    "serving",
    "withhold",
)
_OF_ROUTES = ("apply_routes", "routes")
"""What a service may call, by the names of `Deployer`."""


@dataclass(slots=True, eq=False)
class _Keeper:
    """What a service may ask of a keeper besides."""

    settings: Settings
    together: AllDispatchers
    routes: ServedRoutes
    over: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def handlers(self) -> Handlers:
        own: Handlers = {"hello": self.hello, "status": self.status, "end": self.end}
        of_deployments = {name: getattr(self.together, name) for name in _OF_DEPLOYMENTS}
        return {**own, **of_deployments, **{n: getattr(self.routes, n) for n in _OF_ROUTES}}

    def hello(self) -> str:
        return fingerprint(self.settings)

    def status(self, query_id: str) -> bytes | None:
        """Return a status as bytes: asked for often, and mostly the same as before."""
        try:
            return to_bytes(self.together.status(query_id))
        except InvalidInput:
            return None

    async def end(self) -> None:
        """End; return when nothing runs any more."""
        self.over.set()
        await self.ended.wait()


async def keep(settings: Settings, folder: Path, answers: Callable[[], None]) -> None:
    """Answer clients and the service of a folder until it is over; `answers` is told once it does.

    Raises InvalidInput if it cannot listen where clients are told to come, and as
    `make_orchestrator` does.
    """
    listening = listening_at(settings.host, settings.port)
    async with call_gate(settings) as gate:
        orchestrator = make_orchestrator(settings, folder / _SOCKETS, gate)
        await _keep(settings, folder, answers, orchestrator, listening)


async def _keep(
    settings: Settings,
    folder: Path,
    answers: Callable[[], None],
    orchestrator: Orchestrator,
    listening: socket.socket,
) -> None:
    followed = Followed(orchestrator, SystemClock(), expected=settings.dispatchers)
    orchestrator.followers = followed
    routes = ServedRoutes(orchestrator)
    keeper = _Keeper(settings, AllDispatchers(orchestrator, followed), routes)
    calls, lag = CallServer(keeper.handlers), LoopLag(SystemClock())
    lag.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, keeper.over.set)
    largest = max(settings.body_limit_bytes, settings.dataset_limit_bytes)
    service = Upstream.at(service_socket(folder))
    others = Proxy(service, largest, settings.control_limit, settings.stream_limit)
    limits = EdgeLimits(connections=settings.connection_limit, apart=others.streams)
    app = FollowedApp(others, followed)
    server = server_before(app, orchestrator, settings, lag, limits, routes)
    async with calls.listening(keeper_socket(folder)):
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        serving.add_done_callback(lambda _: keeper.over.set())
        try:
            answers()
            await _until_over(keeper.over, calls, settings.keeper_waits_s)
        finally:
            event(_LOG, "keeper.ends", deployments=sorted(orchestrator.serving()))
            followed.close()
            server.should_exit = True
            await others.end_streams()
            await serving
            await routes.close()
            await orchestrator.close()
            keeper.ended.set()


async def _until_over(over: asyncio.Event, calls: CallServer, patience_s: float) -> None:
    alone_s = 0.0
    while not over.is_set() and alone_s < patience_s:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), _POLL_S)
        alone_s = 0.0 if calls.callers else alone_s + _POLL_S


def main() -> int:
    """Keep until it is over; give the exit code."""
    os.umask(PRIVATE)
    answer = os.dup(1)
    os.dup2(2, 1)  # what pipelines print goes to standard error, with the log

    def tell(error: CircinusError | None = None) -> None:
        os.write(answer, to_bytes(error))
        os.close(answer)

    settings: Settings = from_bytes(sys.stdin.buffer.read())
    allow_descriptors()
    folder = Path(sys.argv[1])
    start_event_log(settings.log_level)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(keep(settings, folder, tell))
    except CircinusError as error:
        tell(error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
