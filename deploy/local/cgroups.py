"""CPU quotas of the Linux kernel, version 1 (`cpu` controller) and version 2 (`cpu.max`).

A cgroup is a folder under the one this process is in; its name carries who made it, so
that leftovers of a dead process can be removed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from circinus.pipelines import checks

_PREFIX = "circinus"
# Of the kernel's least, 1,000, operators at a share of 0.05 took twice the processor: every slice
# begins with cold caches. What a slice gains short operators, workers wait off (workers.shares).
_LEAST_QUOTA_US = 20_000
_LEAST_PERIOD_US, _LARGEST_PERIOD_US = 1_000, 1_000_000


def quota_of(share: float) -> tuple[int, int]:
    """Return CPU time and period in microseconds for a share, in (0, 1]."""
    checks.share("share", share)
    period = min(max(ceil(_LEAST_QUOTA_US / share), _LEAST_PERIOD_US), _LARGEST_PERIOD_US)
    return max(round(period * share), _LEAST_QUOTA_US), period


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The cgroup of one instance."""

    folder: Path
    version: int

    def add(self, pid: int) -> None:
        """Move a process here; OSError if the kernel refuses."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def pids(self) -> tuple[int, ...]:
        """Return the processes inside; none when the cgroup is gone."""
        try:
            return tuple(map(int, (self.folder / "cgroup.procs").read_text().split()))
        except FileNotFoundError:
            return ()

    def limit(self, share: float) -> None:
        """Let the processes inside have `share` of one core; OSError if the kernel refuses."""
        quota_us, period_us = quota_of(share)
        if self.version == 2:
            (self.folder / "cpu.max").write_text(f"{quota_us} {period_us}")
            return
        (self.folder / "cpu.cfs_period_us").write_text(str(period_us))
        (self.folder / "cpu.cfs_quota_us").write_text(str(quota_us))

    def remove(self) -> bool:
        """Remove it; return False while a process is still inside."""
        try:
            self.folder.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EBUSY, errno.ENOTEMPTY):
                raise
            return error.errno == errno.ENOENT
        return True


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Where this process may make cgroups: the folder of the one that it is in."""

    parent: Path
    version: int

    def create(self, serial: str) -> Cgroup:
        """Make a cgroup without a limit; OSError if the kernel refuses."""
        owner = os.getpid()
        folder = self.parent / f"{_PREFIX}-{owner}-{start_of(owner)}-{serial}"
        folder.mkdir()
        return Cgroup(folder, self.version)

    def sweep(self) -> tuple[Path, ...]:
        """Remove and return what dead processes left behind."""
        orphans = [folder for folder in self.parent.glob(f"{_PREFIX}-*-*-*") if _is_orphan(folder)]
        return tuple(folder for folder in orphans if Cgroup(folder, self.version).remove())


def available(
    mountinfo: Path = Path("/proc/self/mountinfo"), membership: Path = Path("/proc/self/cgroup")
) -> Cgroups | str:
    """Return where CPU quotas can be set, as was tried out, or the reason in words why not."""
    try:
        places = _places(mountinfo.read_text().splitlines(), membership.read_text().splitlines())
    except OSError as error:
        return f"no cgroups on this system ({error})"
    reasons = []
    for place in places:
        if (reason := _refusal(place)) is None:
            return place
        reasons.append(reason)
    return "; ".join(reasons) or "no cgroup with a cpu controller is mounted"


def start_of(pid: int, read: Callable[[Path], str] = Path.read_text) -> int | None:
    """Return when a process started, in kernel ticks since boot; None when there is none.

    With the pid it names a process for good: a pid alone is used again.
    """
    try:
        stat = read(Path(f"/proc/{pid}/stat"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command in brackets may itself have blanks and brackets; field 22 counts from 1.
    return int(stat.rpartition(")")[2].split()[19])


def _places(mounts: Iterable[str], membership: Iterable[str]) -> list[Cgroups]:
    inside = {}
    for line in membership:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            inside[controller] = path
    places = []
    for line in mounts:
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup" and "cpu" in options.split(",") and "cpu" in inside:
            places.append(Cgroups(_folder(point, root, inside["cpu"]), 1))
        if kind == "cgroup2" and "" in inside:
            places.append(Cgroups(_folder(point, root, inside[""]), 2))
    return sorted(places, key=lambda place: place.version)


def _folder(point: str, root: str, path: str) -> Path:
    # In a container the mount shows only the part of the tree below `root`.
    below = path.removeprefix(root) if root != "/" else path
    return Path(point) / below.lstrip("/")


def _refusal(place: Cgroups) -> str | None:
    try:
        handed = place.parent / "cgroup.subtree_control"
        if place.version == 2 and "cpu" not in handed.read_text().split():
            handed.write_text("+cpu")
        probe = place.create(f"probe{os.urandom(4).hex()}")
        try:
            probe.limit(0.5)
        finally:
            probe.remove()
    except OSError as error:
        return f"{place.parent} (version {place.version}) refuses: {error.strerror}"
    return None


def _is_orphan(folder: Path) -> bool:
    _, pid, start, _ = folder.name.split("-", 3)
    return not pid.isdigit() or str(start_of(int(pid))) != start
