"""Whether a service can write: of what it is asked for, only requests to deployments need not."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from threading import Lock

from circinus.api.store.failures import DatabaseFailed
from circinus.api.store.store import Store
from circinus.pipelines.clock import Clock

_HOLDS_S = 1.0


@dataclass(slots=True, eq=False)
class Readiness:
    """Tries to write when it is asked; an answer holds for a second. For any thread."""

    store: Store
    clock: Clock
    _tried_at: float = field(default=-inf, init=False)
    _failure: DatabaseFailed | None = field(default=None, init=False)
    _one_at_a_time: Lock = field(default_factory=Lock, init=False)

    def require(self) -> None:
        """Raise DatabaseFailed unless something could be stored: DatabaseOwned, say."""
        with self._one_at_a_time:
            if self.clock.now() - self._tried_at > _HOLDS_S:
                self._failure = self._tried()
                self._tried_at = self.clock.now()
            failure = self._failure
        if failure is not None:
            raise failure

    def _tried(self) -> DatabaseFailed | None:
        try:
            self.store.try_writing()
        except DatabaseFailed as error:
            return error.with_traceback(None)  # raised again and again
        return None
