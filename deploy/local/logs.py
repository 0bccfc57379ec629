"""The logs of workers: a file for each, none of them larger, nor all together, than they may be.

Workers write to their files themselves, whatever their operators print. So a file that has become
too large is cut where it is: its second half goes to a file beside it, and it begins anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from circinus.deploy.runtime.instances import InstanceKey

_TAIL_LINES = 20
_TAIL_BYTES = 2**16
_NAME = 200  # characters


@dataclass(slots=True, eq=False)
class WorkerLogs:
    """A folder of logs. Used within one event loop."""

    folder: Path  # made when missing
    file_bytes: int = 8 * 2**20  # from which a file is cut
    all_bytes: int = 256 * 2**20  # of all files; those of workers that run are left alone
    look_s: float = 1.0  # between two looks at a file
    _open: set[Path] = field(default_factory=set, init=False)

    def open(self, key: InstanceKey, serial: str) -> Path:
        """Return the file for the log of a worker, once there is room for it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room()
        words = (key.query_id, key.tier, str(key.replica), str(os.getpid()), serial)
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(words))
        log = self.folder / f"{name[-_NAME:]}.log"
        self._open.add(log)
        return log

    def close(self, log: Path) -> None:
        """Say that nobody writes to a log any more."""
        self._open.discard(log)

    async def bound(self, log: Path) -> None:
        """Keep a log that is written to from growing, until cancelled."""
        while True:
            await asyncio.sleep(self.look_s)
            with contextlib.suppress(OSError):
                if log.stat().st_size > self.file_bytes:
                    await asyncio.to_thread(self._cut, log)

    def _cut(self, log: Path) -> None:
        with log.open("rb+") as written:
            written.seek(-self.file_bytes // 2, os.SEEK_END)
            latest = written.read(self.file_bytes)
            written.truncate(0)  # who writes appends: it goes on at the new end
        before = log.with_suffix(".log.1")
        before.unlink(missing_ok=True)
        with os.fdopen(os.open(before, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as half:
            half.write(latest)

    def _make_room(self) -> None:
        """Remove the oldest logs of workers that ended, while all together are too large."""
        found = []
        for log in self.folder.glob("*.log*"):
            with contextlib.suppress(OSError):  # another keeper removes some, too
                found.append((log.stat().st_mtime, log.stat().st_size, log))
        total = sum(size for _, size, _ in found)
        for _, size, log in sorted(found):
            if total <= self.all_bytes:
                return
            if log.with_suffix("") not in self._open and log not in self._open:
                log.unlink(missing_ok=True)
                total -= size


def tail(log: Path) -> str:
    """Return the last lines of a log."""
    try:
        with log.open("rb") as written:
            written.seek(max(log.stat().st_size - _TAIL_BYTES, 0))
            lines = written.read().decode(errors="replace").splitlines(keepends=True)
    except OSError as error:
        return f"(no log: {error})"
    return "".join(deque(lines, maxlen=_TAIL_LINES)).rstrip()
