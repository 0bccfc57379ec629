"""Starts processes that run a user's code as copies of one that has imported ours.

    control    `_START`, with the descriptors of a new process: its channel, where its end is
               reported, its output, its errors
    end        the process id when it has started, then the exit code, minus a signal's number
    channel    first {module, path, environment, folder, ...}: `module.serve` gets what is left

The process that is copied has one thread, so that its copies are whole. It loads no user's code:
generators of random numbers, files and connections of such would be shared by all copies. None of
the copies outlives the process that asked for it, nor the one that was copied.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NoReturn

from circinus.deploy.profiling.channel import Channel
from circinus.deploy.profiling.isolated import (
    Child,
    ChildFailed,
    opening_request,
    run_isolated,
)
from circinus.deploy.profiling.reaper import kill_group
from circinus.deploy.workers.process import adopt_environment, worker_environment
from circinus.deploy.workers.watched import die_with
from circinus.pipelines.model.payload import Payload, encode

_START = b"+"
_NUMBER = struct.Struct("!q")
_COMES_UP_S = 60.0  # most until a process has started: the one that is copied imports before that
_END_S = 3.0  # most that it may take to end
_LOOK_S = 1.0  # between two looks at whether the process that asks lives
_OURS = ("circinus.deploy.profiling.processes", "circinus.deploy.profiling.checking")
_LIBRARIES = {"langchain_core": "circinus.pipelines.langchain"}
"""Imported, too, where the process that asks has loaded the library."""


# deviates: standby-processes
@dataclass(slots=True)
class _Exit:
    """The exit code of a child, once the process that was copied sends it."""

    _end: socket.socket
    _code: int | None = None
    _lock: Lock = field(default_factory=Lock)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return the exit code, minus a signal's number; None: it runs, or that is not known."""
        with self._lock:
            if self._end.fileno() >= 0:
                with suppress(TimeoutError):
                    self._code = _number(self._end, timeout_s)
                    self._end.close()
        return self._code

    def is_known(self) -> bool:
        """Return whether the child runs no more."""
        self.wait(0.0)
        return self._end.fileno() < 0


