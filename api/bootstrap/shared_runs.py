"""What queries that are planned one after the other leave to each other.

Queries that wait together often share a pipeline and its inputs: what one has run, the next need
not run. It lasts for some minutes and only while queries follow each other, as operators may read
what changes meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from circinus.deploy.profiling.pool import OperatorSettings
from circinus.profiler.prefix_cache import CacheEntry, PrefixCache

_LASTS_S = 600.0  # of the first run


@dataclass(slots=True)
class SharedRuns:
    """An `EntryStore` of outputs, and the memory that operators took. One query at a time uses it.

    Pipelines are told apart by the name that they are offered by: two may call themselves alike.
    """

    reused: int = field(default=0, init=False)
    """Runs of earlier queries that the present one did not have to make."""
    _pipeline: str = field(default="", init=False)
    _outputs: PrefixCache = field(default_factory=PrefixCache, init=False)
    _own: set[tuple[str, str]] = field(default_factory=set, init=False)  # of the present query
    _peaks: dict[str, dict[OperatorSettings, int]] = field(default_factory=dict, init=False)
    _began_s: float = field(default=inf, init=False)

    def begin(self, pipeline: str, now_s: float) -> None:
        """Plan a query of the pipeline that is offered by this name; the clock says so much."""
        if now_s - self._began_s > _LASTS_S:
            self.forget()
        self._began_s = min(self._began_s, now_s)
        self._pipeline, self.reused = pipeline, 0
        self._own.clear()

    def get(self, fingerprint: str, content: str) -> CacheEntry | None:
        """See `EntryStore`."""
        entry = self._outputs.get(f"{self._pipeline}/{fingerprint}", content)
        self.reused += entry is not None and (fingerprint, content) not in self._own
        return entry

    def put(self, fingerprint: str, content: str, entry: CacheEntry) -> None:
        """See `EntryStore`."""
        self._own.add((fingerprint, content))
        self._outputs.put(f"{self._pipeline}/{fingerprint}", content, entry)

    def peaks(self, fingerprint: str) -> dict[OperatorSettings, int]:
        """Return `WorkerPool.peaks` of the pipeline with such a fingerprint, to add to."""
        return self._peaks.setdefault(f"{self._pipeline}/{fingerprint}", {})

    def forget(self) -> None:
        """Let nothing be reused that ran before."""
        self._outputs, self._peaks, self._began_s = PrefixCache(), {}, inf
