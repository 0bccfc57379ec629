"""What queries that are planned one after the other leave to each other.

Queries that wait together often share a pipeline and its inputs: what one has run, the next need
not run. It lasts while queries follow each other, as operators may read what changes meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from circinus.deploy.profiling.pool import OperatorSettings
from circinus.profiler.prefix_cache import PrefixCache


@dataclass(slots=True)
class SharedRuns:
    """Outputs of operators, and the memory that they took. One query at a time uses it."""

    outputs: PrefixCache = field(default_factory=PrefixCache, init=False)
    _peaks: dict[str, dict[OperatorSettings, int]] = field(default_factory=dict, init=False)

    def peaks(self, pipeline: str) -> dict[OperatorSettings, int]:
        """Return `WorkerPool.peaks` of the pipeline with such a fingerprint, to add to."""
        return self._peaks.setdefault(pipeline, {})

    def forget(self) -> None:
        """Let nothing be reused that ran before."""
        self.outputs, self._peaks = PrefixCache(), {}
