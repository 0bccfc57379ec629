"""The contract of `Store`, over every implementation."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from circinus.api.phases import CANCELLABLE, LIVE, QueryPhase
from circinus.api.schemas.events import EventKind
from circinus.api.store.records import (
    Conflict,
    InForce,
    NewQuery,
    NotFound,
    PlanningEnding,
    QueueFull,
    Replan,
    Search,
)
from circinus.api.store.store import Store
from tests.contracts.databases import opened, postgres, sqlite_file
from tests.contracts.stores import new, planned


def test_an_unknown_query_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="query must exist, got 'q-9'"):
        store.query("q-9")


def test_cancelling_an_unknown_query_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="query must exist"):
        store.request_cancel("q-9", at=1.0)


def test_an_unknown_plan_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="plan must exist, got 'p-9'"):
        store.plan("p-9")


def test_a_key_that_comes_again_with_another_query_is_a_conflict(store: Store) -> None:
    store.submit(new("q-1", key="mine"))
    with pytest.raises(Conflict, match="Idempotency-Key must not come again"):
        store.submit(new("q-2", key="mine", fingerprint="other"))
    assert [record.id for record in store.queries(limit=9)] == ["q-1"]


def test_a_key_that_comes_again_gives_the_first_query(store: Store) -> None:
    first, is_new = store.submit(new("q-1", key="mine"))
    again, is_new_again = store.submit(new("q-2", key="mine"))
    assert (is_new, is_new_again) == (True, False)
    assert again == first


def test_a_full_queue_takes_no_new_query(store: Store) -> None:
    assert store.submit(new("q-1"), queue_limit=1)[1]
    with pytest.raises(QueueFull, match="1 queries wait for planning already"):
        store.submit(new("q-2"), queue_limit=1)
    assert store.submit(new("q-2"), queue_limit=2)[1]
    assert [record.id for record in store.queries(limit=9)] == ["q-2", "q-1"]


def test_only_queued_queries_fill_the_queue(store: Store) -> None:
    store.submit(new("q-1"))
    store.queue.claim("w-1", at=1.0)
    assert store.submit(new("q-2"), queue_limit=1)[1]


def test_a_full_queue_knows_the_keys_that_came_before(store: Store) -> None:
    first, _ = store.submit(new("q-1", key="mine"), queue_limit=1)
    assert store.submit(new("q-2", key="mine"), queue_limit=1) == (first, False)
    with pytest.raises(Conflict, match="Idempotency-Key must not come again"):
        store.submit(new("q-3", key="mine", fingerprint="other"), queue_limit=1)


def test_many_at_once_fill_the_queue_and_no_more(store: Store) -> None:
    def taken(i: int) -> bool:
        try:
            return store.submit(new(f"q-{i}"), queue_limit=3)[1]
        except QueueFull:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(taken, range(32))) == 3
    assert len(store.queries(limit=99)) == 3


def test_one_key_submitted_by_many_at_once_is_one_query(store: Store) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda i: store.submit(new(f"q-{i}", key="k")), range(16)))
    assert sum(is_new for _, is_new in answers) == 1
    assert len({record.id for record, _ in answers}) == 1


def test_queries_without_a_key_are_all_new(store: Store) -> None:
    assert all(store.submit(new(f"q-{i}"))[1] for i in range(3))


def test_a_new_query_is_queued_with_its_history(store: Store) -> None:
    record, _ = store.submit(new("q-1"))
    assert record.phase is QueryPhase.QUEUED
    assert [(change.phase, change.at) for change in record.history] == [(QueryPhase.QUEUED, 100.0)]
    assert store.query("q-1") == record


def test_what_comes_out_is_a_copy(store: Store) -> None:
    spec: dict[str, object] = {"slo": {"accuracy": 0.5}}
    store.submit(NewQuery(id="q-1", spec=spec, fingerprint="f", idempotency_key=None, at=1.0))
    spec["slo"] = "changed by the caller"
    read = store.query("q-1").spec
    read["slo"]["accuracy"] = 0.9  # type: ignore[index]  # as a careless reader would
    assert store.query("q-1").spec == {"slo": {"accuracy": 0.5}}


def test_an_empty_queue_gives_nothing(store: Store) -> None:
    assert store.queue.claim("w-1", at=1.0) is None


def test_the_oldest_query_is_claimed_first(store: Store) -> None:
    for i in range(3):
        store.submit(new(f"q-{i}"))
    claimed = [store.queue.claim("w-1", at=float(i)) for i in range(4)]
    assert [record and record.id for record in claimed] == ["q-0", "q-1", "q-2", None]
    assert claimed[0] is not None
    assert (claimed[0].phase, claimed[0].claimed_by) == (QueryPhase.PLANNING, "w-1")


def test_no_query_is_claimed_twice_by_workers_that_race(store: Store) -> None:
    for i in range(20):
        store.submit(new(f"q-{i}"))
    with ThreadPoolExecutor(8) as threads:
        claims = list(threads.map(lambda i: store.queue.claim(f"w-{i}", at=1.0), range(32)))
    ids = [record.id for record in claims if record is not None]
    assert len(ids) == len(set(ids))
    for _ in range(20 - len(ids)):  # PostgreSQL may skip a row that another one looks at
        left = store.queue.claim("w-last", at=2.0)
        assert left is not None
        ids.append(left.id)
    assert len(set(ids)) == 20


def test_a_beat_of_somebody_else_says_stop(store: Store) -> None:
    store.submit(new("q-1"))
    store.queue.claim("w-1", at=1.0)
    assert store.queue.beat("q-1", "w-2", at=2.0, progress={"spent_s": 1}) is True
    assert store.query("q-1").progress is None


def test_a_beat_stores_progress_and_keeps_it_without_news(store: Store) -> None:
    store.submit(new("q-1"))
    store.queue.claim("w-1", at=1.0)
    assert store.queue.beat("q-1", "w-1", at=2.0, progress={"spent_s": 1.5}) is False
    assert store.queue.beat("q-1", "w-1", at=3.0) is False
    assert store.query("q-1").progress == {"spent_s": 1.5}


def test_the_end_of_planning_is_stored_with_its_plans(store: Store) -> None:
    planned(store)
    record = store.query("q-1")
    assert (record.phase, record.message, record.claimed_by) == (
        QueryPhase.WAITING,
        "planned",
        None,
    )
    assert record.result == {"plans": 2}
    assert [(plan.id, plan.position) for plan in store.plans("q-1")] == [("p-0", 0), ("p-1", 1)]
    assert store.plan("p-1").document == {"id": "p-1", "cost": 1}


def test_whoever_lost_the_query_stores_nothing(store: Store) -> None:
    store.submit(new("q-1"))
    store.queue.claim("w-1", at=1.0)
    store.queue.requeue_silent(since=2.0, at=2.0)
    ending = PlanningEnding(phase=QueryPhase.WAITING, message="", result={}, plans=(("p-0", {}),))
    assert store.queue.finish("q-1", "w-1", ending, at=3.0) is False
    assert store.query("q-1").phase is QueryPhase.QUEUED
    assert store.plans("q-1") == ()


def test_the_same_plan_of_two_queries_is_found_as_the_newest_sees_it(store: Store) -> None:
    planned(store, "q-1")
    planned(store, "q-2")
    assert store.plan("p-0").query_id == "q-2"


def test_a_queued_query_is_cancelled_at_once(store: Store) -> None:
    store.submit(new("q-1"))
    assert store.request_cancel("q-1", at=2.0).phase is QueryPhase.CANCELLED
    assert store.queue.claim("w-1", at=3.0) is None


def test_cancelling_twice_is_cancelling_once(store: Store) -> None:
    store.submit(new("q-1"))
    first = store.request_cancel("q-1", at=2.0)
    assert store.request_cancel("q-1", at=3.0) == first


def test_the_worker_is_told_to_stop_and_its_ending_becomes_cancelled(store: Store) -> None:
    store.submit(new("q-1"))
    store.queue.claim("w-1", at=1.0)
    assert store.request_cancel("q-1", at=2.0).phase is QueryPhase.PLANNING
    assert store.queue.beat("q-1", "w-1", at=2.5) is True
    ending = PlanningEnding(phase=QueryPhase.WAITING, message="planned", result={})
    assert store.queue.finish("q-1", "w-1", ending, at=3.0)
    assert store.query("q-1").phase is QueryPhase.CANCELLED


def test_what_is_planned_cannot_be_cancelled(store: Store) -> None:
    planned(store)
    with pytest.raises(Conflict, match=r"phase must be queued or planning .*, got waiting"):
        store.request_cancel("q-1", at=9.0)


def test_a_crash_returns_the_query_until_the_limit(store: Store) -> None:
    store.submit(new("q-1"))
    for crash in (1, 2):
        store.queue.claim("w-1", at=1.0)
        assert store.queue.crashed("w-1", at=2.0, limit=3, cause="killed by SIGKILL") == ("q-1",)
        record = store.query("q-1")
        assert (record.phase, record.crashes) == (QueryPhase.QUEUED, crash)
    store.queue.claim("w-1", at=3.0)
    store.queue.crashed("w-1", at=4.0, limit=3, cause="killed by SIGKILL")
    record = store.query("q-1")
    assert record.phase is QueryPhase.FAILED
    assert record.message == "killed by SIGKILL, 3 times"


def test_a_crash_of_a_worker_without_a_query_changes_nothing(store: Store) -> None:
    planned(store)
    assert store.queue.crashed("w-1", at=9.0, limit=1, cause="?") == ()
    assert store.query("q-1").phase is QueryPhase.WAITING


def test_a_crash_while_cancelling_is_a_cancellation(store: Store) -> None:
    store.submit(new("q-1"))
    store.queue.claim("w-1", at=1.0)
    store.request_cancel("q-1", at=2.0)
    store.queue.crashed("w-1", at=3.0, limit=1, cause="?")
    assert store.query("q-1").phase is QueryPhase.CANCELLED


def test_only_the_silent_are_requeued(store: Store) -> None:
    for query_id in ("q-1", "q-2"):
        store.submit(new(query_id))
        store.queue.claim(f"w-{query_id}", at=1.0)
    store.queue.beat("q-2", "w-q-2", at=10.0)
    assert store.queue.requeue_silent(since=10.0, at=20.0) == ("q-1",)
    assert store.query("q-1").phase is QueryPhase.QUEUED
    assert store.query("q-2").phase is QueryPhase.PLANNING
    assert store.query("q-1").crashes == 0


def test_a_move_from_another_phase_changes_nothing(store: Store) -> None:
    store.submit(new("q-1"))
    before = store.query("q-1")
    assert store.move("q-1", QueryPhase.RETIRED, at=5.0) is False
    assert store.query("q-1") == before
    assert store.move("q-9", QueryPhase.RETIRED, at=5.0, expected=CANCELLABLE) is False


def test_a_move_is_in_the_history_once(store: Store) -> None:
    planned(store)
    for _ in range(3):
        assert store.move("q-1", QueryPhase.WAITING, at=5.0, message="no room on edge")
    record = store.query("q-1")
    assert record.message == "no room on edge"
    assert [change.phase for change in record.history] == [
        QueryPhase.QUEUED,
        QueryPhase.PLANNING,
        QueryPhase.WAITING,
        QueryPhase.WAITING,
    ]


def test_the_state_of_an_unknown_query_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="query must exist, got 'q-9'"):
        store.state("q-9")


def test_whatever_is_stored_of_a_query_gives_it_another_state(store: Store) -> None:
    store.submit(new("q-1"))
    seen = [store.state("q-1")]

    def changed() -> bool:
        seen.append(store.state("q-1"))
        return seen[-1] not in seen[:-1]

    assert store.queue.claim("w", at=1.0) is not None
    assert changed()
    store.queue.beat("q-1", "w", at=2.0)  # alive, and no news
    assert not changed()
    store.queue.beat("q-1", "w", at=3.0, progress={"measured": 1})
    assert changed()
    ending = PlanningEnding(phase=QueryPhase.WAITING, message="", result={}, plans=(("p-0", {}),))
    assert store.queue.finish("q-1", "w", ending, at=4.0)
    assert changed()
    assert store.search_on("q-1", Search(why="late", infrastructure={}, at=5.0))
    assert changed()
    store.request_cancel("q-1", at=6.0)
    assert changed()
    again = Replan(query_id="q-1", spec=new("q-1").spec, why="other", at=7.0)
    assert store.replan(again)
    assert changed()
    store.schedules.replace(InForce(made_at=8.0))
    assert changed()
    assert store.schedules.revision() == seen[-1][1] == 1
    (listed,) = store.states(limit=9)
    assert (listed.id, listed.version) == ("q-1", seen[-1][0])


def test_only_a_live_query_is_given_a_pool(store: Store) -> None:
    with pytest.raises(NotFound, match="query must exist"):
        store.set_pool("q-1", {"edge": {"small": 1}}, at=1.0)
    with pytest.raises(NotFound, match="query must exist"):
        store.drop_pool("q-1", at=1.0, why="")
    store.submit(new("q-1"))
    with pytest.raises(Conflict, match="phase must be serving to be given a pool, got queued"):
        store.set_pool("q-1", {"edge": {"small": 1}}, at=1.0)
    assert not store.drop_pool("q-1", at=1.0, why="it has none")
    assert store.pools() == {}


def test_only_a_live_query_is_given_replicas_and_any_may_lose_them(store: Store) -> None:
    with pytest.raises(NotFound):
        store.set_replicas("q-1", 2)
    store.submit(new("q-1"))
    with pytest.raises(Conflict, match="phase must be serving to be given replicas, got queued"):
        store.set_replicas("q-1", 2)
    assert store.set_replicas("q-1", None).replicas is None
    assert store.replicas() == {}


def test_replicas_are_kept_and_dropped_and_the_same_again_changes_nothing(store: Store) -> None:
    planned(store, "q-1")
    version = store.set_replicas("q-1", 2).version
    assert store.set_replicas("q-1", 2).version == version
    assert store.replicas() == {"q-1": 2}
    assert store.set_replicas("q-1", 3).version == version + 1
    assert store.set_replicas("q-1", None).replicas is None
    assert store.replicas() == {}


def test_pools_are_kept_changed_and_dropped_with_a_word_each(store: Store) -> None:
    planned(store, "q-1")
    first, second = {"edge": {"small": 1}}, {"edge": {"small": 2, "large": 1}}
    assert store.set_pool("q-1", first, at=1.0).pool == first
    store.set_pool("q-1", first, at=2.0)
    store.set_pool("q-1", second, at=3.0)
    assert store.pools() == {"q-1": second}
    assert not store.drop_pool("q-1", at=4.0, why="another", only=first)
    assert store.query("q-1").pool == second
    assert store.drop_pool("q-1", at=5.0, why="enough", only=second)
    assert (store.pools(), store.query("q-1").pool) == ({}, None)
    told = store.events.of("q-1", kinds={EventKind.POOL})
    assert [(event.words, event.data) for event in told] == [
        (
            "pool of q-1 is chosen: edge/small=1",
            {"state": "chosen", "pool": first, "why": None},
        ),
        (
            "pool of q-1 is chosen: edge/small=2 edge/large=1",
            {"state": "chosen", "pool": second, "why": None},
        ),
        ("pool of q-1 is dropped: enough", {"state": "dropped", "pool": {}, "why": "enough"}),
    ]


def test_queries_come_newest_first_in_pages(store: Store) -> None:
    for i in range(5):
        store.submit(new(f"q-{i}"))
    first = store.queries(limit=2)
    second = store.queries(limit=2, before=first[-1].serial)
    last = store.queries(limit=2, before=second[-1].serial)
    assert [record.id for record in (*first, *second, *last)] == [
        "q-4",
        "q-3",
        "q-2",
        "q-1",
        "q-0",
    ]
    assert store.queries(limit=2, before=last[-1].serial) == ()


def test_queries_are_chosen_by_how_their_key_begins(store: Store) -> None:
    for i, key in enumerate(["a/1", "a/2", "b/1", "A/1", "a_/1", None]):
        store.submit(new(f"q-{i}", key=key))

    def found(prefix: str) -> list[str | None]:
        return [r.idempotency_key for r in store.queries(limit=9, key_prefix=prefix)]

    assert found("a/") == ["a/2", "a/1"]
    assert found("a_") == ["a_/1"]  # no pattern: `_` and `%` mean themselves
    assert found("%") == []


def test_queries_are_chosen_and_counted_by_phase(store: Store) -> None:
    planned(store, "q-1")
    store.submit(new("q-2"))
    assert [r.id for r in store.queries(limit=9, phases=frozenset({QueryPhase.WAITING}))] == [
        "q-1"
    ]
    assert len(store.ids(frozenset({QueryPhase.QUEUED}))) == 1
    assert len(store.ids(frozenset({QueryPhase.QUEUED, QueryPhase.WAITING}))) == 2
    assert store.ids(frozenset()) == ()
    assert store.counts() == {QueryPhase.WAITING: 1, QueryPhase.QUEUED: 1}


def test_queries_are_chosen_by_tenant(store: Store) -> None:
    for query_id, tenant in (("q-1", "acme"), ("q-2", ""), ("q-3", "acme")):
        store.submit(replace(new(query_id), tenant=tenant))
    assert [r.id for r in store.queries(limit=9, tenant="acme")] == ["q-3", "q-1"]
    assert [r.id for r in store.queries(limit=9, tenant="")] == ["q-2"]
    assert store.queries(limit=9, tenant="lab") == ()


def test_ids_come_oldest_first(store: Store) -> None:
    for i in range(3):
        store.submit(new(f"q-{i}"))
    store.queue.claim("w-1", at=1.0)
    assert store.ids(frozenset({QueryPhase.QUEUED})) == ("q-1", "q-2")
    assert store.ids(LIVE) == ()


@pytest.mark.parametrize("url_in", [sqlite_file, postgres])
def test_what_was_stored_is_there_after_closing(
    url_in: Callable[[Path], str], tmp_path: Path
) -> None:
    url = url_in(tmp_path)
    first = Store(opened(url))
    planned(first)
    before = first.query("q-1")
    first.close()
    second = Store(opened(url))
    assert second.query("q-1") == before
    assert len(second.plans("q-1")) == 2
    second.close()


@pytest.mark.parametrize("accuracy", [0.1, 1e-300, 0.30000000000000004])
def test_numbers_survive_exactly(store: Store, accuracy: float) -> None:
    store.submit(
        NewQuery(
            id="q-1", spec={"a": accuracy}, fingerprint="f", idempotency_key=None, at=accuracy
        )
    )
    assert store.query("q-1").spec == {"a": accuracy}
    assert store.query("q-1").history[0].at == accuracy
