"""Measurements as JSON, and a journal of them in a file: interrupted planning resumes.

For planning in a user's program, where measurements belong to no query in a database. The one
rule: planning resumes only from a file of the same query, data and pipeline, and a torn line does
not count as measured.

    first line   {"journal": 1, "parts": {...}, "history": [...]}, see `Checkpoint`
    other lines  a `MeasurementDocument` each
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import BinaryIO, Literal

import numpy as np
from pydantic import Field, ValidationError

from circinus.api.schemas.base import Input
from circinus.api.store.journal import (
    Checkpoint,
    nan_for_null,
    null_for_nan,
    plain_figures,
    restored,
)
from circinus.pipelines.execution.calling import Permit
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.profile import FloatArray
from circinus.profiler.journal import MeasuredInput, MemoryJournal
from circinus.profiler.spending import NOTHING_SPENT, Spent, all_used, reserved_usd

_MOST_FILES = 50  # of plans that were broken off; the oldest go first
_OWN_FILE, _OWN_FOLDER = 0o600, 0o700

Measurement = tuple[Configuration, MeasuredInput]


class MeasurementDocument(Input):
    """One configuration on one input; null is a value that a failed measurement has not."""

    configuration: dict[str, dict[str, KnobValue]]
    """Operator -> knob -> value, in the order of the pipeline."""
    input: int
    """Index of the input in the data."""
    draw: int = 0
    """Which draw of the input."""
    score: float | None
    """In [0, 1]."""
    operator_s: list[float | None]
    """Seconds of each operator, in topological order."""
    waited_s: list[float] | None = None
    """Of these, in which it did not compute; none: not known."""
    output_bytes: list[float | None]
    """What each operator hands on."""
    input_bytes: float | None
    """Size of the input."""
    spent_s: float
    """Its operator seconds."""
    saved_s: float
    """Operator seconds that the cache saved."""
    runs: int
    """Of operators."""
    saved_runs: int
    """Of operators, that the cache saved."""
    calls_s: float = 0.0
    """Of the seconds spent, those that were waited for endpoints."""
    calls_usd: float = 0.0
    """US dollars that calling endpoints cost."""
    used: list[list[float]] | None = None
    """What each operator used of endpoints, as `Usage` has it; none: nothing was called."""
    output: str | None = None
    """What a judge scored, encoded as a payload, in base64; none: a metric scored it."""
    varied: list[str] = Field(default_factory=list)
    """Operators that answered it differently when they ran once more."""
    failed_operator: str | None = None
    """The operator that failed; none: none did."""
    failure: str = ""
    """Why."""

    @classmethod
    def of(cls, configuration: Configuration, measured: MeasuredInput) -> MeasurementDocument:
        """Return the document of a measurement."""
        figures = plain_figures(measured)
        return cls(
            **figures | {"failure": figures["failure"] or ""},
            configuration=configuration.as_dict(),
            operator_s=[null_for_nan(seconds) for seconds in measured.operator_s.tolist()],
            waited_s=None if measured.waited_s is None else measured.waited_s.tolist(),
            output_bytes=[null_for_nan(size) for size in measured.output_bytes.tolist()],
            used=None if measured.used is None else measured.used.tolist(),
            output=None if measured.output is None else b64encode(measured.output).decode(),
            varied=list(measured.varied),
        )

    @property
    def measurement(self) -> Measurement:
        """What was measured; InvalidInput if it cannot be."""
        measured = restored(
            self,
            operator_s=_array(self.operator_s),
            waited_s=None if self.waited_s is None else _array(self.waited_s),
            output_bytes=_array(self.output_bytes),
            used=None if self.used is None else np.array(self.used, dtype=np.float64),
            output=None if self.output is None else b64decode(self.output),
            varied=tuple(self.varied),
        )
        each = ((o, knobs.items()) for o, knobs in self.configuration.items())
        values = tuple((o, knob, value) for o, knobs in each for knob, value in knobs)
        return Configuration(values), measured


class _Head(Input):
    journal: Literal[1]
    parts: dict[str, str]
    history: list[str]


@dataclass(eq=False)
class _OwnFile:
    """A file that only its user may read, of planning that may be broken off."""

    path: Path  # of the file; it is made with the first line
    trouble: str = field(default="", init=False)  # why nothing is stored any more; empty: it is

    def make_room(self) -> None:
        """Make the folder of the file if there is none; remove the oldest files of its kind."""
        folder = self.path.parent
        folder.mkdir(mode=_OWN_FOLDER, parents=True, exist_ok=True)
        every = folder.glob(f"*{self.path.suffix}")
        by_age = sorted(every, key=lambda path: path.stat().st_mtime)
        for path in by_age[: max(len(by_age) - _MOST_FILES + 1, 0)]:
            path.unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove the file: planning ended, so nothing resumes from it."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


@dataclass(eq=False)
class FileJournal(_OwnFile):
    """A `profiler.journal.Journal` in a file that only its user may read.

    It is for one process at a time; a second one on the same file measures some inputs twice. A
    disk that is full or cannot be written loses the measurements, not the search.
    """

    checkpoint: Checkpoint  # what the measurements are of
    taken_over: int = 0  # measurements that were there at the start
    _begun: bool = field(default=False, init=False)  # whether the file was written to
    _measurements: MemoryJournal = field(default_factory=MemoryJournal, init=False)
    _known: dict[Configuration, None] = field(default_factory=dict, init=False)

    @classmethod
    def opened(cls, folder: Path, now: Checkpoint) -> FileJournal:
        """Return the journal of what `now` is of: one to go on from if there is any."""
        parts = json.dumps(dict(now.parts), sort_keys=True)
        path = folder / f"{blake2b(parts.encode(), digest_size=12).hexdigest()}.jsonl"
        lines = _lines(path)
        head = _read_head(next(lines, b""))
        if head is None or head.parts != dict(now.parts):
            return cls(path, now)
        journal = cls(path, Checkpoint(parts=now.parts, history=tuple(head.history)))
        for configuration, measured in _measured(lines):
            journal._keep(configuration, measured)
            journal.taken_over += 1
        return journal

    def recall(self, configuration: Configuration) -> Sequence[MeasuredInput]:
        """Return the measurements of a configuration."""
        return self._measurements.recall(configuration)

    def everything(self) -> Sequence[Measurement]:
        """Return every measurement, in the order in which configurations were met first."""
        return tuple((c, measured) for c in self._known for measured in self.recall(c))

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        """Store one measurement; where the file fails, set `trouble`."""
        self._keep(configuration, measured)
        if self.trouble:
            return
        try:
            if not self._begun:
                self._begin()
                self._begun = True
            self._append(MeasurementDocument.of(configuration, measured).model_dump_json())
        except OSError as error:
            self.trouble = error.strerror or type(error).__name__

    def _keep(self, configuration: Configuration, measured: MeasuredInput) -> None:
        self._measurements.record(configuration, measured)
        self._known[configuration] = None

    def _begin(self) -> None:
        if self.taken_over:
            self._append("")  # ends a line that was torn
            return
        self.make_room()
        self.path.unlink(missing_ok=True)  # of something else
        now = self.checkpoint
        head = _Head(journal=1, parts=dict(now.parts), history=list(now.history))
        self._append(head.model_dump_json())

    def _append(self, line: str) -> None:
        """Write a line at once: it is there whole, or torn at the end of the file."""
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        descriptor = os.open(self.path, how, _OWN_FILE)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)


def _lines(path: Path) -> Iterator[bytes]:
    with contextlib.suppress(OSError), path.open("rb") as file:
        yield from file


def _read_head(line: bytes) -> _Head | None:
    try:
        return _Head.model_validate_json(line)
    except ValidationError:
        return None


def _measured(lines: Iterator[bytes]) -> Iterator[Measurement]:
    for line in lines:
        with contextlib.suppress(ValueError):  # InvalidInput and ValidationError are such
            yield MeasurementDocument.model_validate_json(line).measurement


def _array(values: Sequence[float | None]) -> FloatArray:
    return np.array([nan_for_null(value) for value in values], dtype=np.float64)


SUFFIX = ".paid"
"""Of such files; one of a journal has its name beside."""


@dataclass(eq=False)
class FileLedger(_OwnFile):
    """A `profiler.spending.Ledger` in a file that only its user may read.

    A disk that is full or cannot be written loses the records, not the search. The cap then holds
    for this process alone, and `trouble` has the reason.
    """

    _read: int = field(default=0, init=False)  # bytes of the file that are known
    _known: dict[str, _Entry] = field(default_factory=dict, init=False)  # by ticket
    _usd: float = field(default=0.0, init=False)  # that count as paid
    _lock: RLock = field(default_factory=RLock, init=False, repr=False)

    def reserve(self, permit: Permit, limit_usd: float) -> bool:
        """Reserve the largest cost of a call; return whether the limit allows it."""
        each = {endpoint: reserved_usd(most) for endpoint, most in permit.most.items()}
        with self._held(writes=True) as file:
            if permit.ticket in self._known:
                return True
            if self._usd + sum(each.values()) > limit_usd:
                return False
            line = {"ticket": permit.ticket, "operator": permit.operator, "reserved": each}
            self._add(file, line)
        return True

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """Replace what a call reserved by what it used."""
        document = {endpoint: list(one.finite) for endpoint, one in used.items()}
        with self._held(writes=True) as file:
            line = {"ticket": permit.ticket, "operator": permit.operator, "used": document}
            self._add(file, line)

    def spent(self) -> Mapping[str, Spent]:
        """Return what calls cost, by operator."""
        spent_by_operator: dict[str, Spent] = {}
        with self._held():
            for entry in self._known.values():
                spent_by_operator[entry.operator] = spent_by_operator.get(
                    entry.operator, NOTHING_SPENT
                ).plus(entry.spent)
        return spent_by_operator

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
            self.make_room()
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
            os.fdatasync(file.fileno())  # the call follows this
            self._read = size + len(data)
        except OSError as error:
            self.trouble = error.strerror or type(error).__name__

    def _take(self, line: bytes) -> None:
        try:
            document = json.loads(line)
            entry = self._known.get(document["ticket"]) or _Entry(document["operator"])
            changed = entry.with_line(document)
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        self._usd += changed.spent.usd - entry.spent.usd
        self._known[document["ticket"]] = changed


@dataclass(frozen=True, slots=True)
class _Entry:
    operator: str
    spent: Spent = NOTHING_SPENT
    settled: bool = False

    def with_line(self, document: Mapping[str, object]) -> _Entry:
        """Return the entry once a line of it is known."""
        if self.settled:
            return self
        used, reserved = document.get("used"), document.get("reserved")
        if isinstance(used, dict):
            together = all_used(Usage(*map(float, one)) for one in used.values())
            return _Entry(self.operator, Spent(together), settled=True)
        if not isinstance(reserved, dict):
            raise TypeError("must be reserved or used")
        return _Entry(self.operator, Spent(open_usd=sum(map(float, reserved.values()))))
