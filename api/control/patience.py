"""Waiting for a database that is away: what was worked out is kept until it can be stored.

Whoever plans has nothing else to do meanwhile, and what it measured was paid for. That the
database is away is told by `api.store.engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TypeVar

from circinus.api.store.failures import DatabaseFailed
from circinus.pipelines.backoff import Backoff
from circinus.pipelines.clock import Clock
from circinus.pipelines.execution.calling import Leave
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import Usage
from circinus.profiler.journal import Journal, MeasuredInput
from circinus.profiler.spending import Ledger, Spent

_PAUSES = Backoff(0.1, 2.0)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabasePatience:
    """Tries again, after pauses that double, what the database does not let be done."""

    clock: Clock
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext  # told that it waits

    def __call__(self, action: Callable[[], T]) -> T:
        """Return what an action gives that can be repeated: nobody knows what was stored of it."""
        try:
            return action()
        except DatabaseFailed:
            pass
        with self.waiting():
            failures = 0
            while True:
                failures += 1
                self.clock.sleep(_PAUSES.pause_s(failures))
                with suppress(DatabaseFailed):
                    return action()


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientJournal:
    """A journal that waits for its database."""

    journal: Journal
    patience: DatabasePatience

    def recall(self, configuration: Configuration) -> Sequence[MeasuredInput]:
        """See `Journal.recall`."""
        return self.patience(lambda: self.journal.recall(configuration))

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        """See `Journal.record`."""
        self.patience(lambda: self.journal.record(configuration, measured))


@dataclass(frozen=True, slots=True)
class PatientLedger:
    """A ledger that waits for its database: no call is made until its money is reserved there."""

    ledger: Ledger
    patience: DatabasePatience

    def reserve(self, leave: Leave, limit_usd: float) -> bool:
        """See `Ledger.reserve`."""
        return self.patience(lambda: self.ledger.reserve(leave, limit_usd))

    def settle(self, leave: Leave, used: Mapping[str, Usage]) -> None:
        """See `Ledger.settle`."""
        self.patience(lambda: self.ledger.settle(leave, used))

    def spent(self) -> Mapping[str, Spent]:
        """See `Ledger.spent`."""
        return self.patience(self.ledger.spent)
