"""Who waits for the database tries again, and ends with what was to be stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from circinus.api.control.planning_worker import DatabasePatience, PatientJournal
from circinus.api.store.failures import DatabaseAway, DatabaseFull
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import Configuration
from circinus.profiler.journal import MeasuredInput, MemoryJournal

CONFIGURATION = Configuration((("add", "by", 1),))
MEASURED = MeasuredInput(
    input=0,
    score=1.0,
    operator_s=np.array([0.1]),
    output_bytes=np.array([1.0]),
    input_bytes=1.0,
    spent_s=0.1,
    runs=1,
)


class Flaky(MemoryJournal):
    """Fails so many times before it does anything."""

    failures = 0

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        if self.failures:
            self.failures -= 1
            kind = DatabaseFull if self.failures % 2 else DatabaseAway
            raise kind("the database is not what it should be")
        super().record(configuration, measured)


def test_other_errors_are_not_waited_for() -> None:
    def wrong() -> None:
        raise InvalidInput.of("x", "must be right", 1)

    clock = ManualClock()
    with pytest.raises(InvalidInput):
        DatabasePatience(clock=clock)(wrong)
    assert clock.now() == 0.0


def test_a_measurement_is_recorded_once_the_database_is_back() -> None:
    clock, journal, waits = ManualClock(), Flaky(), []

    @contextmanager
    def waiting() -> Iterator[None]:
        waits.append(clock.now())
        yield
        waits.append(clock.now())

    journal.failures = 7
    patient = PatientJournal(
        journal=journal, patience=DatabasePatience(clock=clock, waiting=waiting)
    )
    patient.record(CONFIGURATION, MEASURED)
    assert patient.recall(CONFIGURATION) == (MEASURED,)
    # Pauses of 0.1, 0.2, 0.4, 0.8, 1.6, 2 and 2 s.
    assert waits == [0.0, pytest.approx(7.1)]
