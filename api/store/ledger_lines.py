"""What calling endpoints cost, as lines of a file: planning that was broken off goes on from it.

For planning in a program of one's own, see `measurement_lines`. The one rule: a line is there
before the call that it is of, and a line that is torn was of none.

    {"ticket": ..., "operator": ..., "reserved": {endpoint: USD}}
    {"ticket": ..., "operator": ..., "used": {endpoint: [a Usage]}}

Whoever reserves holds the file's lock and has read all lines, so several processes may share it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import BinaryIO

from circinus.pipelines.execution.calling import Leave
from circinus.pipelines.model.endpoints import Usage
from circinus.profiler.spending import NOTHING_SPENT, Spent, all_used, reserved_usd

SUFFIX = ".paid"
"""Of such files; one of a journal has its name beside."""
_MOST_FILES = 50  # of plans that were broken off; the oldest go first
_OWN_FILE, _OWN_FOLDER = 0o600, 0o700


@dataclass(eq=False)
class FileLedger:
    """A `profiler.spending.Ledger` in a file that only its user may read.

    A disk that is full or cannot be written costs what would have been kept, not the search: the
    cap then holds for this process alone, and `trouble` says why.
    """

    path: Path  # of the file; it is made with the first reservation
    trouble: str = field(default="", init=False)  # why nothing is kept any more; empty: it is
    _read: int = field(default=0, init=False)  # bytes of the file that are known
    _known: dict[str, _Entry] = field(default_factory=dict, init=False)  # by ticket
    _usd: float = field(default=0.0, init=False)  # that count as paid
    _lock: RLock = field(default_factory=RLock, init=False, repr=False)

    def reserve(self, leave: Leave, limit_usd: float) -> bool:
        """See `Ledger`."""
        each = {endpoint: reserved_usd(most) for endpoint, most in leave.most.items()}
        with self._held(writes=True) as file:
            if leave.ticket in self._known:
                return True
            if self._usd + sum(each.values()) > limit_usd:
                return False
            line = {"ticket": leave.ticket, "operator": leave.operator, "reserved": each}
            self._add(file, line)
        return True

    def settle(self, leave: Leave, used: Mapping[str, Usage]) -> None:
        """See `Ledger`."""
        told = {endpoint: list(one.told) for endpoint, one in used.items()}
        with self._held(writes=True) as file:
            line = {"ticket": leave.ticket, "operator": leave.operator, "used": told}
            self._add(file, line)

    def spent(self) -> Mapping[str, Spent]:
        """See `Ledger`."""
        found: dict[str, Spent] = {}
        with self._held():
            for entry in self._known.values():
                found[entry.operator] = found.get(entry.operator, NOTHING_SPENT).plus(entry.spent)
        return found

    def forget(self) -> None:
        """Remove the file: planning ended, so nobody goes on from it any more."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _held(self, *, writes: bool = False) -> Iterator[BinaryIO | None]:
        """Hold the file with all its lines known; None: there is none, or it fails."""
        with self._lock, contextlib.ExitStack() as held:
            try:
                file = self._opened(writes=writes)
                if file is not None:
                    held.enter_context(file)
                    fcntl.flock(file, fcntl.LOCK_EX)
                    self._learn(file)
            except OSError as error:
                self.trouble = error.strerror or type(error).__name__
                file = None
            yield file

    def _opened(self, *, writes: bool) -> BinaryIO | None:
        if not self.path.exists():
            if not writes:
                return None
            self.path.parent.mkdir(mode=_OWN_FOLDER, parents=True, exist_ok=True)
            every = self.path.parent.glob(f"*{SUFFIX}")
            by_age = sorted(every, key=lambda path: path.stat().st_mtime)
            for path in by_age[: max(len(by_age) - _MOST_FILES + 1, 0)]:
                path.unlink(missing_ok=True)
        how = os.O_RDWR | os.O_APPEND | os.O_CREAT
        return os.fdopen(os.open(self.path, how, _OWN_FILE), "r+b", buffering=0)

    def _learn(self, file: BinaryIO) -> None:
        file.seek(self._read)
        for line in file.read().splitlines(keepends=True):
            self._take(line)
            if line.endswith(b"\n"):  # else it is torn, and ended by the next one
                self._read += len(line)

    def _add(self, file: BinaryIO | None, line: Mapping[str, object]) -> None:
        data = json.dumps(line).encode() + b"\n"
        self._take(data)
        if file is None:
            return
        try:
            size = file.seek(0, os.SEEK_END)
            data = (b"\n" if size > self._read else b"") + data
            file.write(data)
            os.fdatasync(file.fileno())  # the call comes after this
            self._read = size + len(data)
        except OSError as error:
            self.trouble = error.strerror or type(error).__name__

    def _take(self, line: bytes) -> None:
        try:
            told = json.loads(line)
            entry = self._known.get(told["ticket"]) or _Entry(told["operator"])
            changed = entry.with_line(told)
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        self._usd += changed.spent.usd - entry.spent.usd
        self._known[told["ticket"]] = changed


@dataclass(frozen=True, slots=True)
class _Entry:
    operator: str
    spent: Spent = NOTHING_SPENT
    settled: bool = False

    def with_line(self, told: Mapping[str, object]) -> _Entry:
        """Return the entry once a line of it is known."""
        if self.settled:
            return self
        used, reserved = told.get("used"), told.get("reserved")
        if isinstance(used, dict):
            together = all_used(Usage(*map(float, one)) for one in used.values())
            return _Entry(self.operator, Spent(together), settled=True)
        if not isinstance(reserved, dict):
            raise TypeError("must be reserved or used")
        return _Entry(self.operator, Spent(open_usd=sum(map(float, reserved.values()))))
