"""Run programs that nobody has read: contained, or not at all.

A program runs as nobody in namespaces of its own, without network, other processes, environment
or files but the interpreter, with limits on processor, memory, disk, output and time. It leaves no
process and no file. One rule: there is no way here to run it without, and `require_containment`
says why where a machine cannot do it.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from circinus.pipelines import checks
from circinus.pipelines.errors import CircinusError, InvalidInput
from circinus.pipelines.execution.contained.refused_calls import REFUSED_CALLS
from circinus.pipelines.execution.needs import Need

MOST_CHARACTERS = 200_000  # of a program, or of its tests together
_GRACE_S = 20.0  # for starting and ending, beyond the time of the program itself
_TRIAL = "x = 1"
_ESCAPES = (  # what a contained program must not be able to do, each in one line
    "import os; assert len(os.listdir('/work')) == 0",
    "import os; assert set(os.environ) <= {'HOME', 'TMPDIR', 'LC_CTYPE'}",
    "import os; assert os.getuid() != 0 and os.getppid() == 1",
)


class ContainmentFailed(CircinusError):
    """A program could not be run contained, so it was not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    """What a contained program may use."""

    cpu_s: int = 5  # of the processor, whole seconds, `> 0`
    wall_s: float = 15.0  # from start to end, `> 0`
    memory_bytes: int = 512 << 20  # of addresses, the interpreter's included, `>= 64 MB`
    disk_bytes: int = 8 << 20  # of all its files together, and of one, `> 0`
    printed_bytes: int = 64 << 10  # that it prints, `> 0`

    def __post_init__(self) -> None:
        for name in ("cpu_s", "wall_s", "disk_bytes", "printed_bytes"):
            checks.positive(f"limits.{name}", getattr(self, name))
        checks.at_least("limits.memory_bytes", self.memory_bytes, 64 << 20)


_SCRIPT = Path(__file__).with_name("confining.py")
_LIMITS = ProgramLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOutcome:
    """What came of a program and its tests."""

    errors: tuple[str, ...] = ()  # of each test, in words; empty: it was passed
    cause: str = ""  # why the tests could not be run to their end; empty: they were
    # whether it used or tried what it must not: limits, network, processes, others' files
    breach: bool = False

    @property
    def passed(self) -> int:
        """How many tests were passed; none, where they could not be run to their end."""
        return 0 if self.cause else self.errors.count("")

    @property
    def first_error(self) -> str:
        """What went wrong first, in words; empty: nothing did."""
        return self.cause or next(filter(None, self.errors), "")


def run_contained(
    program: str, tests: Sequence[str] = (), limits: ProgramLimits = _LIMITS
) -> ProgramOutcome:
    """Run a program, then each test in a copy of its namespace, whatever came of the one before.

    InvalidInput if this machine cannot contain it, or it is too long. ContainmentFailed if
    starting it failed twice.
    """
    for what, texts in (("program", [program]), ("tests", tests)):
        count = sum(map(len, texts))
        rule = f"must have at most {MOST_CHARACTERS} characters"
        checks.require(count <= MOST_CHARACTERS, what, rule, count)
    require_containment()
    try:
        return _run(program, tests, limits)
    except ContainmentFailed:  # for want of memory or processes, say
        return _run(program, tests, limits)


@cache
def require_containment() -> None:
    """Raise InvalidInput unless this machine contains programs; tried once in each process."""
    machine = f"{platform.system()} on {platform.machine()}"
    rule = "must be Linux on one of " + ", ".join(REFUSED_CALLS)
    checks.require(_is_known(), "machine", rule, machine)
    try:
        outcome = _run(_TRIAL, _ESCAPES, _LIMITS)
        problem = outcome.first_error
    except (ContainmentFailed, OSError, ValueError) as error:
        problem = str(error)
    if problem:
        rule = "must let programs be contained (user namespaces, Linux 5.12 or later)"
        raise InvalidInput.of("machine", rule, problem)


def containment_need() -> Need:
    """Return the need of a machine that contains programs, as far as it shows without a trial."""
    return Need(
        name="containment of programs",
        install="Linux 5.12 or later, with user namespaces unless as root",
        is_there=lambda: _is_known() and (os.geteuid() == 0 or _has_user_namespaces()),
    )


def _is_known() -> bool:
    return platform.system() == "Linux" and platform.machine() in REFUSED_CALLS


def _has_user_namespaces() -> bool:
    try:
        return int(Path("/proc/sys/user/max_user_namespaces").read_text(encoding="ascii")) > 0
    except (OSError, ValueError):
        return False


