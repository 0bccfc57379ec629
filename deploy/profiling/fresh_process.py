"""Starts processes that run a module of ours and can import what this one can.

`multiprocessing` would run the main module of this process in them again: a script of the user's
that plans without asking whether it is `__main__` would plan in every worker, without end.

    first request   {path, ...}: the import path of the starter, and what the module was asked

None outlives its starter, not even while it imports: it watches who started it. Those of which
many are started with the same imports are copies of one, see `warm`.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from circinus.deploy.profiling.channel import Channel
from circinus.deploy.profiling.reaper import kill_group
from circinus.deploy.workers.process import worker_environment
from circinus.deploy.workers.watched import watched
from circinus.pipelines.model.payload import Payload, decode, encode

_LONGEST_LINE = 2**16  # bytes of a process's output


def started(
    module: str, asked: Mapping[str, Payload], environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], Channel]:
    """Return a process that runs a module, and the channel to it; it leads a process group.

    It ends with the thread that calls this. The module is called with the channel's descriptor,
    see `taken`.
    """
    ours, theirs = Channel.pair()
    with theirs:
        process = subprocess.Popen(
            [*watched(module), str(theirs.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            process_group=0,  # programs that are called end with it
            env=environment,
        )
    with contextlib.suppress(OSError):  # it has ended: who reads its answer learns of it
        ours.ask(encode({**asked, "path": [*sys.path]}))
    return process, ours


def taken(descriptor: str) -> tuple[Channel, dict[str, Any]]:
    """Return, in such a process, the channel and what was asked; the import path is the starter's.

    SystemExit if the starter is gone.
    """
    channel = Channel.at(int(descriptor))
    try:
        asked = cast("dict[str, Any]", decode(channel.requested()))
    except (EOFError, OSError) as error:
        raise SystemExit("the process that started this one is gone") from error
    sys.path[:] = asked.pop("path")
    return channel, asked


@asynccontextmanager
async def running(
    module: str,
    *arguments: str,
    file: int,
    stderr: int | None = None,
    longest_line: int = _LONGEST_LINE,
) -> AsyncIterator[Process]:
    """Return a process with one numeric thread that runs a module, within an event loop.

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
