"""A service's link to its serving process: connects to or starts it, and restarts it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from circinus.api.event_log import Outage, event, trouble
from circinus.api.serving.channel import Caller, from_bytes, to_bytes
from circinus.api.serving.process import fingerprint, serving_socket
from circinus.api.settings import Settings
from circinus.api.use_cases.deployer import DesiredRoute
from circinus.deploy.routes.routed import RouteStatus
from circinus.deploy.runtime.deployment import DeploymentStatus
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.deploy.runtime.learning import ObservedWorkload
from circinus.deploy.runtime.report import DeploymentReport
from circinus.deploy.runtime.walk import RequestResult, RequestTerms
from circinus.deploy.workers.process import own_environment
from circinus.pipelines import checks
from circinus.pipelines.errors import CircinusError, InvalidInput, Unavailable
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.payload import Payload

_ANSWERS_WITHIN_S = 10.0  # for a serving process to identify itself
_ENDS_WITHIN_S = 30.0
_STARTS_WITHIN_S = 120.0
_PULL_S = 1.0  # between two pulls of reports
_PAUSE_S = 1.0  # before a serving process is started again
_LONGEST_SOCKET = 107  # bytes of its path
_LOG = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class RemoteDeployer:
    """A `Deployer` in the serving process. Use it through `opened_deployer`."""

    settings: Settings
    folder: Path
    generation: int = field(default=0, init=False)
    _caller: Caller | None = field(default=None, init=False)
    _emulated: Infrastructure | None = field(default=None, init=False)
    _pulled: tuple[float, Mapping[str, DeploymentReport]] | None = field(default=None, init=False)
    _watch: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def closed(self) -> bool:
        """Return whether there is no serving process, nor will there be one."""
        return self._watch is not None and self._watch.done()

    async def open(self) -> None:
        """Take over the serving process that is there, if it is of our kind, or start one.

        InvalidInput if it cannot listen at the settings' address, and as `make_orchestrator`.
        """
        caller = await Caller.connect(serving_socket(self.folder))
        if caller is not None and await _is(caller, fingerprint(self.settings)):
            event(_LOG, "serving.taken_over", pid=caller.peer)
            self._caller = caller
        else:
            if caller is not None:
                await _end(caller)
            self._caller = await self._started()
        self._watch = asyncio.create_task(self._keep_up())

    async def apply(self, desired: Mapping[str, DesiredDeployment]) -> None:
        """See `Deployer`, as all that follow."""
        await self._call("apply", dict(desired))

    async def withhold(self, query_id: str) -> None:
        """See there."""
        await self._call("withhold", query_id)

    async def request(self, query_id: str, input: Payload, terms: RequestTerms) -> RequestResult:
        """See there."""
        result: RequestResult = await self._call("request", query_id, input, terms)
        return result

    async def emulate(self, infrastructure: Infrastructure) -> None:
        """See there; a serving process that is started again does, too."""
        self._emulated = infrastructure
        await self._call("emulate", infrastructure)

    async def serving(self) -> Mapping[str, str]:
        """See there."""
        plans: Mapping[str, str] = await self._call("serving")
        return plans

    async def reports(self) -> Mapping[str, DeploymentReport]:
        """See there; pulled once a second for all callers."""
        now = asyncio.get_running_loop().time()
        if self._pulled is None or now - self._pulled[0] >= _PULL_S:
            reports: Mapping[str, DeploymentReport] = await self._call("reports")
            self._pulled = now, reports
        return self._pulled[1]

    async def workload(self, query_id: str) -> ObservedWorkload | None:
        """See there."""
        workload: ObservedWorkload | None = await self._call("workload", query_id)
        return workload

    async def status(self, query_id: str) -> DeploymentStatus | None:
        """See there."""
        status: DeploymentStatus | None = await self._call("status", query_id)
        return status

    async def apply_routes(self, desired: Mapping[str, DesiredRoute]) -> None:
        """See there."""
        await self._call("apply_routes", dict(desired))

    async def routes(self) -> Mapping[str, RouteStatus | str]:
        """See there."""
        status: Mapping[str, RouteStatus | str] = await self._call("routes")
        return status

    async def close(self) -> None:
        """End the serving process and all that it runs."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        caller, self._caller = self._caller, None
        if caller is not None:
            await _end(caller)

    async def _call(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - the name's
        if self._caller is None:
            raise Unavailable("what runs deployments is being started", retry_after_s=_PAUSE_S)
        return await self._caller.call(name, *arguments)

    async def _started(self) -> Caller:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "circinus.api.serving.process",
            str(self.folder),
            stdin=PIPE,
            stdout=PIPE,
            env=own_environment(),
            start_new_session=True,  # what ends the service by a terminal does not end it
        )
        async with asyncio.timeout(_STARTS_WITHIN_S):
            reply = await _reply_of(process, to_bytes(self.settings))
        error = from_bytes(reply) if reply else None
        if isinstance(error, CircinusError):
            await process.wait()
            raise error
        caller = await Caller.connect(serving_socket(self.folder))
        if caller is None:
            raise Unavailable("the serving process ended when it started", retry_after_s=_PAUSE_S)
        event(_LOG, "serving.started", pid=caller.peer)
        return caller

    async def _keep_up(self) -> None:
        outage = Outage(_LOG, "serving.not_started")
        while True:
            if self._caller is not None:
                await self._caller.lost()
                trouble(_LOG, "serving.lost", pid=self._caller.peer)
                self._caller.close()
                self._caller = self._pulled = None
            await asyncio.sleep(_PAUSE_S)
            try:
                self._caller = await self._started()
                if self._emulated is not None:
                    await self._caller.call("emulate", self._emulated)
                self.generation += 1
                outage.over()
            except (CircinusError, OSError, TimeoutError) as error:
                outage.lasts(cause=str(error) or type(error).__name__)


