"""Confine one program: a script that stands between Circinus and the program.

    Circinus -> this script -> the first process of new namespaces -> the program

The first process of a pid namespace takes all others with it when it ends, and ends with whoever
started it: nothing outlives a run. It builds a root that has nothing but an interpreter, and it
alone reports how the program ended. One rule: this file is run by `python -I -S` and imports the
standard library only, all of it before the root is exchanged.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import selectors
import signal
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

WORK = "/work"  # the program's folder, the only one that it can write to
REPORT_FD = 3  # where the program's own reports go
_NOBODY = 65534
_BASE = "/tmp"  # any folder that there is: the new root is mounted there for a moment
_OLD = "/old"

_NEWNS, _NEWUTS, _NEWIPC = 0x20000, 0x4000000, 0x8000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8
_BIND, _REC, _PRIVATE = 4096, 16384, 1 << 18
_DETACH = 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_SET_PDEATHSIG, _SET_DUMPABLE, _SET_SECCOMP, _SET_NO_NEW_PRIVS = 1, 4, 22, 38
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Run the job on standard input, and write how it ended to standard output, both JSON."""
    job = json.load(sys.stdin.buffer)
    os.umask(0o022)  # these three are the caller's otherwise
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        _enter_namespaces()
        _end_with_parent(job["parent"])
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        _end_with_parent(0)  # which is outside of the namespace
        _call("prctl", _SET_DUMPABLE, 0, 0, 0, 0)
        _exchange_root(job)
        verdict = _supervised(job)
    except OSError as error:
        verdict = {"failed": str(error)}
    _write_all(1, json.dumps(verdict).encode())
    os._exit(0)


def _enter_namespaces() -> None:
    """Leave the user's files, processes and network; as who is no root by a user namespace."""
    is_root = os.geteuid() == 0
    uid, gid = os.geteuid(), os.getegid()
    others = _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS
    _call("unshare", others if is_root else others | _NEWUSER)
    if not is_root:
        for file, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{_NOBODY} {uid} 1"),
            ("gid_map", f"{_NOBODY} {gid} 1"),
        ):
            Path("/proc/self", file).write_text(text, encoding="ascii")


def _end_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends, or end now if it has."""
    _call("prctl", _SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _exchange_root(job: Mapping[str, Any]) -> None:
    """Make a root that has what `visible` names, read-only, and an empty folder to work in."""
    _mount("none", "/", None, _REC | _PRIVATE)
    _mount("tmpfs", _BASE, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    Path(_BASE + _OLD).mkdir()
    number = _PIVOT_ROOT[job["machine"]]
    _system_call("pivot_root", number, _BASE.encode(), (_BASE + _OLD).encode())
    os.chdir("/")
    for source, target in job["visible"]:
        _show(_OLD + source, target)
    for folder in job["hidden"]:
        _mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV, "size=4k,mode=555")
    _call("umount2", _OLD.encode(), _DETACH)
    Path(_OLD).rmdir()
    Path(WORK).mkdir()
    attributes = struct.pack("=QQQQ", _RDONLY | _NOSUID | _NODEV, 0, 0, 0)
    arguments = (_AT_FDCWD, b"/", _AT_RECURSIVE, attributes, len(attributes))
    _system_call("mount_setattr", _MOUNT_SETATTR, *arguments)
    space = f"size={job['limits']['disk_bytes']},nr_inodes=256,mode=777"
    _mount("tmpfs", WORK, "tmpfs", _NOSUID | _NODEV | _NOEXEC, space)


def _show(source: str, target: str) -> None:
    path = Path(target)
    if Path(source).is_dir():
        path.mkdir(parents=True, exist_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    _mount(source, target, None, _BIND | _REC)


def _supervised(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the program ended; it is ended where it takes too long or prints too much."""
    limits = job["limits"]
    handed = os.memfd_create("job")
    _write_all(handed, json.dumps(job["task"]).encode())
    os.lseek(handed, 0, os.SEEK_SET)
    printed, prints = os.pipe()
    reported, reports = os.pipe()
    child = os.fork()
    if not child:
        _become_program(job, (handed, prints, prints, reports))
    for fd in (handed, prints, reports):
        os.close(fd)
    texts = {printed: b"", reported: b""}
    why = _watch(child, texts, limits)
    if why:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    words = {fd: text.decode(errors="replace") for fd, text in texts.items()}
    return {"why": why, "status": status, "printed": words[printed], "reports": words[reported]}


