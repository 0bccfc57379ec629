"""The contract of `ScheduleStore`, over every implementation."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from circinus.api.store.records import DisplacedRecord, InForce, NewQuery
from circinus.api.store.schedules import ScheduleStore
from circinus.api.store.store import Store


@pytest.fixture
def store(engine: Engine) -> ScheduleStore:
    queries = Store(engine)
    for query_id in ("q-1", "q-2", "q-3"):
        queries.submit(
            NewQuery(id=query_id, spec={}, fingerprint="", idempotency_key=None, at=0.0)
        )
    return queries.schedules


def displaced(query_id: str, by: str | None = None, *, at: float = 1.0) -> DisplacedRecord:
    return DisplacedRecord(at=at, query_id=query_id, by=by, moved=False)


def test_the_schedule_is_replaced_and_counted(store: ScheduleStore) -> None:
    assert store.read() == (0, InForce())
    first = InForce(made_at=1.0, machines={"edge": 2}, overdue=("q-1",))
    store.replace(first)
    assert store.read() == store.read() == (1, first)
    store.replace(InForce(made_at=1.0))
    assert store.read() == (2, InForce(made_at=1.0))


def test_a_schedule_that_another_process_replaced_is_read_again(engine: Engine) -> None:
    here, there = ScheduleStore(engine), ScheduleStore(engine)
    for number in (1, 2):
        there.replace(InForce(made_at=float(number)))
        assert here.read() == (number, InForce(made_at=float(number)))


def test_the_displaced_are_remembered_the_latest_first(store: ScheduleStore) -> None:
    assert store.displaced(limit=9) == ()
    first = (displaced("q-1", "q-2"), displaced("q-3"))
    store.replace(InForce(), first)
    last = displaced("q-2", "q-3", at=2.0)
    store.replace(InForce(), (last,))
    assert store.displaced(limit=9) == (last, first[1], first[0])
    assert store.displaced(limit=1) == (last,)
    assert store.displaced(limit=9, query_id="q-2") == (last, first[0])
    assert store.displaced(limit=9, query_id="q-9") == ()


def test_a_schedule_that_names_an_unknown_query_as_displaced_changes_nothing(
    store: ScheduleStore,
) -> None:
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        store.replace(InForce(made_at=1.0), (displaced("q-9"),))
    assert store.read() == (0, InForce())


def test_machines_are_set_and_forgotten_again(store: ScheduleStore) -> None:
    assert store.machines() == {}
    store.set_machines({"edge": 3, "cloud": 0}, at=1.0)
    store.set_machines({"edge": 4}, at=2.0)
    assert store.machines() == {"edge": 4, "cloud": 0}
    store.set_machines({"cloud": None, "moon": None}, at=3.0)
    assert store.machines() == {"edge": 4}
