"""Waiting for a database that is away: what was worked out is kept until it can be stored.

Whoever plans has nothing else to do meanwhile, and what it measured was paid for. That the
database is away is told by `api.store.engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from circinus.api.store.failures import DatabaseFailed
from circinus.pipelines.calling import Leave
from circinus.pipelines.clock import Clock
from circinus.pipelines.configuration import Configuration
from circinus.pipelines.endpoints import Usage
from circinus.profiler.journal import Journal, MeasuredInput, Pair
from circinus.profiler.spending import Ledger, Spent

_UNWRITTEN, _UNWRITTEN_S = 64, 0.05  # measurements, and seconds of their operators, at most
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabasePatience:
    """Tries again, after pauses that double, what the database does not let be done."""

    clock: Clock
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext  # told that it waits

    def __call__(self, action: Callable[[], T]) -> T:
        """Give what an action gives that can be repeated: nobody knows what was stored of it."""
        try:
            return action()
        except DatabaseFailed:
            pass
        with self.waiting():
            pause_s = _FIRST_PAUSE_S
            while True:
                self.clock.sleep(pause_s)
                try:
                    return action()
                except DatabaseFailed:
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class JournalStore(Journal, Protocol):
    """A journal that keeps measurements together."""

    def record_all(self, every: Sequence[tuple[Configuration, MeasuredInput]]) -> None:
        """Keep measurements, at least one, as `record` does."""


@dataclass(slots=True, kw_only=True)
class PatientJournal:
    """A journal that waits for its database, and writes cheap measurements together.

    A write takes two milliseconds, more than many operators run. What cost dollars or, with what
    is not written yet, 50 ms of operators is durable when `record` returns.
    """

    journal: JournalStore
    patience: DatabasePatience
    _unwritten: dict[tuple[Configuration, Pair], MeasuredInput] = field(default_factory=dict)
    _unwritten_s: float = 0.0

    def recall(self, configuration: Configuration) -> Sequence[MeasuredInput]:
        """See `Journal.recall`."""
        self.flush()
        return self.patience(lambda: self.journal.recall(configuration))

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        """See `Journal.record`."""
        self._unwritten[configuration, measured.pair] = measured
        self._unwritten_s += measured.spent_s
        dear = measured.calls_usd > 0 or self._unwritten_s >= _UNWRITTEN_S
        if dear or len(self._unwritten) >= _UNWRITTEN:
            self.flush()

    def flush(self) -> None:
        """Write what is not written yet."""
        if every := [(configuration, one) for (configuration, _), one in self._unwritten.items()]:
            self.patience(lambda: self.journal.record_all(every))
            self._unwritten.clear()
            self._unwritten_s = 0.0


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
