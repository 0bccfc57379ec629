"""Run a program and its tests, within the confined process, and report what came of each.

What it refuses the kernel refuses as well: this says it in words, and ends a program that would
catch the error. One rule: it is run as text by `python -I -S -c`, and imports nothing else.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

_WORK = "/work"
_REPORT_FD = 3
_REFUSED = {  # how audited events begin: https://docs.python.org/3/library/audit_events.html
    "socket.": "it opened a socket",
    "subprocess.": "it started a process",
    "os.fork": "it started a process",
    "os.posix_spawn": "it started a process",
    "os.spawn": "it started a process",
    "os.startfile": "it started a process",
    "os.system": "it started a process",
    "pty.": "it started a process",
    "_thread.start_new_thread": "it started a thread",
    "os.exec": "it started another program",
    "os.kill": "it signalled a process",
    "signal.pthread_kill": "it signalled a process",
    "ctypes.": "it called into C",
    "syslog.": "it wrote to the system's log",
    "sys.addaudithook": "it watched the interpreter",
}
_MODULES = frozenset({"ctypes", "_ctypes"})
_PATHS = (
    "open",
    *("os.chmod", "os.chown", "os.link", "os.listdir", "os.mkdir", "os.remove", "os.rename"),
    *("os.rmdir", "os.scandir", "os.symlink", "os.truncate", "os.utime", "shutil.rmtree"),
)
_LONGEST = 300
_FULL = (errno.EFBIG, errno.ENOSPC)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def main() -> None:
    """Run the task on standard input."""
    task = json.load(sys.stdin)
    report = _reporting(task["token"])
    readable = tuple(task["readable"])
    sys.addaudithook(_hook(report, readable))
    try:
        _run(task, report)
    except _Breach as breach:
        report(cause=str(breach), breach=True)


class _Breach(Exception):
    """A program used more than it may."""


def _run(task: dict[str, Any], report: Callable[..., None]) -> None:
    namespace: dict[str, Any] = {"__name__": "program"}
    error = _error_of(task["program"], namespace)
    if error:
        report(cause=error)
        return
    tests = dict(namespace)  # in which a test may call anything `str`, and the program has its own
    for test in task["tests"]:
        report(error=_error_of(test, tests))
    report(finished=True)


def _reporting(token: str) -> Callable[..., None]:
    def report(**fields: object) -> None:
        os.write(_REPORT_FD, (json.dumps({"token": token, **fields}) + "\n").encode())

    return report


def _error_of(source: str, namespace: dict[str, Any]) -> str:
    """Run a source; return the error it raises in words, or nothing."""
    try:
        exec(compile(source, "<program>", "exec"), namespace)  # the reason for all of this
    except MemoryError as error:
        raise _Breach("it needed more memory than it may have") from error
    except SystemExit:
        return "it ended itself"
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise _Breach("it wrote more than its folder may hold") from error
        return _words_of(error)
    return ""


def _words_of(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:_LONGEST].removesuffix(": ")
    except BaseException:  # noqa: BLE001 - of the program: its messages are code
        return "an error without words"


def _hook(
    report: Callable[..., None], readable: tuple[str, ...]
) -> Callable[[str, tuple[Any, ...]], None]:
    def refuse(cause: str) -> NoReturn:
        report(cause=cause, breach=True)
        os._exit(3)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "import" and arguments[0] in _MODULES:
            refuse(f"it imported {arguments[0]}")
        for start, cause in _REFUSED.items():
            if event.startswith(start):
                refuse(cause)
        if event in _PATHS and (path := _outside(event, arguments, readable)):
            refuse(f"it reached for {path[:_LONGEST]}, outside of its folder")

    return hook


def _outside(event: str, arguments: tuple[Any, ...], readable: tuple[str, ...]) -> str:
    """Return the path of an event that is outside of what it may reach; empty: there is none."""
    reads = event in ("os.listdir", "os.scandir") or (event == "open" and _reads(arguments))
    allowed = (*readable, _WORK) if reads else (_WORK,)
    count = 2 if event in ("os.link", "os.rename", "os.symlink") else 1
    for value in arguments[:count]:
        if isinstance(value, int) or value is None:  # a file that is open, the current folder
            continue
        path = os.path.realpath(os.fsdecode(value))
        if not any(path == each or path.startswith(f"{each}/") for each in allowed):
            return path
    return ""


def _reads(arguments: tuple[Any, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return not set(mode) & set("wax+")
    return not (isinstance(flags, int) and flags & _WRITING)


if __name__ == "__main__":
    main()
