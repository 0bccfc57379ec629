"""Outputs of operators in files, shared by queries, processes and restarts.

A file is written under another name, then renamed: it is whole or not there. It begins with a
hash of its key and of all that follows: one that is torn, changed or in the wrong place is
detected, removed, and its output made again. The one rule: nothing read is believed unchecked.

    16 bytes  blake2b of fingerprint, content, the form of the file and the rest of it
    8 bytes   seconds, as a double
    8 bytes   of these, in which the operator waited, as a double; not in files of the first form
    8 bytes   bytes that links are charged for
    40 bytes  what that run used of endpoints, as doubles, see `Usage`
    rest      the output, see `pipelines.model.payload`
"""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.payload import decode, encode
from circinus.profiler.execution import freeze
from circinus.profiler.prefix_cache import CacheEntry

DEFAULT_LIMIT_BYTES = 2 * 2**30

_USED = f"{len(Usage._fields)}d"
_FIRST, _FORM = "", "2/"
_FACTS = {_FIRST: struct.Struct(f">dQ{_USED}"), _FORM: struct.Struct(f">ddQ{_USED}")}
_DIGEST = 16
_LEAST_S = 0.000_5
_BYTES_PER_S = 100_000_000
_ENTRY_BLOCKS = 4096  # a file takes whole blocks
_MAKE_ROOM_EVERY = 0.05  # part of the limit that may be written between two looks at the folder
_LEFT_AFTER = 0.9  # part of the limit that is left when room was made
_ABANDONED_S = 3600.0


@dataclass(slots=True, eq=False)
class PrefixFiles:
    """A folder of entries, made when it is missing; any number of processes may use it at once.

    The least recently used files go when the folder is over its limit, in bytes on disk. It is
    looked at each time this object has written a twentieth of the limit, so P processes are over
    it by at most P twentieths for a while. What is read no faster than made again is not stored.
    """

    folder: Path
    limit_bytes: int = DEFAULT_LIMIT_BYTES  # `>= 0`
    corrupt: int = field(default=0, init=False)
    """Files that failed their check, and were removed."""
    _written: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        checks.non_negative("store.limit_bytes", self.limit_bytes)

    def get(self, fingerprint: str, content: str) -> CacheEntry | None:
        """Return the entry, see `EntryStore`."""
        path = self._path(fingerprint, content)
        try:
            data = path.read_bytes()
        except OSError:  # not there, or not any more
            return None
        entry = _read(data, fingerprint, content)
        if entry is None:
            self.corrupt += 1
            _remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used
        return entry

    def put(self, fingerprint: str, content: str, entry: CacheEntry) -> None:
        """Store an entry, see `EntryStore`. A full or broken disk stores nothing."""
        body = encode(entry.output)
        called = entry.used.calls > 0  # never make a call twice
        worthwhile = called or entry.seconds >= _LEAST_S + len(body) / _BYTES_PER_S
        if not worthwhile or len(body) + _ENTRY_BLOCKS > self.limit_bytes:
            return
        facts = (entry.seconds, entry.waited_s, entry.output_bytes, *entry.used)
        rest = _FACTS[_FORM].pack(*facts) + body
        path = self._path(fingerprint, content)
        unfinished = path.parent / f"{os.urandom(8).hex()}.unfinished"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            unfinished.write_bytes(_digest(fingerprint, content, _FORM, rest) + rest)
            unfinished.replace(path)
        except OSError:
            _remove(unfinished)
            return
        self._written += len(rest) + _ENTRY_BLOCKS
        if self._written >= _MAKE_ROOM_EVERY * self.limit_bytes:
            self._written = 0.0
            self._make_room()

    def _path(self, fingerprint: str, content: str) -> Path:
        name = blake2b(f"{fingerprint}/{content}".encode(), digest_size=20).hexdigest()
        return self.folder / name[:2] / name[2:]

    def _make_room(self) -> None:
        files: list[tuple[float, int, Path]] = []
        for path in self.folder.glob("*/*"):
            with contextlib.suppress(OSError):  # another process was faster
                facts = path.stat()
                blocks = -(-facts.st_size // _ENTRY_BLOCKS)
                files.append((facts.st_mtime, blocks * _ENTRY_BLOCKS, path))
        files.sort()
        held = sum(size for _, size, _ in files)
        newest = files[-1][0] if files else 0.0
        target = held if held <= self.limit_bytes else _LEFT_AFTER * self.limit_bytes
        for used, size, path in files:
            left_behind = path.suffix == ".unfinished" and used < newest - _ABANDONED_S
            if held > target or left_behind:
                _remove(path)
                held -= size


def _read(data: bytes, fingerprint: str, content: str) -> CacheEntry | None:
    rest = data[_DIGEST:]
    for form, layout in _FACTS.items():
        whole = data[:_DIGEST] == _digest(fingerprint, content, form, rest)
        if whole and len(rest) >= layout.size:
            break
    else:
        return None
    seconds, *waited_s, output_bytes = layout.unpack_from(rest)[: -len(Usage._fields)]
    used = layout.unpack_from(rest)[-len(Usage._fields) :]
    try:
        output = decode(rest[layout.size :])
    except InvalidInput:  # written by another version
        return None
    freeze(output)
    return CacheEntry(
        output=output,
        seconds=seconds,
        waited_s=sum(waited_s),
        output_bytes=output_bytes,
        used=Usage(*used),
    )


def _digest(fingerprint: str, content: str, form: str, rest: bytes) -> bytes:
    key = f"{fingerprint}/{content}/{form}".encode()
    return blake2b(key + rest, digest_size=_DIGEST).digest()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
