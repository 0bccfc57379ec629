"""Starts processes that run a module of ours and can import what this one can.

`multiprocessing` would run the main module of this process in them again: a script of the user's
that plans without asking whether it is `__main__` would plan in every worker, without end.

    first message   {path, ...}: the import path of the starter, and what the module was asked

None outlives its starter, not even while it imports: either it watches who started it, or it is
watched by a reaper before it hears what to do.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, cast

from circinus.deploy.profiling.reaper import Reaper
from circinus.deploy.workers.settings import operator_environment
from circinus.deploy.workers.watched import watched
from circinus.pipelines.payload import Payload, decode, encode


def started(
    module: str,
    asked: Mapping[str, Payload],
    *,
    output: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Give a process that runs a module, and the pipe to it; it leads a process group.

    It ends with the thread that calls this. The module is called with the pipe's descriptor, see
    `taken`. `output` is that of both of its streams, as of `Popen`; without an environment it gets
    that of a process which runs operators.
    """
    process, pipe = _started(watched(module), subprocess.PIPE, output, environment)
    _tell(pipe, asked)
    return process, pipe


def started_under(
    reaper: Reaper, module: str, asked: Mapping[str, Payload]
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Give the same, for any thread: a reaper ends it with this process."""
    process, pipe = _started([sys.executable, "-m", module], subprocess.DEVNULL, None, None)
    reaper.watch(process.pid)
    _tell(pipe, asked)
    return process, pipe


def taken(descriptor: str) -> tuple[Connection, dict[str, Any]]:
    """Give, in such a process, the pipe and what was asked; the import path is the starter's.

    SystemExit if the starter is gone.
    """
    pipe = Connection(int(descriptor))
    try:
        asked = cast("dict[str, Any]", decode(pipe.recv_bytes()))
    except (EOFError, OSError) as error:
        raise SystemExit("the process that started this one is gone") from error
    sys.path[:] = asked.pop("path")
    return pipe, asked


def _started(
    command: Sequence[str], stdin: int, output: int | None, environment: Mapping[str, str] | None
) -> tuple[subprocess.Popen[bytes], Connection]:
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [*command, str(theirs.fileno())],
            stdin=stdin,
            stdout=output,
            stderr=output,
            pass_fds=[theirs.fileno()],
            process_group=0,  # programs that operators call end with it
            env=operator_environment() if environment is None else environment,
        )
    return process, ours


def _tell(pipe: Connection, asked: Mapping[str, Payload]) -> None:
    with contextlib.suppress(BrokenPipeError):  # it has ended: who reads its answer learns of it
        pipe.send_bytes(encode({**asked, "path": [*sys.path]}))
