"""Instances as processes of this computer.

A worker starts free of its share (imports would take 1/share as long), and is limited when it is
ready. Whatever happens, it leaves no process and no cgroup behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import shutil
import signal
import tempfile
import weakref
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from circinus.deploy.local.cgroups import Cgroup, Cgroups
from circinus.deploy.runtime.instances import InstanceKey, InstanceSpec, RunningInstance
from circinus.deploy.workers.client import Health, answers
from circinus.deploy.workers.errors import LaunchFailed
from circinus.deploy.workers.options import WorkerOptions
from circinus.deploy.workers.process import OUT_OF_MEMORY, worker_environment
from circinus.deploy.workers.shares import Enforcement, enforcement_for
from circinus.deploy.workers.transport import LARGEST_MESSAGE, address_of, socket_of
from circinus.deploy.workers.watched import watched

_TAIL_LINES = 20
_TAIL_BYTES = 2**16
_NAME = 200  # characters


@dataclass(slots=True, eq=False)
class WorkerLogs:
    """A folder of logs. Used within one event loop."""

    folder: Path  # made when missing
    file_bytes: int = 8 * 2**20  # from which a file is cut
    all_bytes: int = 256 * 2**20  # of all files; those of workers that run are left alone
    look_s: float = 1.0  # between two looks at a file
    _open: set[Path] = field(default_factory=set, init=False)

    def open(self, key: InstanceKey, serial: str) -> Path:
        """Return the file for the log of a worker, once there is room for it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room()
        words = (key.query_id, key.tier, str(key.replica), str(os.getpid()), serial)
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(words))
        log = self.folder / f"{name[-_NAME:]}.log"
        self._open.add(log)
        return log

    def close(self, log: Path) -> None:
        """Record that no process writes to a log any more."""
        self._open.discard(log)

    async def bound(self, log: Path) -> None:
        """Keep a log that is written to from growing, until cancelled."""
        while True:
            await asyncio.sleep(self.look_s)
            with contextlib.suppress(OSError):
                if log.stat().st_size > self.file_bytes:
                    await asyncio.to_thread(self._cut, log)

    def _cut(self, log: Path) -> None:
        with log.open("rb+") as written:
            written.seek(-self.file_bytes // 2, os.SEEK_END)
            latest = written.read(self.file_bytes)
            written.truncate(0)  # who writes appends: it goes on at the new end
        before = log.with_suffix(".log.1")
        before.unlink(missing_ok=True)
        with os.fdopen(os.open(before, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as half:
            half.write(latest)

    def _make_room(self) -> None:
        """Remove the oldest logs of workers that ended, while all together are too large."""
        logs = []
        for log in self.folder.glob("*.log*"):
            with contextlib.suppress(OSError):  # another serving process removes some, too
                logs.append((log.stat().st_mtime, log.stat().st_size, log))
        total = sum(size for _, size, _ in logs)
        for _, size, log in sorted(logs):
            if total <= self.all_bytes:
                return
            if log.with_suffix("") not in self._open and log not in self._open:
                log.unlink(missing_ok=True)
                total -= size


def tail(log: Path) -> str:
    """Return the last lines of a log."""
    try:
        with log.open("rb") as written:
            written.seek(max(log.stat().st_size - _TAIL_BYTES, 0))
            lines = written.read().decode(errors="replace").splitlines(keepends=True)
    except OSError as error:
        return f"(no log: {error})"
    return "".join(deque(lines, maxlen=_TAIL_LINES)).rstrip()


_GRACE_S = 3.0
_LOOK_S, _HEALTH_S = 1.0, 5.0
_LOOKS_GONE = 3  # one alone may be bad luck
_SILENT_S = 60.0  # an operator may hold up the whole process for long, and still end
_POLL_S = 0.02

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class LocalInstance(RunningInstance):
    """A worker process."""

    process: Process
    share: float
    cgroup: Cgroup | None
    logs: WorkerLogs
    log: Path
    bounding: asyncio.Task[None]  # of its log
    hangs: bool = False  # there is no call in hand that would end

    def limit(self) -> None:
        """See `RunningInstance`."""
        if self.cgroup is not None:
            self.cgroup.limit(self.share)

    async def ended(self) -> str:
        """See `RunningInstance`: it also ended when it has to be replaced, see `_unfit`."""
        exited = asyncio.ensure_future(self.process.wait())
        unfit = asyncio.ensure_future(self._unfit())
        try:
            await asyncio.wait({exited, unfit}, return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                return _how(exited.result())
            self.hangs = True
            return unfit.result()
        finally:
            for each in (exited, unfit):
                each.cancel()
            await asyncio.gather(exited, unfit, return_exceptions=True)

    async def _unfit(self) -> str:
        """Wait until it has to be replaced although its process goes on; return the reason."""
        client = self.client()
        try:
            gone, silent = 0, 0
            while True:
                await asyncio.sleep(_LOOK_S)
                health = await client.health(timeout_s=_HEALTH_S)
                if isinstance(health, str):
                    return f"replaced: {health}"
                gone = gone + 1 if health is Health.GONE else 0
                silent = silent + 1 if health is Health.SILENT else 0
                if gone >= _LOOKS_GONE:
                    return "replaced: its process runs, but nobody listens at its address"
                if silent * _HEALTH_S >= _SILENT_S:
                    return f"replaced: it did not say for {_SILENT_S:g} s that it serves"
        finally:
            await client.close()

    async def stop(self) -> None:
        """See `RunningInstance`."""
        self.bounding.cancel()
        await _stop(self.process, self.cgroup, grace_s=0 if self.hangs else _GRACE_S)
        self.logs.close(self.log)
        if (socket := socket_of(self.address)) is not None:  # it had no time to, perhaps
            socket.unlink(missing_ok=True)


@dataclass(slots=True, weakref_slot=True, kw_only=True, eq=False)
class LocalLauncher:
    """Starts workers as child processes, and removes cgroups that dead processes left behind."""

    logs: Path  # folder for the workers' logs, see `WorkerLogs`
    cgroups: Cgroups | str  # see `deploy.local.cgroups.available`
    allow_import: bool = False  # whether workers may load `module:attribute`
    start_timeout_s: float = 60.0  # how long a worker may take until it is healthy
    # most of a worker beyond the loaded pipeline; None: any
    memory_bytes: int | None = 2 * 2**30
    message_bytes: int = LARGEST_MESSAGE  # of the largest call or answer
    # Of the workers' sockets: only its user may enter it, no other program uses it, it is emptied;
    # None: a temporary one
    sockets: Path | None = None
    _serials: Iterator[int] = field(default_factory=count, init=False)
    _logs: WorkerLogs = field(init=False)

    def __post_init__(self) -> None:
        self._logs = WorkerLogs(self.logs)
        if self.sockets is not None:
            shutil.rmtree(self.sockets, ignore_errors=True)
            self.sockets.mkdir(mode=0o700)
        if isinstance(self.cgroups, Cgroups):
            for folder in self.cgroups.sweep():
                _log.info("cgroup_swept folder=%s", folder)

    def _socket(self, serial: str) -> Path:
        if self.sockets is None:
            self.sockets = Path(tempfile.mkdtemp(prefix="circinus-"))
            weakref.finalize(self, shutil.rmtree, self.sockets, ignore_errors=True)
        return self.sockets / serial

    async def start(self, spec: InstanceSpec) -> LocalInstance:
        """See `Launcher`."""
        enforcement = enforcement_for(
            spec.operators, spec.share, cgroups=isinstance(self.cgroups, Cgroups)
        )
        serial = f"{next(self._serials)}"
        cgroup, note = self._cgroup(serial, enforcement)
        if enforcement is Enforcement.CGROUP and cgroup is None:
            enforcement = Enforcement.DUTY_CYCLE
        log, process = self._logs.open(spec.key, serial), None
        try:
            options = replace(
                spec.options(enforcement, address_of(self._socket(serial))),
                allow_import=self.allow_import,
                memory_bytes=self.memory_bytes,
                message_bytes=self.message_bytes,
            )
            process = await _spawn(options, log)
            if cgroup is not None:
                cgroup.add(process.pid)
            address = await self._ready(spec, process, log)
        except BaseException as error:  # also when cancelled: nothing may be left running
            await _stop(process, cgroup, grace_s=0)
            self._logs.close(log)
            self._socket(serial).unlink(missing_ok=True)
            if not isinstance(error, OSError):
                raise
            cause = f"the system refuses it ({error.strerror})"
            raise LaunchFailed(str(spec.key), cause, tail(log)) from error
        return LocalInstance(
            address=address,
            pid=process.pid,
            enforcement=enforcement,
            note=note if enforcement is Enforcement.DUTY_CYCLE else "",
            message_bytes=self.message_bytes,
            process=process,
            share=spec.share,
            cgroup=cgroup,
            logs=self._logs,
            log=log,
            bounding=asyncio.get_running_loop().create_task(self._logs.bound(log)),
        )

    def _cgroup(self, serial: str, enforcement: Enforcement) -> tuple[Cgroup | None, str]:
        """Return the cgroup, if one is needed and can be had, or why it cannot."""
        if isinstance(self.cgroups, str):
            return None, self.cgroups
        if enforcement is not Enforcement.CGROUP:
            return None, ""
        try:
            return self.cgroups.create(serial), ""
        except OSError as error:
            return None, f"{self.cgroups.parent} refuses: {error.strerror}"

    async def _ready(self, spec: InstanceSpec, process: Process, log: Path) -> str:
        """Return the address that the worker writes, once it is healthy."""
        try:
            async with asyncio.timeout(self.start_timeout_s):
                line = b"" if process.stdout is None else await process.stdout.readline()
                address = str(json.loads(line)["address"])
                while not await answers(address, None, timeout_s=1.0):
                    await asyncio.sleep(_POLL_S)
                return address
        except TimeoutError as error:
            cause = f"not healthy within {self.start_timeout_s:g} s"
            raise LaunchFailed(str(spec.key), cause, tail(log)) from error
        except ValueError as error:  # it ended without a word
            code = await process.wait()
            name, cause = str(spec.key), f"exit code {code}"
            raise LaunchFailed(name, cause, tail(log), killed=code < 0) from error


def _how(code: int) -> str:
    """Return how a worker ended, by its exit code."""
    if code == OUT_OF_MEMORY:
        return f"exit code {code}: its operators held on to the memory that it may have"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


async def _spawn(options: WorkerOptions, log: Path) -> Process:
    with os.fdopen(os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "ab") as output:
        return await asyncio.create_subprocess_exec(
            *watched("circinus.deploy.workers.server"),
            *options.arguments(),
            stdin=PIPE,
            stdout=PIPE,
            stderr=output,
            env=worker_environment(),
            start_new_session=True,  # an interrupt at the terminal is ours to handle
        )


async def _stop(process: Process | None, cgroup: Cgroup | None, *, grace_s: float) -> None:
    """End the process, everything it started, and its cgroup."""
    if process is not None:
        if process.returncode is None and grace_s > 0:
            with contextlib.suppress(OSError):  # at a small share its end would take seconds
                if cgroup is not None:
                    cgroup.limit(1.0)
            process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # it leads a session of its own
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()
    while cgroup is not None and not cgroup.remove():
        for pid in cgroup.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(_POLL_S)
