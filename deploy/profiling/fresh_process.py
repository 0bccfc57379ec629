"""Starts processes that run a module of ours and can import what this one can.

`multiprocessing` would run the main module of this process in them again: a script of the user's
that plans without asking whether it is `__main__` would plan in every worker, without end.

    first message   {path, ...}: the import path of the starter, and what the module was asked

None outlives its starter, not even while it imports: either it watches who started it, or it is
watched by a reaper before it hears what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, cast

from circinus.deploy.profiling.reaper import Reaper, kill_group
from circinus.deploy.workers.settings import operator_environment, worker_environment
from circinus.deploy.workers.watched import watched
from circinus.pipelines.payload import Payload, decode, encode

_LONGEST_LINE = 2**16  # bytes of a process's output


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


@asynccontextmanager
async def running(
    module: str,
    *arguments: str,
    file: int,
    stderr: int | None = None,
    longest_line: int = _LONGEST_LINE,
) -> AsyncIterator[Process]:
    """Give a process with one numeric thread that runs a module, within an event loop.

    It is called with the arguments and the descriptor of a file, and tells of itself by its
    output. It ends with the block, and so do programs that it calls.
    """
    process = await asyncio.create_subprocess_exec(
        *watched(module),
        *arguments,
        str(file),
        stdin=PIPE,
        stdout=PIPE,
        stderr=stderr,
        pass_fds=[file],
        env=worker_environment(),
        process_group=0,
        limit=longest_line,
    )
    try:
        yield process
    finally:
        kill_group(process.pid)
        await _ended(process)
        if process.stdin is not None:
            process.stdin.close()


async def _ended(process: Process) -> None:
    """Wait for a process that was killed, also if cancelled meanwhile: else nobody does."""
    ending, cancelled = asyncio.ensure_future(process.wait()), None
    while not ending.done():
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


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