class WarmStarter:
    """Starts processes, from any thread; the one that is copied is there from the first on.

    It imports `modules` before.
    """

    def __init__(self, modules: Sequence[str] = _OURS) -> None:
        self._modules = modules
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._exits: list[_Exit] = []  # of children that ran when one was started last
        self._uses = 0
        os.register_at_fork(after_in_child=self._forget)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Keep the process that is copied until the last such block is left."""
        with self._lock:
            self._uses += 1
        try:
            yield
        finally:
            with self._lock:
                self._uses -= 1
                if not self._uses:
                    self._end()

    def start(
        self, module: str, request: Mapping[str, Payload], output: int | None = None
    ) -> Child:
        """Return a child that runs `serve(channel, request)` of a module.

        `output` is of both its streams, as of `Popen`; None: this process' own. ChildFailed if it
        cannot be started.
        """
        (ours, theirs), (end, its_end) = Channel.pair(), socket.socketpair()
        null = os.open(os.devnull, os.O_RDWR)
        streams = [1, 2] if output is None else [null, null]
        with theirs, its_end:
            try:
                self._order([theirs.fileno(), its_end.fileno(), *streams])
            except OSError as error:
                raise ChildFailed(str(error)) from error
            finally:
                os.close(null)
        pid = None
        with suppress(TimeoutError):
            pid = _number(end, _COMES_UP_S)
        if pid is None:
            ours.close()
            end.close()
            with self._lock:
                self._end()  # the next start begins with another one
            raise ChildFailed("no process could be started")
        message: dict[str, Payload] = {
            **request,
            "module": module,
            "path": [*sys.path],
            "environment": {**worker_environment()},
            "folder": os.getcwd(),
        }
        with suppress(OSError):  # it has ended: who reads its answer learns of it
            ours.ask(encode(message), _COMES_UP_S)
        child = _Exit(end)
        with self._lock:
            self._exits = [one for one in self._exits if not one.is_known()] + [child]
        return Child(pid, ours, child.wait)

    def _order(self, descriptors: Sequence[int]) -> None:
        with self._lock:
            for last in (False, True):  # the process that is copied may have been killed
                try:
                    socket.send_fds(self._opened(), [_START], descriptors)
                except OSError:
                    self._end()
                    if last:
                        raise
                else:
                    return

    def _opened(self) -> socket.socket:
        if self._control is None or self._process is None or self._process.poll() is not None:
            self._end()
            self._control, theirs = socket.socketpair()
            libraries = [module for name, module in _LIBRARIES.items() if name in sys.modules]
            with theirs:
                call = f"main({theirs.fileno()}, {[*self._modules, *libraries]})"
                self._process = subprocess.Popen(
                    [sys.executable, "-c", f"from {__name__} import main; {call}"],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env=worker_environment(),
                    start_new_session=True,  # no interrupt of a terminal reaches it
                )
        return self._control

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:  # it stands still
                self._process.kill()  # its copies end with it
                self._process.wait()
        self._control = self._process = None
        for child in self._exits:
            child.is_known()  # it has no sender any more
        self._exits.clear()

    def _forget(self) -> None:
        """Release the process in a copy of this one, which did not start it."""
        self._lock = Lock()
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.returncode = 0  # it is none of the copy's children
        self._control = self._process = None


STARTER = WarmStarter()
"""That of this process."""


def run_copy(
    module: str,
    request: Mapping[str, Payload],
    timeout_s: float,
    cancelled: Callable[[], bool] = lambda: False,
    starter: WarmStarter = STARTER,
) -> dict[str, Any]:
    """Return the one answer of `serve(channel, request)` of a module, whose output is dropped.

    Errors as `run_isolated`.
    """
    with starter.used():
        child = starter.start(module, request, output=subprocess.DEVNULL)
        return run_isolated(child, timeout_s, cancelled)


def main(descriptor: int, modules: Sequence[str]) -> None:
    """Import the modules, then start copies of this process until the requester is gone."""
    asker = os.getppid()
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # copies share what is there now
    control = socket.socket(fileno=descriptor)
    _Copied(control, asker).run()


class _Copied:
    """The process that is copied."""

    def __init__(self, control: socket.socket, asker: int) -> None:
        self._control, self._asker, self._pid = control, asker, os.getpid()
        self._ends: dict[int, socket.socket] = {}  # of copies that run, by process id
        self._woken, self._wakes = socket.socketpair()
        for end in (self._woken, self._wakes):
            end.setblocking(False)

    def run(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)  # so that the descriptor below is written
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while os.getppid() == self._asker:
            ready = [descriptor for descriptor, _ in poll.poll(_LOOK_S * 1000)]
            with suppress(BlockingIOError):
                self._woken.recv(4096)
            self._bury()
            if self._control.fileno() in ready and not self._start():
                break
        for pid in self._ends:
            kill_group(pid)

    def _start(self) -> bool:
        """Start the requested process; False: the requester is gone."""
        data, descriptors, *_ = socket.recv_fds(self._control, len(_START), 4)
        if not data:
            return False
        pid = os.fork()
        if not pid:
            self._become(*descriptors)
        self._ends[pid] = socket.socket(fileno=descriptors[1])
        with suppress(OSError):
            self._ends[pid].sendall(_NUMBER.pack(pid))
        for descriptor in (descriptors[0], *descriptors[2:]):
            os.close(descriptor)
        return True

    def _bury(self) -> None:
        while self._ends:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._ends.pop(pid) as end, suppress(OSError):
                end.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(status)))

    def _become(self, channel: int, end: int, output: int, errors: int) -> NoReturn:
        """Run a module in this copy."""
        os.setpgid(0, 0)  # programs that are called end with it
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (self._control, self._woken, self._wakes, *self._ends.values()):
            each.close()
        os.dup2(output, 1)
        os.dup2(errors, 2)
        for descriptor in (end, output, errors):
            os.close(descriptor)
        die_with(self._pid)
        _run(Channel.at(channel))
        raise SystemExit(0)


def _run(channel: Channel) -> None:
    request = opening_request(channel)
    adopt_environment(request.pop("environment"))
    os.chdir(request.pop("folder"))
    sys.path[:] = request.pop("path")
    importlib.invalidate_caches()
    if (random := sys.modules.get("numpy.random")) is not None:
        random.seed(None)  # else all copies draw the same
    importlib.import_module(request.pop("module")).serve(channel, request)


def _number(end: socket.socket, timeout_s: float | None) -> int | None:
    """Receive a number; None: the sender is gone. TimeoutError if it is not there in time."""
    end.settimeout(timeout_s)
    try:
        data = end.recv(_NUMBER.size)
    except BlockingIOError as error:
        raise TimeoutError from error
    except ConnectionError:
        return None
    return int(_NUMBER.unpack(data)[0]) if data else None
