"""State that only its user may read, also what an earlier version wrote for everybody."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from circinus.api.settings import Settings
from circinus.api.store.engine import files_of
from circinus.deploy.workers.settings import PRIVATE


def tighten(settings: Settings) -> None:
    """Take what we wrote from everybody but its user; what belongs to others stays as it is.

    The folders that settings name may hold other things, so they keep their modes.
    """
    for path in _written(settings):
        with contextlib.suppress(OSError):  # gone, or on a file system without modes
            facts = path.lstat()
            if facts.st_uid == os.getuid() and not stat.S_ISLNK(facts.st_mode):
                path.chmod(stat.S_IMODE(facts.st_mode) & ~PRIVATE)


def _written(settings: Settings) -> Iterator[Path]:
    yield from files_of(settings.database_url)
    yield from settings.worker_logs.glob("*.log")
    yield from settings.datasets.glob("d-*")
    if settings.outputs is not None:
        yield from settings.outputs.glob("[0-9a-f][0-9a-f]")
