"""What a worker asks of the kernel for its own process."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import local

from circinus.deploy.workers.shares import ProcessorSeconds
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.execution.loaded import MODELS

_PR_SET_TIMERSLACK = 29
_LEAST_NS = 1
_CPU_CLOCK = 2  # of the clocks that the kernel keeps of a process: `CPUCLOCK_SCHED`
_FACTS = local()  # of a thread: its process and the file that describes it


OUT_OF_MEMORY = 12
"""Exit code of a worker whose operators hold on to most of the memory that it may have."""


_MODELS_PART = 0.4  # below the half that `lift_if_held` takes for a leak


def limit_memory(beyond_bytes: int) -> None:
    """Let this process take at most so much more memory of its own than it has now.

    Not address space: libraries map gigabytes of it that they never touch. Models that stay loaded
    may take a part of it, as running them takes memory, too.
    """
    MODELS.limit_bytes = _MODELS_PART * beyond_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_held_bytes() + beyond_bytes, hard))


def lift_if_held(beyond_bytes: int) -> bool:
    """Return whether, after `limit_memory`, over half of that memory stays in use.

    The limit is lifted then: to end in order takes memory, too.
    """
    gc.collect()
    most, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if _held_bytes() <= most - beyond_bytes / 2:
        return False
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    return True


def _held_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as facts:
        return int(facts.read().split()[5]) * resource.getpagesize()


def forget_peak() -> None:
    """Let `peak_bytes` count from now on, where the kernel can."""
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as facts:
        facts.write("5")


def peak_bytes() -> int:
    """Return the peak memory of this process; programs that it calls do not count."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as facts:
        line = next((line for line in facts if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(line.split()[1]) * 1024


def processor_seconds() -> ProcessorSeconds:
    """Return what this thread, and besides it the rest of this process, has used so far.

    Numeric libraries have threads of their own, and operators call programs: both compute for the
    thread that waits for them.
    """
    thread_s = time.thread_time()
    others_s = max(time.process_time() - thread_s, 0.0) + programs_s()
    return ProcessorSeconds(thread_s=thread_s, others_s=others_s, lost_s=lost_s())


def busy_s() -> float:
    """Return the seconds so far in which this process computed, or was ready to.

    Where the kernel does not report the latter, all that passes is such.
    """
    used = processor_seconds()
    return SystemClock().now() if used.lost_s is None else used.cpu_s + used.lost_s


def programs_s() -> float:
    """Return the processor seconds of the programs that this process called, those running too."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(map(_process_s, _running_programs(os.getpid())))


def lost_s() -> float | None:
    """Return the seconds that this thread was ready to run and had no processor; None: unknown.

    Others had it, or a quota was used up.
    """
    with suppress(OSError, IndexError):
        return int(os.pread(_file_of_thread(), 64, 0).split()[1]) / 1e9
    return None


def _file_of_thread() -> int:
    known: tuple[int, int] | None = getattr(_FACTS, "known", None)
    if known is None or known[0] != os.getpid():  # a copy of a process has the other's file
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        known = _FACTS.known = os.getpid(), file
    return known[1]


def _running_programs(pid: int) -> Iterator[int]:
    """Yield the processes that a process started and that run, and theirs."""
    if pid == os.getpid():
        try:  # spares most processes, which have none, a look at each of their threads
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
    with suppress(OSError):
        for thread in list(Path(f"/proc/{pid}/task").iterdir()):
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from _running_programs(child)


def _process_s(pid: int) -> float:
    with suppress(OSError):  # it ended meanwhile
        return time.clock_gettime(~pid << 3 | _CPU_CLOCK)
    return 0.0


def sharpen_timers() -> None:
    """Let waits of this thread, and of threads it starts later, end as exactly as they can.

    They stand for shares and speeds; the kernel may end one 50 microseconds late, to save power.
    """
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _LEAST_NS, 0, 0, 0)


# A machine of a local tier is one core: numeric libraries may not take more.
_THREADS = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "NUMEXPR_NUM", "VECLIB_MAXIMUM")
_ONE_THREAD = {f"{threads}_THREADS": "1" for threads in _THREADS}
# In any letters: settings are read so. Of PostgreSQL its own words, and files of them.
_OURS = re.compile(r"CIRCINUS_.*(TOKEN|SECRET|DATABASE_URL)", re.IGNORECASE)
_ANY_SECRET = re.compile(rf"{_OURS.pattern}|PG.*PASS", re.IGNORECASE)
PRIVATE = 0o077
"""The umask of our processes: what they write is for their user alone."""


def own_environment() -> dict[str, str]:
    """Return the environment of a process of the service that is handed its settings.

    It is this one's without token and database URL; the database may need what else there is.
    """
    return _without(_OURS)


def operator_environment() -> dict[str, str]:
    """Return the environment of a process that runs operators: this one's without secrets of ours.

    The module search path is the same, so that a reference means the same there.
    """
    search = [str(Path(entry).absolute()) for entry in sys.path]  # "" is the current folder
    return {**_without(_ANY_SECRET), "PYTHONPATH": os.pathsep.join(search)}


def worker_environment() -> dict[str, str]:
    """Return the same with one numeric thread."""
    return {**operator_environment(), **_ONE_THREAD}


def adopt_environment(environment: Mapping[str, str]) -> None:
    """Replace this process' environment by another."""
    os.environ.clear()
    os.environ.update(environment)


@contextlib.contextmanager
def without_secrets() -> Iterator[None]:
    """Let what is started meanwhile inherit no secret, where its environment cannot be given."""
    secrets = {name: value for name, value in os.environ.items() if _ANY_SECRET.match(name)}
    for name in secrets:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(secrets)


def _without(secrets: re.Pattern[str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not secrets.match(name)}
