"""Workers that die are replaced, and their queries freed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from circinus.api.control.planning_supervisor import COMES_UP_S, PlanningSupervisor, _Seat
from circinus.api.phases import QueryPhase
from circinus.api.store.engine import connect
from circinus.api.store.failures import DatabaseAway, DatabaseOwned
from circinus.api.store.records import NewQuery
from circinus.api.store.store import Store
from circinus.pipelines.clock import ManualClock
from tests import postgres
from tests.api.fakes import parts_of, sql_store


@dataclass
class FakeProcess:
    exitcode: int | None = None
    sent: list[str] = field(default_factory=lambda: [""])
    alive: bool = True  # beats on
    released: bool = False

    def beats(self) -> list[str]:
        sent, self.sent = self.sent, [""] if self.alive else []
        return sent

    def end(self) -> None:
        self.exitcode = -15

    def kill(self) -> None:
        self.exitcode = -9

    def wait(self, timeout_s: float | None) -> int | None:
        return self.exitcode

    def release(self) -> None:
        self.released = True


@dataclass
class Nursery:
    started: list[tuple[str, FakeProcess]] = field(default_factory=list)

    def __call__(self, worker: str) -> FakeProcess:
        process = FakeProcess()
        self.started.append((worker, process))
        return process


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = sql_store(tmp_path)
    made.submit(NewQuery(id="q-1", spec={}, fingerprint="", idempotency_key=None, at=0.0))
    yield made
    made.close()


def supervisor(
    store: Store, clock: ManualClock, nursery: Nursery, planning_workers: int = 1
) -> PlanningSupervisor:
    parts = parts_of(store, Path(), clock, {"planning_workers": planning_workers})
    made = PlanningSupervisor(parts=parts, spawn=nursery)
    made._seats = [_Seat() for _ in range(planning_workers)]
    return made


def test_a_query_whose_workers_die_three_times_fails_with_the_cause(store: Store) -> None:
    clock, nursery = ManualClock(), Nursery()
    watched = supervisor(store, clock, nursery)
    for crash in range(1, 4):
        watched.tick()
        worker, process = nursery.started[-1]
        assert len(nursery.started) == crash
        store.queue.claim(worker, at=clock.timestamp())
        process.exitcode = -9
        watched.tick()
        clock.sleep(1.0)
    record = store.query("q-1")
    assert record.phase is QueryPhase.FAILED
    assert record.message == "the planning worker ended with SIGKILL, 3 times"


def test_a_worker_that_cannot_start_is_tried_ever_more_seldom(store: Store) -> None:
    clock, nursery = ManualClock(), Nursery()
    watched = supervisor(store, clock, nursery)
    for _ in range(1000):  # 100 s
        watched.tick()
        nursery.started[-1][1].exitcode = 1
        clock.sleep(0.1)
    # Pauses 0.4, 0.8, 1.6, 3.2, 6.4, then 10 s: 5 in 12.4 s, at most 9 in the rest.
    assert 8 <= len(nursery.started) <= 15


def _ticked(watched: PlanningSupervisor, clock: ManualClock, seconds: float) -> None:
    for _ in range(round(seconds * 10)):
        clock.sleep(0.1)
        watched.tick()


def test_a_worker_that_stands_still_over_its_query_three_times_fails_it(store: Store) -> None:
    clock, nursery = ManualClock(), Nursery()
    watched = supervisor(store, clock, nursery)
    for crash in range(1, 4):
        _ticked(watched, clock, 1.0)
        worker, process = nursery.started[-1]
        assert len(nursery.started) == crash
        store.queue.claim(worker, at=clock.timestamp())
        process.alive = False
        _ticked(watched, clock, 30.0)
        assert process.exitcode is None  # silent for just the lease
        _ticked(watched, clock, 0.2)
        assert process.released
    record = store.query("q-1")
    assert record.phase is QueryPhase.FAILED
    assert record.message == "the planning worker stood still for 30 s, 3 times"


def test_a_worker_that_stands_still_without_a_query_is_replaced(store: Store) -> None:
    clock, nursery = ManualClock(), Nursery()
    watched = supervisor(store, clock, nursery)
    _ticked(watched, clock, 1.0)
    nursery.started[0][1].alive = False
    _ticked(watched, clock, 31.0)
    assert [process.exitcode for _, process in nursery.started] == [-9, None]


def test_a_worker_that_never_comes_up_is_replaced_after_longer(store: Store) -> None:
    clock, nursery = ManualClock(), Nursery()
    watched = supervisor(store, clock, nursery)
    watched.tick()
    process = nursery.started[0][1]
    process.alive, process.sent = False, []
    _ticked(watched, clock, COMES_UP_S - 1.0)
    assert process.exitcode is None
    _ticked(watched, clock, 2.0)
    assert process.exitcode == -9


def test_who_was_not_looked_after_is_not_accused_of_silence(store: Store) -> None:
    clock, nursery = ManualClock(), Nursery()
    watched = supervisor(store, clock, nursery)
    _ticked(watched, clock, 1.0)
    process = nursery.started[0][1]
    process.alive, process.sent = False, []
    clock.sleep(3600.0)  # the whole computer stood still, say
    watched.tick()
    assert process.exitcode is None


def test_a_worker_that_complains_of_its_query_is_replaced_with_these_words(store: Store) -> None:
    clock, nursery = ManualClock(), Nursery()
    watched = supervisor(store, clock, nursery)
    watched.tick()
    worker, process = nursery.started[0]
    store.queue.claim(worker, at=clock.timestamp())
    process.sent = ["", "planning went on", ""]
    watched.tick()
    record = store.query("q-1")
    assert (record.phase, record.message) == (QueryPhase.QUEUED, "planning went on")
    assert record.crashes == 1


def test_a_worker_that_beats_keeps_its_query_though_the_store_did_not_hear(store: Store) -> None:
    clock, nursery = ManualClock(), Nursery()
    watched = supervisor(store, clock, nursery)
    watched.tick()
    store.queue.claim(nursery.started[0][0], at=clock.timestamp())
    _ticked(watched, clock, 40.0)  # as when the database was away
    assert store.query("q-1").phase is QueryPhase.PLANNING


def test_the_claims_of_an_earlier_service_are_freed_once_nobody_beats_for_them(
    store: Store,
) -> None:
    clock, nursery = ManualClock(100.0), Nursery()
    store.queue.claim("of a service that was killed", at=99.9)
    watched = supervisor(store, clock, nursery)
    _ticked(watched, clock, 1.9)
    assert store.query("q-1").phase is QueryPhase.PLANNING
    _ticked(watched, clock, 0.3)
    assert (store.query("q-1").phase, store.query("q-1").crashes) == (QueryPhase.QUEUED, 0)


def test_a_worker_of_an_earlier_service_that_lives_on_keeps_its_query_while_it_beats(
    store: Store,
) -> None:
    clock, nursery = ManualClock(100.0), Nursery()
    store.queue.claim("elsewhere", at=99.9)
    watched = supervisor(store, clock, nursery)
    _ticked(watched, clock, 1.0)
    store.queue.beat("q-1", "elsewhere", at=clock.timestamp())
    _ticked(watched, clock, 29.9)
    assert store.query("q-1").phase is QueryPhase.PLANNING
    _ticked(watched, clock, 0.3)  # silent for the lease
    assert store.query("q-1").phase is QueryPhase.QUEUED


def test_workers_outlive_a_database_that_is_away_and_who_died_is_told_of_later(
    tmp_path: Path,
) -> None:
    with postgres.own() as server:
        store = Store(connect(server.fresh("supervised")))
        store.submit(NewQuery(id="q-1", spec={}, fingerprint="", idempotency_key=None, at=0.0))
        clock, nursery = ManualClock(), Nursery()
        watched = supervisor(store, clock, nursery, planning_workers=2)
        watched.tick()
        (first, dies), (_, lives) = nursery.started
        store.queue.claim(first, at=0.0)
        server.stop()
        dies.exitcode = -9
        for _ in range(100):
            clock.sleep(1.0)
            with pytest.raises(DatabaseAway):
                watched.tick()
        assert lives.exitcode is None
        server.start()
        watched.tick()
        assert (store.query("q-1").phase, store.query("q-1").crashes) == (QueryPhase.QUEUED, 1)
        assert dies.released
        store.close()


def test_workers_end_once_another_service_has_the_database_and_come_back_with_it(
    store: Store,
) -> None:
    other: list[str] = []

    def require() -> None:
        if other:
            raise DatabaseOwned(f"the database must have one service, and has {other[0]}")

    clock, nursery = ManualClock(), Nursery()
    watched = supervisor(store, clock, nursery)
    watched.parts = replace(watched.parts, require_owned=require)
    _ticked(watched, clock, 2.0)
    other.append("another")
    clock.sleep(1.0)
    for _ in range(20):
        with pytest.raises(DatabaseOwned):
            watched.tick()
    assert [process.exitcode for _, process in nursery.started] == [-9]
    other.clear()
    _ticked(watched, clock, 2.0)
    assert [process.exitcode for _, process in nursery.started] == [-9, None]


def test_a_silent_worker_loses_its_query(store: Store) -> None:
    clock, nursery = ManualClock(), Nursery()
    watched = supervisor(store, clock, nursery)
    store.queue.claim("elsewhere", at=0.0)
    clock.sleep(30.0)
    watched.tick()
    assert store.query("q-1").phase is QueryPhase.PLANNING  # silent for just the lease
    clock.sleep(0.1)
    watched.tick()
    assert store.query("q-1").phase is QueryPhase.QUEUED


def test_stopping_ends_the_workers_and_returns_their_queries(store: Store) -> None:
    clock, nursery = ManualClock(), Nursery()
    watched = supervisor(store, clock, nursery)
    watched.tick()
    worker, process = nursery.started[0]
    store.queue.claim(worker, at=0.0)
    watched.stop()
    assert process.exitcode == -15
    assert (store.query("q-1").phase, store.query("q-1").crashes) == (QueryPhase.QUEUED, 0)
