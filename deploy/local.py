"""Instances as processes of this computer.

A worker starts free of its share (imports would take 1/share as long), and is limited
when it is ready. Whatever happens, it leaves no process and no cgroup behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from deploy.cgroups import Cgroup, Cgroups
from deploy.emulation import emulated_speed
from deploy.errors import LaunchFailed
from deploy.instances import InstanceSpec
from deploy.settings import worker_environment
from deploy.shares import Enforcement, Pace, enforcement_for
from deploy.tls import TlsFiles
from deploy.workers.client import WorkerClient
from deploy.workers.options import WorkerOptions

_LOG_LINES = 20
_GRACE_S = 3.0
_POLL_S = 0.02

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class LocalInstance:
    """A worker process."""

    process: Process
    address: str
    share: float
    enforcement: Enforcement
    note: str
    cgroup: Cgroup | None
    tls: TlsFiles | None = None

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def limit(self) -> None:
        """See `RunningInstance`."""
        if self.cgroup is not None:
            self.cgroup.limit(self.share)

    async def ended(self) -> str:
        """See `RunningInstance`."""
        code = await self.process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    async def stop(self) -> None:
        """See `RunningInstance`."""
        await _stop(self.process, self.cgroup, grace_s=_GRACE_S)


class LocalLauncher:
    """Starts workers as child processes.

    Attributes:
        cgroups: Where quotas can be set, or why they cannot.
    """

    def __init__(
        self,
        *,
        logs: Path,
        cgroups: Cgroups | str,
        allow_import: bool = False,
        start_timeout_s: float = 60.0,
        memory_bytes: int | None = None,
    ) -> None:
        """Make a launcher and remove cgroups that dead processes left behind.

        Args:
            logs: Folder for the workers' logs; made when missing.
            cgroups: What `deploy.cgroups.available` gives.
            allow_import: Whether workers may load `module:attribute`.
            start_timeout_s: How long a worker may take until it is healthy.
            memory_bytes: Most memory of a worker beyond the loaded pipeline; None: any.
        """
        self.cgroups = cgroups
        self._logs = logs
        self._allow_import = allow_import
        self._start_timeout_s = start_timeout_s
        self._memory_bytes = memory_bytes
        self._serials = count(1)
        if isinstance(cgroups, Cgroups):
            for folder in cgroups.sweep():
                _log.info("cgroup_swept folder=%s", folder)

    async def start(self, spec: InstanceSpec) -> LocalInstance:
        """See `Launcher`."""
        enforcement = enforcement_for(
            spec.operators, spec.share, cgroups=isinstance(self.cgroups, Cgroups)
        )
        serial = f"{next(self._serials)}"
        note = self.cgroups if isinstance(self.cgroups, str) else ""
        cgroup = None
        if enforcement is Enforcement.CGROUP:
            cgroup, note = self._cgroup(serial)
            enforcement = enforcement if cgroup else Enforcement.DUTY_CYCLE
        log = self._log_file(spec, serial)
        process = None
        try:
            process = await self._spawn(self._options(spec, enforcement), log)
            if cgroup is not None:
                cgroup.add(process.pid)
            address = await self._ready(spec, process, log)
        except OSError as error:
            await _stop(process, cgroup, grace_s=0)
            cause = f"the system refuses it ({error.strerror})"
            raise LaunchFailed(str(spec.key), cause, _tail(log)) from error
        except BaseException:  # also when cancelled: nothing may be left running
            await _stop(process, cgroup, grace_s=0)
            raise
        note = note if enforcement is Enforcement.DUTY_CYCLE else ""
        return LocalInstance(process, address, spec.share, enforcement, note, cgroup)

    def _cgroup(self, serial: str) -> tuple[Cgroup | None, str]:
        if isinstance(self.cgroups, str):
            return None, self.cgroups
        try:
            return self.cgroups.create(serial), ""
        except OSError as error:
            return None, f"{self.cgroups.parent} refuses: {error.strerror}"

    def _log_file(self, spec: InstanceSpec, serial: str) -> Path:
        self._logs.mkdir(parents=True, exist_ok=True)
        words = (spec.key.query_id, spec.key.tier, str(spec.key.replica), str(os.getpid()), serial)
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(words))
        return self._logs / f"{name[-200:]}.log"

    def _options(self, spec: InstanceSpec, enforcement: Enforcement) -> WorkerOptions:
        return WorkerOptions(
            pipeline=spec.pipeline_reference,
            allow_import=self._allow_import,
            operators=tuple(operator.name for operator in spec.operators),
            configuration=spec.configuration.as_dict(),
            tier=spec.tier.name,
            pace=Pace(enforcement=enforcement, share=spec.share, speed=emulated_speed(spec.tier)),
            parent=os.getpid(),
            memory_bytes=self._memory_bytes,
        )

    async def _spawn(self, options: WorkerOptions, log: Path) -> Process:
        with log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "deploy.workers.server",
                *options.arguments(),
                stdin=PIPE,
                stdout=PIPE,
                stderr=output,
                env=worker_environment(),
                start_new_session=True,  # an interrupt at the terminal is ours to handle
            )

    async def _ready(self, spec: InstanceSpec, process: Process, log: Path) -> str:
        try:
            async with asyncio.timeout(self._start_timeout_s):
                address = await _announced(process)
                await _healthy(address)
                return address
        except TimeoutError as error:
            cause = f"not healthy within {self._start_timeout_s:g} s"
            raise LaunchFailed(str(spec.key), cause, _tail(log)) from error
        except ValueError as error:
            code = await process.wait()
            cause, killed = f"exit code {code}", code < 0
            raise LaunchFailed(str(spec.key), cause, _tail(log), killed=killed) from error


async def _announced(process: Process) -> str:
    """Give the address that the worker writes when it is ready.

    Raises:
        ValueError: If it ended instead.
    """
    if process.stdout is None:
        raise ValueError("standard output is not a pipe")
    line = await process.stdout.readline()
    return str(json.loads(line)["address"])


async def _healthy(address: str) -> None:
    client = WorkerClient(address)
    try:
        while not await client.healthy(timeout_s=1.0):
            await asyncio.sleep(_POLL_S)
    finally:
        await client.close()


def _tail(log: Path) -> str:
    try:
        with log.open(errors="replace") as lines:
            return "".join(deque(lines, maxlen=_LOG_LINES)).rstrip()
    except OSError as error:
        return f"(no log: {error})"


async def _stop(process: Process | None, cgroup: Cgroup | None, *, grace_s: float) -> None:
    """End the process, everything it started, and its cgroup."""
    if process is not None:
        await _end(process, grace_s)
    while cgroup is not None and not cgroup.remove():
        for pid in cgroup.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(_POLL_S)


async def _end(process: Process, grace_s: float) -> None:
    if process.returncode is None and grace_s > 0:
        process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await process.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # it leads a session of its own
    await process.wait()
    if process.stdin is not None:
        process.stdin.close()