def _watch(child: int, texts: dict[int, bytes], limits: Mapping[str, Any]) -> str:
    """Read what a process writes until it ends; return "late" or "loud" where it must be ended."""
    ends = time.monotonic() + limits["wall_s"]  # noqa: TID251 - a script by itself
    with selectors.DefaultSelector() as selector:
        ended = os.pidfd_open(child)
        for fd in (ended, *texts):
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            left_s = ends - time.monotonic()  # noqa: TID251 - a script by itself
            ready = selector.select(max(left_s, 0))
            if not ready:
                return "late"
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16) if key.fd in texts else b""
                if not chunk:
                    selector.unregister(key.fd)
                    continue
                texts[key.fd] += chunk
                if len(texts[key.fd]) > limits["printed_bytes"]:
                    return "loud"
    return ""


def _become_program(job: Mapping[str, Any], streams: Sequence[int]) -> NoReturn:
    """Turn this process into the interpreter that runs the program."""
    try:
        copies = [os.dup(fd) for fd in streams]
        for fd, copy in enumerate(copies):
            os.dup2(copy, fd, inheritable=True)
        os.closerange(REPORT_FD + 1, max(copies) + 64)
        os.setsid()
        os.chdir(WORK)
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        _limit(job["limits"])
        _refuse_calls(job["architecture"], job["refused"])
        executable = job["executable"]
        options = ("-I", "-S", "-B", "-X", "utf8", "-c", job["harness"])
        os.execve(executable, (executable, *options), {"HOME": WORK, "TMPDIR": WORK})
    except BaseException as error:  # noqa: BLE001 - of a process of its own: it must end here
        os.write(2, f"{type(error).__name__}: {error}".encode())
    os._exit(127)


def _limit(limits: Mapping[str, Any]) -> None:
    cpu_s = limits["cpu_s"]
    for what, most in (
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["disk_bytes"]),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NPROC, 0),  # it starts no process and no thread
    ):
        _lower(what, most, most)
    _lower(resource.RLIMIT_CPU, cpu_s, cpu_s + 1)


def _lower(what: int, soft: int, hard: int) -> None:
    """Set limits, those of the caller where they are lower: nobody may raise them."""
    own = resource.getrlimit(what)[1]
    most = hard if own == resource.RLIM_INFINITY else min(hard, own)
    resource.setrlimit(what, (min(soft, most), most))


def _refuse_calls(architecture: int, numbers: Sequence[int]) -> None:
    """Have the kernel end this process at a refused system call, or one of another machine."""
    # struct sock_filter: 0x20 loads a word of struct seccomp_data, 0x15 jumps if equal, 0x35 if
    # not less, 0x06 returns. The last instruction kills; each jump to it skips what lies between.
    count = len(numbers)
    code = [
        (0x20, 0, 0, 4),
        (0x15, 0, count + 3, architecture),
        (0x20, 0, 0, 0),
        (0x35, count + 1, 0, 0x40000000),  # numbers of the ABI x32
        *((0x15, count - i, 0, number) for i, number in enumerate(numbers)),
        (0x06, 0, 0, 0x7FFF0000),
        (0x06, 0, 0, 0x80000000),
    ]
    packed = b"".join(struct.pack("=HBBI", *each) for each in code)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    program = struct.pack("@HP", len(code), ctypes.addressof(buffer))
    _call("prctl", _SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("prctl", _SET_SECCOMP, 2, ctypes.c_char_p(program), 0, 0)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    kind_bytes = None if kind is None else kind.encode()
    arguments = (source.encode(), target.encode(), kind_bytes, flags, options.encode() or None)
    _call("mount", *arguments, where=target)


def _call(name: str, *arguments: object, where: str = "") -> None:
    """Call a function of the C library; OSError if it fails."""
    plain = (ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments)
    if getattr(_libc, name)(*plain) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}", where or None)


def _system_call(name: str, number: int, *arguments: object) -> None:
    plain = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    if _libc.syscall(ctypes.c_long(number), *plain) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


if __name__ == "__main__":
    main()
