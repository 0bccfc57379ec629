"""Serve as `python -m circinus.api.serving.process`, with pickled settings on stdin.

On standard output the process pickles None when it answers, or the error that prevents it.
The connected process is its service; it ends on request, or when none connects for a while.
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

from circinus.api.bootstrap.orchestrators import call_gate, make_orchestrator
from circinus.api.bootstrap.planning import installed_version
from circinus.api.event_log import event
from circinus.api.serving.channel import CallServer, Handlers, from_bytes, to_bytes
from circinus.api.serving.edge import (
    listening_at,
    route_requests,
    run_serving,
    server_before,
)
from circinus.api.serving.proxy import Proxy, Upstream
from circinus.api.serving.replicas import Replicas, replica_routes
from circinus.api.serving.routes import ServedRoutes
from circinus.api.settings import Settings
from circinus.deploy.runtime.deployment import DeploymentStatus
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import CircinusError, InvalidInput

_POLL_S = 0.5
_SOCKETS = "w"  # folder of the workers': no longer with a number in it than the others' names
_LOG = logging.getLogger("circinus.api.serving.process")


def serving_socket(folder: Path) -> Path:
    """Return where the serving process of a folder takes calls."""
    return folder / "serving.sock"


def service_socket(folder: Path) -> Path:
    """Return where the service of a folder takes requests that are not for deployments."""
    return folder / "service.sock"


def fingerprint(settings: Settings) -> str:
    """Return a hash that equals only between processes of one version and settings."""
    token = settings.token_text or ""
    parts = (installed_version("circinus"), sys.version, settings.model_dump_json(), token)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(slots=True, eq=False)
class _ServingProcess:
    """What a service may call, by the names of `Deployer`, and besides."""

    settings: Settings
    orchestrator: Orchestrator
    replicas: Replicas
    routes: ServedRoutes
    over: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def handlers(self) -> Handlers:
        orchestrator, replicas, routes = self.orchestrator, self.replicas, self.routes
        return {
            "hello": self.hello,
            "end": self.end,
            "apply": orchestrator.apply,
            "withhold": orchestrator.withhold,
            "request": orchestrator.request,
            "emulate": orchestrator.emulate,
            "serving": orchestrator.serving,
            "reports": replicas.reports,
            "workload": replicas.workload,
            "status": self.status,
            "apply_routes": routes.apply_routes,
            "routes": routes.routes,
        }

    def hello(self) -> str:
        return fingerprint(self.settings)

    def status(self, query_id: str) -> DeploymentStatus | None:
        try:
            return self.replicas.status(query_id)
        except InvalidInput:
            return None

    async def end(self) -> None:
        """End all instances; return when nothing runs any more."""
        self.over.set()
        await self.ended.wait()


async def serve(settings: Settings, folder: Path, answers: Callable[[], None]) -> None:
    """Answer clients and the service of a folder until it is over; call `answers` once it does.

    Raises InvalidInput if it cannot listen at the address for clients, and as
    `make_orchestrator` does.
    """
    listening = listening_at(settings.host, settings.port)
    async with call_gate(settings) as gate:
        orchestrator = make_orchestrator(settings, folder / _SOCKETS, gate)
        await _serve(settings, folder, answers, orchestrator, listening)


async def _serve(
    settings: Settings,
    folder: Path,
    answers: Callable[[], None],
    orchestrator: Orchestrator,
    listening: socket.socket,
) -> None:
    replicas = Replicas(orchestrator, SystemClock(), expected=settings.dispatchers)
    orchestrator.followers = replicas
    routes = ServedRoutes(orchestrator)
    process = _ServingProcess(settings, orchestrator, replicas, routes)
    calls = CallServer(process.handlers)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, process.over.set)
    others = Proxy.to(Upstream.at(service_socket(folder)), settings)
    paths = [
        route_requests(others, routes, settings.body_limit_bytes),
        *replica_routes(replicas),
    ]
    server = server_before(others, orchestrator, settings, paths, others.streams)
    async with calls.listening(serving_socket(folder)):
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        serving.add_done_callback(lambda _: process.over.set())
        try:
            answers()
            await _until_over(process.over, calls, settings.keeper_waits_s)
        finally:
            event(_LOG, "serving.ends", deployments=sorted(orchestrator.serving()))
            replicas.close()
            server.should_exit = True
            await others.end_streams()
            await serving
            await routes.close()
            await orchestrator.close()
            process.ended.set()


async def _until_over(over: asyncio.Event, calls: CallServer, patience_s: float) -> None:
    alone_s = 0.0
    while not over.is_set() and alone_s < patience_s:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), _POLL_S)
        alone_s = 0.0 if calls.callers else alone_s + _POLL_S


def main() -> int:
    """Serve until it is over; return the exit code."""
    answer = os.dup(1)
    os.dup2(2, 1)  # pipelines print to standard error, with the log

    def reply(error: CircinusError | None = None) -> None:
        os.write(answer, to_bytes(error))
        os.close(answer)

    settings: Settings = from_bytes(sys.stdin.buffer.read())
    try:
        run_serving(serve(settings, Path(sys.argv[1]), reply), settings)
    except CircinusError as error:
        reply(error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