@contextlib.asynccontextmanager
async def opened_deployer(settings: Settings, folder: Path) -> AsyncIterator[RemoteDeployer]:
    """Return the deployer of a folder's serving process; errors as `RemoteDeployer.open`.

    The end of the context closes it, or leaves the serving process to the next service.
    """
    with _alone(settings, folder):
        deployer = RemoteDeployer(settings, folder)
        await deployer.open()
        yield deployer
        if deployer.closed:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _alone(settings: Settings, folder: Path) -> Iterator[None]:
    """Hold the folder against other services; InvalidInput if one has it."""
    longest = len(os.fsencode(serving_socket(folder)))
    rule = f"must be a path of at most {_LONGEST_SOCKET} bytes with what is in it"
    checks.require(longest <= _LONGEST_SOCKET, "runtime", rule, str(settings.runtime))
    for place in (settings.runtime, folder):
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = place.stat()
        except OSError as error:
            rule = f"must be a folder that can be made ({error.strerror})"
            raise InvalidInput.of("runtime", rule, str(place)) from error
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            rule = "must be a folder that only its user may enter"
            raise InvalidInput.of("runtime", rule, str(place))
    with (folder / "lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            rule = "must be one that no other service listens on"
            raise InvalidInput.of("port", rule, settings.port) from error
        yield


async def _reply_of(process: Process, message: bytes) -> bytes:
    """Send a message to a process; return its output."""
    if process.stdin is None or process.stdout is None:
        return b""
    process.stdin.write(message)
    process.stdin.close()
    return await process.stdout.read()


async def _is(caller: Caller, expected: str) -> bool:
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN_S):
            return bool(await caller.call("hello") == expected)
    except (CircinusError, TimeoutError, KeyError):
        return False


async def _end(caller: Caller) -> None:
    """End a serving process: in order, or if it does not within its time, at once."""
    pid = caller.peer
    try:
        async with asyncio.timeout(_ENDS_WITHIN_S):
            await caller.call("end")
    except (CircinusError, TimeoutError, KeyError):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await caller.lost()
    caller.close()
