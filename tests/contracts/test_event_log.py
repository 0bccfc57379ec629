"""The contract of `EventLog`, and what the store tells, over every kind of database."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import Engine, delete

from circinus.api.phases import QueryPhase
from circinus.api.schemas.events import EventKind, EventView
from circinus.api.schemas.progress import TrialView
from circinus.api.store.records import (
    DisplacedRecord,
    InForce,
    NewEvent,
    NotFound,
    PlanningEnding,
    QueueFull,
    Replan,
    Search,
)
from circinus.api.store.store import Store
from circinus.api.store.tables import EventRow
from circinus.planner.search.result import TrialState
from circinus.scheduler.problem import Assignment, Schedule, Slice
from tests.contracts.stores import new, planned

ENDING = PlanningEnding(phase=QueryPhase.WAITING, message="planned", result={}, plans=(("p", {}),))


def told(query_id: str | None = None, **data: object) -> NewEvent:
    return NewEvent(
        kind=EventKind.PROGRESS, at=1.0, query_id=query_id, words="it goes on", data=data
    )


def measured(query_id: str, *, size: int, inputs: int) -> NewEvent:
    trial = TrialView(
        configuration={"find": {"size": size}},
        inputs=inputs,
        state=TrialState.UNDECIDED,
        spent_s=1,
        elapsed_s=1,
    )
    data = trial.model_dump(mode="json")
    kind = EventKind.MEASURED
    return NewEvent(kind=kind, at=1.0, query_id=query_id, words="measured", data=data)


def seen(store: Store) -> list[tuple[str, str | None]]:
    return [(event.kind, event.query_id) for event in store.events.since(0, 999)]


def phases(store: Store, query_id: str = "q-1") -> list[object]:
    return [
        event.data.get("search", event.data["phase"])
        for event in store.events.of(query_id, kinds={EventKind.PHASE})
    ]


def schedule(*admitted: str, waiting: Sequence[str] = (), plan: str = "p") -> InForce:
    assignments = tuple(
        Assignment(query_id=q, plan_id=plan, machines=(Slice(tier="edge", machine=0, share=0.5),))
        for q in admitted
    )
    why = {query_id: "no room on edge" for query_id in waiting}
    made = Schedule(assignments=assignments, waiting=why, utilisation={})
    return InForce(schedule=made, made_at=5.0)


def test_what_is_refused_tells_nothing(store: Store) -> None:
    store.submit(new("q-1"), queue_limit=1)
    before = store.events.latest()
    with pytest.raises(QueueFull):
        store.submit(new("q-2"), queue_limit=1)
    with pytest.raises(NotFound):
        store.request_cancel("q-9", at=1.0)
    assert not store.move("q-1", QueryPhase.RETIRED, at=1.0)
    assert store.queue.finish("q-1", "nobody", ENDING, at=1.0) is False
    assert store.events.latest() == before
    assert len(store.events.since(0, 9)) == 1


def test_a_beat_of_somebody_else_tells_nothing(store: Store) -> None:
    store.submit(new("q-1"))
    store.queue.claim("w-1", at=1.0)
    trial = measured("q-1", size=1, inputs=1)
    assert store.queue.beat("q-1", "w-2", at=2.0, events=[trial]) is True
    assert (EventKind.MEASURED, "q-1") not in seen(store)
    assert store.events.trials("q-1") == ()


def test_an_id_of_another_database_is_dropped(store: Store) -> None:
    assert not store.events.is_dropped(0)
    assert store.events.is_dropped(1)
    store.events.tell(told())
    assert not store.events.is_dropped(store.events.latest())
    assert store.events.is_dropped(store.events.latest() + 1)


def test_no_event_is_told_where_nothing_changes(store: Store) -> None:
    planned(store)
    for _ in range(2):
        assert store.move("q-1", QueryPhase.DEPLOYING, at=5.0, message="m", events=[told("q-1")])
        store.schedules.set_machines({"edge": 2, "cloud": None}, at=6.0)
        store.schedules.replace(schedule("q-1", waiting=["q-2"]))
    assert seen(store)[3:] == [
        (EventKind.PHASE, "q-1"),
        (EventKind.PROGRESS, "q-1"),
        (EventKind.MACHINES, None),
        (EventKind.SCHEDULE, None),
    ]


def test_a_query_tells_every_phase_with_its_message(store: Store) -> None:
    planned(store)
    store.move("q-1", QueryPhase.SERVING, at=9.0)
    events = store.events.of("q-1")
    assert [event.data for event in events] == [
        {"phase": "queued", "message": ""},
        {"phase": "planning", "message": ""},
        {"phase": "waiting", "message": "planned"},
        {"phase": "serving", "message": ""},
    ]
    assert [event.words for event in events[2:]] == ["q-1 is waiting: planned", "q-1 is serving"]
    history = [change.at for change in store.query("q-1").history]
    assert [event.at.timestamp() for event in events] == history


def test_a_search_is_told_from_its_wish_to_its_end(store: Store) -> None:
    planned(store)
    assert store.search_on("q-1", Search(why="it is late", infrastructure={}, at=3.0))
    assert store.queue.claim("w-2", at=4.0)
    ending = PlanningEnding(phase=QueryPhase.EXHAUSTED, message="found none", result=None)
    assert store.queue.finish("q-1", "w-2", ending, at=5.0)
    assert phases(store)[3:] == ["asked", "begun", "ended"]
    last = store.events.of("q-1")[-1]
    assert (last.data["phase"], last.words) == (
        "waiting",
        "q-1 is waiting: no longer searched on: found none",
    )


def test_other_plans_are_told_with_why(store: Store) -> None:
    planned(store)
    spec = store.query("q-1").spec
    anew = Replan(query_id="q-1", spec=spec, why="other data", at=9.0)
    store.replan(replace(anew, why="cheaper", result={}, plans=ENDING.plans))
    store.replan(anew)
    found = store.events.of("q-1", kinds={EventKind.REPLANNED})
    assert [event.words for event in found] == [
        "q-1 has other plans: cheaper",
        "q-1 is planned anew: other data",
    ]
    assert [event.data["plans"] for event in found] == [["p"], []]


def test_a_schedule_tells_only_what_it_changes(store: Store) -> None:
    for query_id in ("q-1", "q-2", "q-3"):
        planned(store, query_id)
    store.schedules.replace(schedule("q-1", "q-2", waiting=["q-3"]))
    way = DisplacedRecord(at=6.0, query_id="q-2", by="q-3", moved=False)
    store.schedules.replace(schedule("q-1", "q-3", waiting=["q-2"]), [way])
    store.schedules.replace(schedule("q-3", plan="other"))
    first, second, third = (e for e in store.events.since(0, 99) if e.kind == EventKind.SCHEDULE)
    served = {"state": "served", "plan_id": "p", "tiers": ["edge"], "extras": 0}
    waits = {"state": "waits", "why": "no room on edge", "displaced_by": []}
    assert first.data == {"revision": 1, "queries": {"q-1": served, "q-2": served, "q-3": waits}}
    assert second.data["queries"] == {"q-3": served, "q-2": {**waits, "displaced_by": ["q-3"]}}
    assert third.data["queries"] == {
        "q-3": {**served, "plan_id": "other"},
        "q-1": {"state": "gone"},
        "q-2": {"state": "gone"},
    }
    assert third.words == "schedule 3 changes queries: 2 gone, 1 served"


def test_another_process_changes_the_schedule_that_changes_are_told_of(
    engine: Engine, store: Store
) -> None:
    store.schedules.read()
    Store(engine).schedules.replace(schedule("q-1"))
    store.schedules.replace(schedule("q-1", "q-2"))
    assert list(store.events.since(0, 99)[-1].data["queries"]) == ["q-2"]  # type: ignore[arg-type]


def test_machines_tell_what_changed(store: Store) -> None:
    store.schedules.set_machines({"edge": 2, "cloud": 3}, at=1.0)
    store.schedules.set_machines({"edge": 2, "cloud": None}, at=2.0)
    first, second = store.events.since(0, 9)
    assert first.words == "edge has 2 machines, cloud has 3 machines"
    assert second.data == {"machines": {"cloud": None}}


def test_trials_are_the_newest_of_each_configuration_in_their_order(store: Store) -> None:
    store.submit(new("q-1"))
    store.queue.claim("w", at=1.0)
    beats = [[(1, 5), (2, 5)], [(3, 5), (1, 9)], [(2, 7), (2, 8)]]
    for beat in beats:
        events = [measured("q-1", size=size, inputs=inputs) for size, inputs in beat]
        assert store.queue.beat("q-1", "w", at=2.0, events=events) is False
    found = [(t.configuration["find"]["size"], t.inputs) for t in store.events.trials("q-1")]
    assert found == [(3, 5), (1, 9), (2, 8)]
    assert len(store.events.of("q-1", kinds={EventKind.MEASURED})) == 6


def test_trials_are_those_of_the_latest_start(store: Store) -> None:
    for worker in ("w-1", "w-2"):
        if worker == "w-1":
            store.submit(new("q-1"))
        assert store.queue.claim(worker, at=1.0) is not None
        trial = measured("q-1", size=1 if worker == "w-1" else 2, inputs=1)
        store.queue.beat("q-1", worker, at=2.0, events=[trial])
        store.queue.release(worker, at=3.0)
    [trial_view] = store.events.trials("q-1")
    assert trial_view.configuration == {"find": {"size": 2}}


def test_old_events_are_dropped_and_whoever_wants_them_is_told(store: Store) -> None:
    store.submit(new("q-1"))
    store.queue.claim("w", at=1.0)
    store.queue.beat("q-1", "w", at=1.0, events=[measured("q-1", size=1, inputs=1)])
    store.events.tell(*[told() for _ in range(10)])
    store.submit(new("q-2"))
    store.events.tell(*[told("q-2") for _ in range(5)])
    latest = store.events.latest()
    assert store.events.drop_old(most=100) == 0
    assert store.events.drop_old(most=6) == latest - 6
    oldest = store.events.since(0, 99)[0].id
    assert (oldest, store.events.latest()) == (latest - 5, latest)
    assert not store.events.is_dropped(oldest - 1)
    assert store.events.is_dropped(oldest - 2)
    assert store.events.is_dropped(0, "q-1")
    assert not store.events.is_dropped(0, "q-2")  # it came since: all of it is there
    assert store.events.of("q-1") == ()
    assert len(store.events.trials("q-1")) == 1
    store.events.tell(told("q-2"))
    assert store.events.latest() == latest + 1


def test_a_query_from_before_there_were_events_is_not_told_whole(
    engine: Engine, store: Store
) -> None:
    store.submit(new("q-1"))
    store.events.tell(told())
    with engine.begin() as connection:
        connection.execute(delete(EventRow).where(EventRow.query_id == "q-1"))
    assert store.events.is_dropped(0, "q-1")


def test_events_come_in_pages_of_one_query_or_all(store: Store) -> None:
    store.events.tell(*[told(f"q-{i % 2}", number=i) for i in range(10)])
    every = store.events.since(0, 99)
    assert [event.data["number"] for event in every] == [*range(10)]
    assert store.events.since(every[3].id, 2) == every[4:6]
    assert store.events.since(every[3].id, 9, query_id="q-1") == every[5::2]
    assert store.events.since(0, 9, until=every[1].id) == every[:2]
    assert store.events.newest(3, until=every[-2].id) == every[-4:-1]
    assert store.events.of("q-0", after=every[1].id, limit=2) == every[2:6:2]
    assert store.events.latest() == every[-1].id


def _life(store: Store, number: int, draw: np.random.Generator) -> None:
    """Do what services and planning workers do, at the same time as others."""
    query_id, worker = f"q-{number}", f"w-{number}"
    store.submit(new(query_id))
    while (claimed := store.queue.claim(worker, at=1.0)) is None:
        pass
    mine = claimed.id
    for beat in range(3):
        events = [measured(mine, size=int(draw.integers(3)), inputs=beat), told(mine)]
        assert store.queue.beat(mine, worker, at=2.0, progress={"n": beat}, events=events) is False
        if draw.random() < 0.3:
            store.schedules.set_machines({"edge": int(draw.integers(100))}, at=2.0)
    assert store.queue.finish(mine, worker, ENDING, at=3.0)
    store.schedules.replace(schedule(mine, waiting=[query_id]))
    store.move(mine, QueryPhase.SERVING, at=4.0)
    store.replan(replace(Replan(query_id=mine, spec={}, why="w", at=5.0), result={}))
    store.move(mine, QueryPhase.RETIRED, at=6.0)


def test_whoever_reads_while_many_write_misses_nothing(store: Store) -> None:
    found: list[EventView] = []
    over = threading.Event()

    def read() -> None:
        last = False
        while not last:
            last = over.wait(0.001)
            found.extend(store.events.since(found[-1].id if found else 0, 7))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with ThreadPoolExecutor(8) as threads:
            lives = [
                threads.submit(_life, store, number, np.random.default_rng(number))
                for number in range(24)
            ]
        for life in lives:
            life.result()
    finally:
        over.set()
        reader.join()
    while more := store.events.since(found[-1].id, 999):
        found.extend(more)
    assert [event.id for event in found] == [event.id for event in store.events.since(0, 9999)]
    assert sum(event.kind == EventKind.MEASURED for event in found) == 24 * 3
    for number in range(24):  # each query's own story is in order
        mine = [event for event in found if event.query_id == f"q-{number}"]
        told_of = [event.data["phase"] for event in mine if event.kind == EventKind.PHASE]
        assert told_of == ["queued", "planning", "waiting", "serving", "waiting", "retired"]
    assert all(json.dumps(event.data) for event in found)
