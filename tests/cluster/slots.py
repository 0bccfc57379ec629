"""Where a cluster lives: one of sixteen places, so that several can run beside each other.

A place is a folder, a lock, names and address ranges that no other place has. The lock is the
process's own, so the place of a killed cluster is free again, and is swept before it is used.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_PLACES = 16


@dataclass(slots=True, kw_only=True)
class Slot:
    """A place that this process holds.

    Attributes:
        number: In [0, 16).
        folder: Of this cluster alone; may hold what a killed one left.
    """

    number: int
    folder: Path
    _lock: IO[str]

    @property
    def name(self) -> str:
        """What its bridge, network namespaces and cgroups are called."""
        return f"circ{self.number}"

    @property
    def network(self) -> str:
        """The first two bytes of its addresses."""
        return f"10.{200 + self.number}"

    def empty(self) -> None:
        """Make the folder empty."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def release(self) -> None:
        """Give the place back; the folder goes."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()


def take() -> Slot:
    """Return a free place.

    Raises:
        RuntimeError: If all are taken.
    """
    root = Path(tempfile.gettempdir()) / f"circinus-cluster-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    for number in range(_PLACES):
        lock = (root / f"{number}.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        return Slot(number=number, folder=root / str(number), _lock=lock)
    raise RuntimeError(f"all {_PLACES} places for clusters are taken: stop one.")
