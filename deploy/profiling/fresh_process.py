"""Starts processes that run a module of ours and can import what this one can.

`multiprocessing` would run the main module of this process in them again: a script of the user's
that plans without asking whether it is `__main__` would plan in every worker, without end.

    first message   {path, ...}: the import path of the starter, and what the module was asked
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, cast

from circinus.pipelines.payload import Payload, decode, encode


def started(
    module: str, asked: Mapping[str, Payload], *, stdin: int, output: int | None = None
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Give a process that runs a module, and the pipe to it; it leads a process group.

    The module is called with the pipe's descriptor, see `taken`. `stdin` and `output`, for
    both of its streams, are as of `Popen`.
    """
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(theirs.fileno())],
            stdin=stdin,
            stdout=output,
            stderr=output,
            pass_fds=[theirs.fileno()],
            process_group=0,  # programs that operators call end with it
        )
    with contextlib.suppress(BrokenPipeError):  # it has ended: who reads its answer learns of it
        ours.send_bytes(encode({**asked, "path": [*sys.path]}))
    return process, ours


def taken(descriptor: str) -> tuple[Connection, dict[str, Any]]:
    """Give, in such a process, the pipe and what was asked; the import path is the starter's."""
    pipe = Connection(int(descriptor))
    asked = cast("dict[str, Any]", decode(pipe.recv_bytes()))
    sys.path[:] = asked.pop("path")
    return pipe, asked
