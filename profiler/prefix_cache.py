"""Outputs of operators, reused by every configuration that shares what they depend on.

An output depends on the operator, its knobs, the same of all its ancestors, and the input
(Circinus 4.1, dependency-aware caching; here over DAGs). The one rule: the key holds all of
that, so an entry is never stale.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from pipelines import checks
from pipelines.configuration import Configuration
from pipelines.payload import Payload
from pipelines.pipeline import Pipeline

DEFAULT_LIMIT_BYTES = 256 * 2**20

_FRAME_BYTES = 512  # of an entry besides its output: key, table, numbers


def fingerprints(pipeline: Pipeline, configuration: Configuration) -> tuple[str, ...]:
    """Give what each operator's output depends on besides the input, as a hash.

    Pipeline, name, version and knobs of the operator, and the fingerprints of its parents.
    Operators in topological order; equal in every process.
    """
    prints: list[str] = []
    settings = configuration.as_dict()
    for operator, parents in zip(pipeline.by_name.values(), pipeline.graph.parents, strict=True):
        # Sorted, and by repr: knobs may be declared in another order, and 1 is not True.
        knobs = sorted(settings.get(operator.name, {}).items())
        above = [prints[parent] for parent in parents]
        text = repr((pipeline.name, operator.name, operator.version, knobs, above))
        prints.append(blake2b(text.encode(), digest_size=16).hexdigest())
    return tuple(prints)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What an operator gave for an input.

    Attributes:
        output: What it handed on, read-only.
        seconds: What it took when it was run.
        output_bytes: Its size, as links are charged for it.
    """

    output: Payload
    seconds: float
    output_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStatistics:
    """What a cache did so far.

    Attributes:
        hits: Entries handed out.
        misses: Entries asked for in vain.
        evictions: Entries given up for want of room.
        refused: Entries too large to hold at all.
        entries: Entries held now.
        held_bytes: Memory held now.
        saved_s: Seconds of the entries handed out. What the runs before them took, and was saved
            too, is in the profiles.
    """

    hits: int
    misses: int
    evictions: int
    refused: int
    entries: int
    held_bytes: int
    saved_s: float


class PrefixCache:
    """Holds outputs in memory up to a limit; the least recently used goes first.

    Not safe to share between threads.

    Args:
        limit_bytes: Most memory for outputs, `>= 0`.

    Raises:
        InvalidInput: If the limit is negative.
    """

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        checks.non_negative("cache.limit_bytes", limit_bytes)
        self._limit_bytes = limit_bytes
        self._entries: dict[tuple[str, str], tuple[Entry, int]] = {}  # least recently used first
        self._held_bytes = 0
        self._hits = self._misses = self._evictions = self._refused = 0
        self._saved_s = 0.0

    def get(self, fingerprint: str, content: str) -> Entry | None:
        """Give the entry of an operator's fingerprint and an input's content hash."""
        key = (fingerprint, content)
        held = self._entries.pop(key, None)
        if held is None:
            self._misses += 1
            return None
        self._entries[key] = held
        self._hits += 1
        self._saved_s += held[0].seconds
        return held[0]

    def put(self, fingerprint: str, content: str, entry: Entry) -> None:
        """Hold an entry, in the place of others if need be; one over the limit is not held."""
        key = (fingerprint, content)
        self._drop(key)
        size = _resident_bytes(entry.output) + _FRAME_BYTES
        if size > self._limit_bytes:
            self._refused += 1
            return
        while self._held_bytes + size > self._limit_bytes:
            self._drop(next(iter(self._entries)))
            self._evictions += 1
        self._entries[key] = (entry, size)
        self._held_bytes += size

    @property
    def statistics(self) -> CacheStatistics:
        """What the cache did so far."""
        return CacheStatistics(
            hits=self._hits,
            misses=self._misses,
            evictions=self._evictions,
            refused=self._refused,
            entries=len(self._entries),
            held_bytes=self._held_bytes,
            saved_s=self._saved_s,
        )

    def _drop(self, key: tuple[str, str]) -> None:
        held = self._entries.pop(key, None)
        if held is not None:
            self._held_bytes -= held[1]


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
