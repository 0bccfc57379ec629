"""Outputs of operators, reused by every configuration that shares what they depend on.

An output depends on the operator, its knobs, the same of all its ancestors, and the input
(Circinus 4.1, dependency-aware caching; here over DAGs). The one rule: the key holds all of
that, so an entry is never stale.
"""

from __future__ import annotations

import heapq
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, Protocol

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import NOTHING_USED, Usage
from circinus.pipelines.model.payload import Payload

# deviates: bounded-cache
DEFAULT_LIMIT_BYTES = 256 * 2**20

_Key = tuple[str, str]

_OUT_OF_DATE = 1_000  # lines of the queue that may be out of date before it is made anew
_HEAP = 1.5
"""Resident memory over the objects' own sizes: between entries of unlike sizes a heap has holes.
Measured after most were replaced: 1.16 to 1.25, 1.45 with little memory."""
_FRAME_BYTES = 768  # of an entry besides its output: key, table, numbers


def fingerprints(
    pipeline: Pipeline, configuration: Configuration, draw: int = 0, drawing: Sequence[bool] = ()
) -> tuple[str, ...]:
    """Return what each operator's output depends on besides the input, as a hash.

    Pipeline, name, version and knobs of the operator, and the fingerprints of its parents; where
    it or an ancestor draws, by `drawing`, the draw as well: all draws share what comes before.
    Operators in topological order; equal in every process.
    """
    prints: list[str] = []
    settings = configuration.as_dict()
    for operator, parents in zip(pipeline.by_name.values(), pipeline.graph.parents, strict=True):
        # Sorted, and by repr: knobs may be declared in another order, and 1 is not True.
        knobs = sorted(settings.get(operator.name, {}).items())
        above = [prints[parent] for parent in parents]
        parts: tuple[object, ...] = (
            pipeline.name,
            operator.name,
            operator.version,
            knobs,
            above,
        )
        # The first draw's is the one of an operator that does not draw.
        text = repr((*parts, draw) if draw and drawing[len(prints)] else parts)
        prints.append(blake2b(text.encode(), digest_size=16).hexdigest())
    return tuple(prints)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """The output of an operator for an input."""

    output: Payload  # what it handed on; its arrays are read-only
    seconds: float  # its seconds when it was run
    waited_s: float = 0.0  # of these, in which it did not compute
    output_bytes: int  # its size, as links are charged for it
    used: Usage = NOTHING_USED  # of endpoints, by that run


class EntryStore(Protocol):
    """Keeps entries beyond this process: queries, processes and restarts share it.

    It may forget at any time, but never gives what was not put under the very key. Safe to share
    between threads.
    """

    def get(self, fingerprint: str, content: str) -> CacheEntry | None:
        """Return the entry; None when there is none, or none that is whole."""

    def put(self, fingerprint: str, content: str, entry: CacheEntry) -> None:
        """Store an entry, unless it is not worth it or there is no room."""


@dataclass(slots=True, kw_only=True)
class CacheStatistics:
    """What a cache did so far."""

    hits: int = 0  # entries handed out
    misses: int = 0  # requests for entries that are not held
    stored_hits: int = 0  # those of the hits from the store
    evictions: int = 0  # entries evicted for want of room
    refused: int = 0  # entries too large to hold at all
    entries: int = 0  # entries held now
    held_bytes: int = 0  # memory held now
    saved_s: float = 0.0  # seconds of the entries handed out, not of what ran before them


class _Held(NamedTuple):
    entry: CacheEntry
    size: int
    worth: float
    serial: int


class PrefixCache:
    """Holds outputs in memory up to a limit; what is cheap to make again per byte goes first.

    An entry is worth the seconds per byte that it saves, on top of what the last one evicted was
    worth: so one that is not requested any more goes in the end, however dear (GreedyDual-Size,
    Cao and Irani, "Cost-aware WWW proxy caching algorithms", 1997). Safe to share between
    threads. A store is read for what memory does not hold, and gets everything new.
    """

    def __init__(
        self, limit_bytes: int = DEFAULT_LIMIT_BYTES, *, store: EntryStore | None = None
    ) -> None:
        checks.non_negative("cache.limit_bytes", limit_bytes)
        self._limit_bytes = limit_bytes
        self._store = store
        self._lock = threading.Lock()
        self._entries: dict[_Key, _Held] = {}
        # Cheapest first, then longest unused; out of date when the entry has another serial.
        self._queue: list[tuple[float, int, _Key]] = []
        self._serial = 0
        self._evicted_worth = 0.0  # what the last evicted entry was worth
        self.statistics = CacheStatistics()

    def get(self, fingerprint: str, content: str) -> CacheEntry | None:
        """Return the entry of an operator's fingerprint and an input's content hash."""
        key = (fingerprint, content)
        with self._lock:
            held = self._entries.get(key)
            if held is not None:
                self._rank(key, held.entry, held.size)
                return self._hit(held.entry)
        entry = self._store.get(fingerprint, content) if self._store is not None else None
        with self._lock:
            if entry is None:
                self.statistics.misses += 1
                return None
            self.statistics.stored_hits += 1
            self._hold(key, entry)
            return self._hit(entry)

    def put(self, fingerprint: str, content: str, entry: CacheEntry) -> None:
        """Hold an entry, in the place of others if need be; one over the limit is not held."""
        with self._lock:
            self._hold((fingerprint, content), entry)
        if self._store is not None:
            self._store.put(fingerprint, content, entry)

    def _hit(self, entry: CacheEntry) -> CacheEntry:
        self.statistics.hits += 1
        self.statistics.saved_s += entry.seconds
        return entry

    def _hold(self, key: _Key, entry: CacheEntry) -> None:
        self._drop(key)
        size = int(_HEAP * _resident_bytes(entry.output)) + _FRAME_BYTES
        if size > self._limit_bytes:
            self.statistics.refused += 1
            return
        while self.statistics.held_bytes + size > self._limit_bytes:
            worth, serial, oldest = heapq.heappop(self._queue)
            held = self._entries.get(oldest)
            if held is not None and held.serial == serial:
                self._evicted_worth = worth
                self._drop(oldest)
                self.statistics.evictions += 1
        self.statistics.held_bytes += size
        self._rank(key, entry, size)

    def _rank(self, key: _Key, entry: CacheEntry, size: int) -> None:
        worth = self._evicted_worth + entry.seconds / size
        self._serial += 1
        self._entries[key] = _Held(entry, size, worth, self._serial)
        self.statistics.entries = len(self._entries)
        heapq.heappush(self._queue, (worth, self._serial, key))
        if len(self._queue) > 2 * len(self._entries) + _OUT_OF_DATE:
            self._queue = [(held.worth, held.serial, key) for key, held in self._entries.items()]
            heapq.heapify(self._queue)

    def _drop(self, key: _Key) -> None:
        held = self._entries.pop(key, None)
        if held is not None:
            self.statistics.held_bytes -= held.size
            self.statistics.entries -= 1


def _resident_bytes(payload: Payload) -> int:
    size = sys.getsizeof(payload)
    if isinstance(payload, np.ndarray) and payload.base is not None:
        # A view keeps all of its base alive.
        return size + max(payload.nbytes, getattr(payload.base, "nbytes", 0))
    if isinstance(payload, list):
        return size + sum(_resident_bytes(item) for item in payload)
    if isinstance(payload, dict):
        return size + sum(sys.getsizeof(k) + _resident_bytes(v) for k, v in payload.items())
    return size
