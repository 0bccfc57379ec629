"""Processes that end with their parent, whatever they do at that moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from circinus.deploy.workers.process import worker_environment
from circinus.deploy.workers.watched import watched

HANGS = """
import os, pathlib, time
pathlib.Path(os.environ["TOLD"]).write_text(str(os.getpid()))
time.sleep(3600)
"""
"""A module that hangs while it is imported, having said which process it is in."""

STARTERS = {
    "a worker": """
import subprocess, time
from circinus.deploy.workers.watched import watched
process = subprocess.Popen(watched("hangs"), stdin=subprocess.PIPE)
""",
    "a planning worker": """
import os
from circinus.deploy.profiling.isolated import start_program
child = start_program("hangs", {}, os.environ)
""",
    "a worker of a pool or a check": """
from circinus.deploy.profiling.warm import STARTER
child = STARTER.start("hangs", {})
""",
}
PATIENCE_S = 60.0


def _environment(folder: Path) -> dict[str, str]:
    (folder / "hangs.py").write_text(HANGS)
    found = worker_environment()
    path = os.pathsep.join([str(folder), found["PYTHONPATH"]])
    return {**found, "PYTHONPATH": path, "TOLD": str(folder / "pid")}


def _waited(file: Path) -> psutil.Process:
    deadline = time.monotonic() + PATIENCE_S
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return psutil.Process(int(file.read_text()))


@pytest.mark.parametrize("starter", STARTERS.values(), ids=STARTERS)
def test_who_hangs_in_an_import_ends_with_who_started_it(tmp_path: Path, starter: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", f"{starter}\nimport time; time.sleep(3600)"],
        env=_environment(tmp_path),
        start_new_session=True,
    )
    child = _waited(tmp_path / "pid")
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    child.wait(timeout=PATIENCE_S)


def test_who_is_stopped_ends_with_who_started_it(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", f"{STARTERS['a worker']}\nimport time; time.sleep(3600)"],
        env=_environment(tmp_path),
    )
    child = _waited(tmp_path / "pid")
    child.suspend()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    child.wait(timeout=PATIENCE_S)


def test_whose_parent_is_gone_before_it_looks_does_nothing(tmp_path: Path) -> None:
    command, told = watched("hangs"), tmp_path / "pid"
    command[2] = "1"  # nobody's parent here
    ended = subprocess.run(
        command,
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        env=_environment(tmp_path),
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, told.exists()) == (1, False)
    assert ended.stderr.strip() == "the process that started this worker is gone"


def test_nothing_of_the_project_is_imported_before_the_watch(tmp_path: Path) -> None:
    (tmp_path / "circinus.py").write_text("raise SystemExit('imported too early')")
    told = tmp_path / "pid"
    environment = {**_environment(tmp_path), "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(watched("hangs"), stdin=subprocess.PIPE, env=environment) as child:
        assert _waited(told).pid == child.pid
        child.kill()
