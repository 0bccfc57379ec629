"""Programs that attack: each is ended with its cause, and nothing of it is left."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.contained import running
from circinus.pipelines.execution.contained.running import (
    MOST_CHARACTERS,
    ContainmentFailed,
    ProgramLimits,
    ProgramOutcome,
    containment_need,
    require_containment,
    run_contained,
)


def _cannot() -> str:
    try:
        require_containment()
    except InvalidInput as error:
        return str(error)
    return ""


needs_containment = pytest.mark.skipif(bool(_cannot()), reason=f"no containment here: {_cannot()}")
ROOT = Path(__file__).parents[3]
LIMITS = ProgramLimits(cpu_s=1, wall_s=20)
C = "import ctypes\nlibc = ctypes.CDLL(None)\n"
UNWATCHED = running._source("harness.py").replace("sys.addaudithook(", "str(")
CAUGHT = "try:\n    {}\nexcept BaseException:\n    pass"


def outcome_of(program: str) -> ProgramOutcome:
    """What comes of a program with one test that is always passed."""
    return run_contained(program, ["assert True"], LIMITS)


def test_a_program_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidInput, match="program must have at most 200000 characters"):
        run_contained("#" * (MOST_CHARACTERS + 1))
    with pytest.raises(InvalidInput, match="tests must have at most 200000 characters"):
        run_contained("", ["#" * MOST_CHARACTERS, "#"])


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"cpu_s": 0}, "limits.cpu_s must be"),
        ({"wall_s": float("nan")}, "limits.wall_s must be"),
        ({"memory_bytes": 1000}, "limits.memory_bytes must be"),
        ({"printed_bytes": -1}, "limits.printed_bytes must be"),
    ],
)
def test_limits_that_are_none_are_refused(limits: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ProgramLimits(**limits)


def test_a_machine_of_another_kind_refuses_and_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    require_containment.cache_clear()
    try:
        with pytest.raises(
            InvalidInput, match=r"machine must be Linux on one of .*'Linux on vax'"
        ):
            run_contained(f"open({str(tmp_path / 'ran')!r}, 'w')")
        assert not containment_need().is_there()
    finally:
        require_containment.cache_clear()
    assert not list(tmp_path.iterdir())


def test_a_machine_where_namespaces_cannot_be_had_refuses_and_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = running._source("confining.py")
    broken = tmp_path / "confining.py"
    broken.write_text(source.replace('_call("unshare", ', '_call("mount", '))
    monkeypatch.setattr(running, "_SCRIPT", broken)
    require_containment.cache_clear()
    try:
        with pytest.raises(InvalidInput, match="machine must let programs be contained"):
            run_contained(f"open({str(tmp_path / 'ran')!r}, 'w')")
    finally:
        require_containment.cache_clear()
    assert not (tmp_path / "ran").exists()


@needs_containment
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("print('no JSON')", "no verdict of a contained program: no JSON"),
        ("import time; time.sleep(60)", "it was not contained within 2 s"),
        ('print(\'{"failed": "mount: no"}\')', "mount: no"),
    ],
)
def test_a_run_that_fails_by_itself_is_tried_again_and_then_named(
    script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "script.py"
    file.write_text(f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\n{script}")
    require_containment()
    monkeypatch.setattr(running, "_SCRIPT", file)
    monkeypatch.setattr(running, "_GRACE_S", 1.5)
    with pytest.raises(ContainmentFailed, match=message):
        run_contained("", (), ProgramLimits(wall_s=0.5))
    assert (tmp_path / "runs").read_text() == "xx"


def test_an_interpreter_that_cannot_be_started_is_named() -> None:
    with pytest.raises(ContainmentFailed, match="/no/python cannot be started"):
        running._output_of(("/no/python",), "", 1.0)


@needs_containment
def test_limits_and_signals_of_the_caller_do_not_matter() -> None:
    code = (
        "import os, resource, signal\n"
        "os.umask(0o077)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\n"
        "from circinus.pipelines.execution.contained.running import run_contained\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_DFL)\n"
        "print(run_contained('x = 1', ['assert x == 1']).errors)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.stdout == "('',)\n", done.stderr


ENDED = {  # program -> cause
    "while True: pass": "it took more than 1 s of the processor",
    "x = bytearray(10 << 30)": "it needed more memory than it may have",
    "x = []\nwhile True: x.append(bytearray(1 << 20))": "it needed more memory than it may have",
    "import os; os.fork()": "it started a process",
    "import os\nwhile True:\n    try: os.fork()\n    except BaseException: pass": (
        "it started a process"
    ),
    "import os\nif os.fork() == 0:\n    os.setsid()\n    os.fork()\n    while True: pass": (
        "it started a process"
    ),
    "import threading; threading.Thread(target=print).start()": (
        "it made a system call that is refused"
    ),
    "import subprocess; subprocess.run(['ls'])": "it started a process",
    "import os; os.system('ls')": "it started a process",
    "import os, sys; os.execv(sys.executable, ['x'])": "it started another program",
    "import socket; socket.socket()": "it opened a socket",
    CAUGHT.format("import socket; socket.create_connection(('127.0.0.1', 1))"): (
        "it opened a socket"
    ),
    "open('/tmp/evil', 'w')": "it reached for /tmp/evil, outside of its folder",
    "open('../evil', 'w')": "it reached for /evil, outside of its folder",
    "import os; os.open('/evil', os.O_CREAT | os.O_WRONLY)": (
        "it reached for /evil, outside of its folder"
    ),
    "import os; os.symlink('/etc', 'e'); open('e/passwd')": (
        "it reached for /etc, outside of its folder"
    ),
    CAUGHT.format("open('/root/.ssh/id_rsa').read()"): (
        "it reached for /root/.ssh/id_rsa, outside of its folder"
    ),
    "open('/proc/1/environ').read()": "it reached for /proc/1/environ, outside of its folder",
    "import os; os.listdir('/')": "it reached for /, outside of its folder",
    "f = open('a', 'wb')\nwhile True: f.write(bytes(100_000))": (
        "it wrote more than its folder may hold"
    ),
    "for i in range(1000): open(f'{i}', 'wb').write(bytes(100_000))": (
        "it wrote more than its folder may hold"
    ),
    "while True: print('x' * 10_000)": "it printed more than 64 kB",
    "import os\nwhile True: os.write(2, bytes(10_000))": "it printed more than 64 kB",
    "import os; os.kill(os.getppid(), 9)": "it signalled a process",
    "import os; os.kill(-1, 9)": "it signalled a process",
    "import ctypes": "it imported ctypes",
    "import os; os._exit(0)": "it ended before its tests did (code 0)",
    'import os; os.write(3, b\'{"finished": true, "error": ""}\\n\'); os._exit(0)': (
        "it ended before its tests did (code 0)"
    ),
}


@needs_containment
@pytest.mark.parametrize(("program", "cause"), ENDED.items(), ids=range(len(ENDED)))
def test_a_program_that_does_what_it_must_not_is_ended_with_the_cause(
    program: str, cause: str
) -> None:
    outcome = outcome_of(program)
    assert (outcome.cause, outcome.breach, outcome.passed) == (cause, True, 0)


@needs_containment
def test_a_program_that_waits_is_ended_when_its_time_is_over() -> None:
    outcome = run_contained("import time; time.sleep(100)", (), ProgramLimits(wall_s=0.5))
    assert (outcome.cause, outcome.breach) == ("it took longer than 0.5 s", True)


KERNEL = {  # program -> part of the cause, where nothing but the kernel looks
    "import os; os.fork()": "it made a system call that is refused",
    "import socket; socket.socket()": "it made a system call that is refused",
    "import os; os.kill(os.getppid(), 9)": "it made a system call that is refused",
    "import os; os.memfd_create('x')": "it made a system call that is refused",
    f"{C}libc.unshare(0x10000000)": "it made a system call that is refused",
    f"{C}libc.shmget(0, 1 << 30, 0o1777)": "it made a system call that is refused",
    f"{C}libc.ptrace(0, 0, 0, 0)": "it made a system call that is refused",
    f"{C}libc.syscall(0x40000000 + 39)": "it made a system call that is refused",
    "import os, sys; os.execv(sys.executable, [sys.executable, '-S', '-c', '1'])": (
        "it ended before its tests did"
    ),
    "open('/tmp/evil', 'w')": "FileNotFoundError",
    "open('/evil', 'w')": "Read-only file system",
    "import os; open(os.__file__, 'a')": "Error",
    "import os; os.chmod(os.__file__, 0o777)": "Read-only file system",
    "open('/root/.ssh/id_rsa')": "FileNotFoundError",
    "open('/proc/1/environ')": "FileNotFoundError",
    "open('/etc/passwd')": "FileNotFoundError",
    "import os; os.symlink('/etc/passwd', 'p'); open('p')": "FileNotFoundError",
    "import os; os.setuid(0)": "Error",
    "import os; os.mknod('null', 0o20666, os.makedev(1, 3))": "PermissionError",
    "import os; os.chmod(open('a', 'w').name, 0o777); os.execv('/work/a', ['a'])": (
        "PermissionError"
    ),
    "import resource as r; r.setrlimit(r.RLIMIT_AS, (-1, -1))": "not allowed to raise",
    "for i in range(1000): open(f'{i}', 'w').close()": "more than its folder may hold",
}


@needs_containment
@pytest.mark.parametrize(("program", "cause"), KERNEL.items(), ids=range(len(KERNEL)))
def test_the_kernel_holds_a_program_that_gets_around_the_interpreter(
    program: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_source", lambda _: UNWATCHED)
    outcome = outcome_of(program)
    assert cause in outcome.first_error
    assert outcome.passed == 0


@needs_containment
def test_a_program_sees_nothing_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "abc")
    monkeypatch.setattr(running, "_source", lambda _: UNWATCHED)
    shown = (
        "import os, sys, sysconfig\n"
        "home = os.path.dirname(os.__file__)\n"
        "files = [os.path.join(at, file) for at, _, names in os.walk('/') for file in names]\n"
        "files = [each for each in files if not each.startswith(home)]\n"
    )
    tests = [
        "assert set(os.environ) <= {'HOME', 'TMPDIR', 'LC_CTYPE'}",
        "assert os.getuid() == 65534 and os.getpid() == 2 and os.getppid() == 1",
        "assert not os.path.exists('/proc') and not os.path.exists('/sys')",
        "assert not [f for f in files if '.so' not in f and 'python' not in f], files",
        "p = home + '/site-packages'; assert not os.path.exists(p) or not os.listdir(p)",
        "assert os.listdir('/work') == []",
    ]
    assert run_contained(shown, tests).errors == ("",) * 6


@needs_containment
def test_a_program_that_is_right_passes_and_may_use_its_folder() -> None:
    program = "import hashlib, json, math, random, re, sqlite3, zlib\ndef half(x): return x / 2"
    tests = [
        "assert half(4) == 2",
        "assert half(4) == 3, f'half of four is {half(4)}'",
        "open('a', 'w').write('x'); assert open('a').read() == 'x'",
        "import tempfile; tempfile.TemporaryFile().write(b'x')",
        "assert len(hashlib.sha256(b'').hexdigest()) == 64",
        "half()",
    ]
    outcome = run_contained(program, tests)
    assert not outcome.breach
    assert outcome.passed == 4
    assert outcome.first_error == "AssertionError: half of four is 2.0"
    assert outcome.errors[5].startswith("TypeError: half() missing 1 required")


@needs_containment
@pytest.mark.parametrize(
    ("program", "cause"),
    [
        ("def f(:", "SyntaxError: invalid syntax (<program>, line 1)"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import os; os.environ['SECRET_KEY']", "KeyError: 'SECRET_KEY'"),
        ("import sys; sys.exit()", "it ended itself"),
        ("class E(Exception):\n    __str__ = None\nraise E", "an error without words"),
        ("print('\\ud800')", "UnicodeEncodeError: 'utf-8' codec can't encode"),
    ],
)
def test_a_program_that_is_wrong_fails_with_its_error_and_no_breach(
    program: str, cause: str
) -> None:
    outcome = outcome_of(program)
    assert outcome.cause.startswith(cause)
    assert (outcome.breach, outcome.passed) == (False, 0)


def contained_processes() -> list[psutil.Process]:
    """Processes of any containment, whoever started it."""
    marks = ("confining.py", "Run a program and its tests, within the confined process")
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(mark in part for part in process.info["cmdline"] or () for mark in marks)
    ]


@needs_containment
def test_nothing_is_left_of_programs_whose_starter_was_killed() -> None:
    before = {process.pid for process in contained_processes()}
    code = (
        "from circinus.pipelines.execution.contained.running import run_contained\n"
        "run_contained('import time; time.sleep(60)')"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], env=os.environ)
    mine: list[psutil.Process] = []
    ends = time.monotonic() + 20
    while len(mine) < 3 and time.monotonic() < ends:  # script, first process and program
        time.sleep(0.05)
        mine = [each for each in contained_processes() if each.pid not in before]
    assert len(mine) == 3
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    assert psutil.wait_procs(mine, timeout=5)[1] == []


SYSTEM_PYTHON = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"


@needs_containment
@pytest.mark.skipif(
    os.geteuid() != 0 or not Path(SYSTEM_PYTHON).exists(),
    reason="needs to be root, to become nobody, and an interpreter that nobody can read",
)
def test_a_user_without_privileges_contains_programs_as_well() -> None:
    code = (
        "import os\n"
        "assert os.getuid() == 65534\n"
        "from circinus.pipelines.execution.contained.running import run_contained\n"
        "print([run_contained(each, ['assert 1']).first_error for each in (\n"
        "    'import os; assert os.getuid() == 65534 and os.getppid() == 1',\n"
        "    'import os; os.fork()', 'open(\"/evil\", \"w\")', 'x = bytearray(10 << 30)')])"
    )
    paths = os.pathsep.join([str(ROOT), str(Path(np.__file__).parents[1])])
    done = subprocess.run(
        [SYSTEM_PYTHON, "-c", code],
        env={"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        user=65534,
        group=65534,
        capture_output=True,
        text=True,
        check=False,
    )
    if "Permission denied" in done.stderr or "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"nobody cannot read this project here: {done.stderr[-200:]}")
    assert done.stdout.splitlines() == [
        "['', 'it started a process', 'it reached for /evil, outside of its folder', "
        "'it needed more memory than it may have']"
    ], done.stderr


@needs_containment
def test_nothing_is_left_of_a_program_that_was_ended(tmp_path: Path) -> None:
    before = set(Path("/tmp").iterdir())
    mine = {each.pid for each in psutil.Process().children(recursive=True)}
    outcome_of("open('a', 'w').write('x')\nwhile True: pass")
    assert {each.pid for each in psutil.Process().children(recursive=True)} <= mine
    assert {path for path in set(Path("/tmp").iterdir()) - before if path.name == "a"} == set()
