"""A cgroup for each real node, in every controller: kubelets on one machine must not share."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_UNIFIED = _ROOT / "cgroup.controllers"
_CPUSET = ("cpuset.cpus", "cpuset.mems")
_SHARES, _MOST_SHARES = "cpu.shares", "65536"
_TRIES = 600  # half a minute: a busy machine is slow to bury its dead


def make(name: str) -> None:
    """Make the cgroup of a node."""
    if _UNIFIED.exists():
        have = _UNIFIED.read_text().split()
        wanted = [f"+{c}" for c in ("cpu", "cpuset", "memory", "pids") if c in have]
        (_ROOT / "cgroup.subtree_control").write_text(" ".join(wanted))
    for controller in _controllers():
        folder = controller / name
        folder.mkdir(exist_ok=True)
        for file in _CPUSET:  # of version 1: a new one is empty, and nothing may enter it
            if not _UNIFIED.exists() and (folder / file).exists():
                (folder / file).write_text((controller / file).read_text())
        if (
            folder / _SHARES
        ).exists():  # the pods of a node share it; others' programs have one each
            (folder / _SHARES).write_text(_MOST_SHARES)


def remove(prefix: str) -> None:
    """Kill everything in the cgroups whose name begins so, and remove them."""
    for _ in range(_TRIES):
        folders = [f for c in _controllers() for top in c.glob(f"{prefix}-*") for f in _below(top)]
        if not folders:
            return
        for folder in folders:
            _kill(folder)
            with contextlib.suppress(OSError):  # not empty yet
                folder.rmdir()
        time.sleep(0.05)
    raise RuntimeError(f"cgroups are still in use: {', '.join(map(str, folders))}")


def _controllers() -> list[Path]:
    if _UNIFIED.exists():
        return [_ROOT]
    return [c for c in _ROOT.iterdir() if c.is_dir() and not c.is_symlink()]


def _below(top: Path) -> Iterator[Path]:
    """Yield a cgroup and those below it, the deepest first."""
    for folder, _, _ in os.walk(top, topdown=False):
        yield Path(folder)


def _kill(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