def _run(program: str, tests: Sequence[str], limits: ProgramLimits) -> ProgramOutcome:
    interpreter, token = _interpreter(), secrets.token_hex(8)
    refused = REFUSED_CALLS[platform.machine()]
    job = {
        "parent": os.getpid(),
        "machine": platform.machine(),
        "architecture": refused.architecture,
        "refused": refused.numbers,
        "executable": interpreter.executable,
        "visible": interpreter.visible,
        "hidden": interpreter.hidden,
        "harness": _source("harness.py"),
        "limits": asdict(limits),
        "task": {
            "token": token,
            "readable": interpreter.readable,
            "program": program,
            "tests": list(tests),
        },
    }
    script = str(_SCRIPT)
    command = (interpreter.executable, "-I", "-S", "-B", script)
    printed = _output_of(command, json.dumps(job), limits.wall_s + _GRACE_S)
    try:
        verdict = json.loads(printed)
    except ValueError as error:
        raise ContainmentFailed(f"no verdict of a contained program: {printed[-200:]}") from error
    if "failed" in verdict:
        raise ContainmentFailed(verdict["failed"])
    return _outcome(verdict, token, len(tests), limits)


def _output_of(command: Sequence[str], text: str, timeout_s: float) -> str:
    try:
        done = subprocess.run(
            command,
            input=text.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
            env={},
            cwd="/",
        )
    except subprocess.TimeoutExpired as error:  # killed by now, and what it started with it
        raise ContainmentFailed(f"it was not contained within {timeout_s:g} s") from error
    except OSError as error:
        raise ContainmentFailed(f"{command[0]} cannot be started ({error.strerror})") from error
    return done.stdout.decode(errors="replace")


def _outcome(
    verdict: Mapping[str, Any], token: str, count: int, limits: ProgramLimits
) -> ProgramOutcome:
    reports = [each for each in map(_report, verdict["reports"].splitlines()) if each]
    reports = [each for each in reports if each.get("token") == token]
    errors = tuple(str(each["error"]) for each in reports if "error" in each)
    if any(each.get("finished") for each in reports) and len(errors) == count:
        return ProgramOutcome(errors=errors)
    cause = next((each for each in reports if "cause" in each), None)
    if verdict["why"] or cause is None:
        return ProgramOutcome(cause=_ending(verdict, limits), breach=True)
    return ProgramOutcome(cause=str(cause["cause"]), breach=bool(cause.get("breach")))


def _report(line: str) -> dict[str, Any]:
    try:
        report = json.loads(line)
    except ValueError:
        return {}
    return report if isinstance(report, dict) else {}


def _ending(verdict: Mapping[str, Any], limits: ProgramLimits) -> str:
    """Return in words how a program ended that did not report it."""
    if verdict["why"] == "late":
        return f"it took longer than {limits.wall_s:g} s"
    if verdict["why"] == "loud":
        return f"it printed more than {limits.printed_bytes >> 10} kB"
    status = int(verdict["status"])
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"it took more than {limits.cpu_s} s of the processor"
    if status == -signal.SIGSYS:
        return "it made a system call that is refused"
    if status < 0:
        return f"it was ended by {signal.Signals(-status).name}"
    return f"it ended before its tests did (code {status}): {verdict['printed'][-200:]}".strip(
        ": "
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Interpreter:
    """What a contained program sees of this machine."""

    executable: str
    visible: tuple[tuple[str, str], ...]  # where something lies, and where it is to be seen
    hidden: tuple[str, ...]  # folders below that stay empty: packages are not Python's own
    readable: tuple[str, ...] = field(default=())  # folders of its standard library


_LISTED = """
import ctypes, importlib, json, os, sys, sysconfig
folders = sorted({sysconfig.get_path(each) for each in ("stdlib", "platstdlib")})
for folder in folders:
    dynamic = os.path.join(folder, "lib-dynload")
    for file in os.listdir(dynamic) if os.path.isdir(dynamic) else ():
        name = file.partition(".")[0]
        if not name.startswith(("_test", "xx", "_ctypes_test", "_tkinter")):
            try:
                importlib.import_module(name)
            except ImportError:
                pass
class Info(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
names = []
def add(info, size, data):
    names.append(os.fsdecode(info.contents.name or b""))
    return 0
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
ctypes.CDLL(None).dl_iterate_phdr(kind(add), None)
print(json.dumps({"folders": folders, "libraries": names}))
"""
"""Lists the folders of the standard library, and the libraries by the names they are loaded by."""


@cache
def _interpreter() -> _Interpreter:
    executable = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    listed = json.loads(_output_of((executable, "-I", "-S", "-B", "-c", _LISTED), "", 60.0))
    folders = [each for each in listed["folders"] if Path(each).is_dir()]
    libraries = {os.path.normpath(each) for each in listed["libraries"] if each.startswith("/")}
    libraries = {each for each in libraries if not each.startswith(tuple(folders))}
    visible = {*folders, *libraries, "/etc/ld.so.cache", executable}
    packages = [f"{each}/{name}-packages" for each in folders for name in ("site", "dist")]
    return _Interpreter(
        executable=executable,
        visible=tuple((os.path.realpath(p), p) for p in sorted(visible) if Path(p).exists()),
        hidden=tuple(path for path in packages if Path(path).is_dir()),
        readable=tuple(folders),
    )


@cache
def _source(file: str) -> str:
    return Path(__file__).with_name(file).read_text(encoding="utf-8")
