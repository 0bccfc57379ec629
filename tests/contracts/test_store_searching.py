"""The contract of `Store` where a query is searched on while it serves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from circinus.api.phases import QueryPhase
from circinus.api.store.records import Conflict, NotFound, PlanningEnding, Replan, Search
from circinus.api.store.store import Store
from tests.contracts.stores import new, planned

SEARCH = Search(why="latency is 2 s", infrastructure={"tiers": [{"speed": 0.5}]}, at=200.0)
IN_VAIN = PlanningEnding(
    phase=QueryPhase.INFEASIBLE, message="no plan is so fast", result={"found": 0}
)
FOUND = PlanningEnding(
    phase=QueryPhase.WAITING, message="found", result={"found": 1}, plans=(("p-9", {"id": "p-9"}),)
)


def searched(store: Store, query_id: str = "q-1", *, by: str = "") -> None:
    """Put a query into the store that serves and is searched on, by a worker if it is named."""
    planned(store, query_id)
    store.move(query_id, QueryPhase.SERVING, at=103.0)
    assert store.search_on(query_id, SEARCH)
    if by:
        claimed = store.queue.claim(by, at=201.0)
        assert claimed is not None
        assert claimed.id == query_id


def serves_as_before(store: Store) -> bool:
    """Whether phase, history, plans and result are those from before the search."""
    record = store.query("q-1")
    phases = [change.phase for change in record.history]
    return (
        phases == [QueryPhase.QUEUED, QueryPhase.PLANNING, QueryPhase.WAITING, QueryPhase.SERVING]
        and record.result == {"plans": 2}
        and [plan.id for plan in store.plans("q-1")] == ["p-0", "p-1"]
    )


def test_an_unknown_query_is_not_searched_on(store: Store) -> None:
    with pytest.raises(NotFound, match="query must exist, got 'q-9'"):
        store.search_on("q-9", SEARCH)


def test_what_is_not_live_is_not_searched_on(store: Store) -> None:
    store.submit(new("q-1"))
    assert store.search_on("q-1", SEARCH) is False
    store.queue.claim("w-1", at=1.0)
    assert store.search_on("q-1", SEARCH) is False
    assert store.query("q-1").search is None


def test_a_query_is_searched_on_once_at_a_time(store: Store) -> None:
    searched(store)
    assert store.search_on("q-1", replace(SEARCH, why="another")) is False
    assert store.query("q-1").search == SEARCH
    store.queue.claim("w-1", at=201.0)
    assert store.search_on("q-1", replace(SEARCH, why="another")) is False
    store.queue.finish("q-1", "w-1", IN_VAIN, at=202.0)
    assert store.search_on("q-1", replace(SEARCH, why="another")) is True


def test_a_search_is_claimed_by_one_worker_and_leaves_the_phase(store: Store) -> None:
    searched(store)
    claimed = store.queue.claim("w-1", at=201.0)
    assert claimed is not None
    assert (claimed.id, claimed.phase, claimed.claimed_by) == ("q-1", QueryPhase.SERVING, "w-1")
    assert claimed.searching == SEARCH
    assert store.queue.claim("w-2", at=201.0) is None
    assert serves_as_before(store)


def test_no_search_is_claimed_twice_by_workers_that_race(store: Store) -> None:
    for i in range(8):
        searched(store, f"q-{i}")
    with ThreadPoolExecutor(8) as threads:
        claims = list(threads.map(lambda i: store.queue.claim(f"w-{i}", at=1.0), range(16)))
    ids = [record.id for record in claims if record is not None]
    assert len(ids) == len(set(ids))


def test_queued_queries_are_claimed_before_searches_and_these_in_their_order(
    store: Store,
) -> None:
    for query_id, at in (("q-1", 300.0), ("q-2", 200.0)):
        planned(store, query_id)
        assert store.search_on(query_id, replace(SEARCH, at=at))
    store.submit(new("q-3"))
    claims = [store.queue.claim("w-1", at=301.0) for _ in range(4)]
    assert [claim and claim.id for claim in claims] == ["q-3", "q-2", "q-1", None]


def test_a_search_beats_and_tells_its_progress(store: Store) -> None:
    searched(store, by="w-1")
    assert store.query("q-1").progress is None
    assert store.queue.beat("q-1", "w-1", at=202.0, progress={"spent_s": 1.5}) is False
    assert store.query("q-1").progress == {"spent_s": 1.5}
    assert store.queue.beat("q-1", "w-2", at=202.0) is True


def test_a_search_in_vain_changes_nothing_and_says_why(store: Store) -> None:
    searched(store, by="w-1")
    before = store.live()
    assert store.queue.finish("q-1", "w-1", IN_VAIN, at=202.0)
    record = store.query("q-1")
    assert record.search == replace(SEARCH, ended="no plan is so fast", ended_at=202.0)
    assert (record.searching, record.claimed_by, record.updated_at) == (None, None, 202.0)
    assert serves_as_before(store)
    assert store.live() == before
    assert store.queue.claim("w-1", at=203.0) is None


def test_plans_that_a_search_found_replace_the_old_ones_in_one_step(store: Store) -> None:
    searched(store, by="w-1")
    before = store.live()["q-1"]
    assert store.queue.finish("q-1", "w-1", FOUND, at=202.0)
    record = store.query("q-1")
    assert (record.phase, record.message) == (QueryPhase.WAITING, "replanned: latency is 2 s")
    assert (record.result, record.search, record.claimed_by) == ({"found": 1}, None, None)
    assert [change.at for change in record.replans] == [202.0]
    assert [plan.id for plan in store.plans("q-1")] == ["p-9"]
    assert store.live()["q-1"] > before


@pytest.mark.parametrize("ending", [IN_VAIN, FOUND])
def test_who_lost_a_search_stores_nothing(store: Store, ending: PlanningEnding) -> None:
    searched(store, by="w-1")
    assert store.queue.requeue_silent(since=202.0, at=202.0) == ("q-1",)
    assert store.queue.finish("q-1", "w-1", ending, at=203.0) is False
    assert serves_as_before(store)
    assert store.query("q-1").searching == SEARCH  # for another worker


def test_a_search_that_is_given_back_waits_for_another_worker(store: Store) -> None:
    searched(store, by="w-1")
    assert store.queue.release("w-1", at=202.0) == ("q-1",)
    assert serves_as_before(store)
    again = store.queue.claim("w-2", at=203.0)
    assert again is not None
    assert (again.id, again.crashes) == ("q-1", 0)


def test_crashes_end_a_search_at_the_limit_and_its_query_serves_on(store: Store) -> None:
    store.submit(new("q-1"))
    store.queue.claim("w-0", at=1.0)
    store.queue.crashed("w-0", at=2.0, limit=3, cause="?")  # a crash while planning counts no more
    store.queue.claim("w-1", at=3.0)
    store.queue.finish("q-1", "w-1", FOUND, at=4.0)
    store.search_on("q-1", SEARCH)
    for crash in (1, 2):
        store.queue.claim("w-1", at=201.0)
        assert store.queue.crashed("w-1", at=202.0, limit=3, cause="killed by SIGKILL") == ("q-1",)
        record = store.query("q-1")
        assert (record.phase, record.crashes, record.searching) == (
            QueryPhase.WAITING,
            crash,
            SEARCH,
        )
    store.queue.claim("w-1", at=203.0)
    store.queue.crashed("w-1", at=204.0, limit=3, cause="killed by SIGKILL")
    record = store.query("q-1")
    assert record.phase is QueryPhase.WAITING
    assert record.search == replace(SEARCH, ended="killed by SIGKILL, 3 times", ended_at=204.0)
    assert store.queue.claim("w-1", at=205.0) is None


@pytest.mark.parametrize("worker", ["", "w-1"])
def test_cancelling_a_search_leaves_its_query_as_it_was(store: Store, worker: str) -> None:
    searched(store, by=worker)
    cancelled = store.request_cancel("q-1", at=202.0)
    assert cancelled.search == replace(SEARCH, ended="cancelled", ended_at=202.0)
    assert store.request_cancel("q-1", at=203.0) == cancelled
    assert serves_as_before(store)
    assert store.queue.beat("q-1", "w-1", at=203.0) is True
    assert store.queue.finish("q-1", "w-1", FOUND, at=204.0) is False
    assert store.queue.claim("w-2", at=205.0) is None
    assert serves_as_before(store)


def test_a_search_that_ended_by_itself_cannot_be_cancelled(store: Store) -> None:
    searched(store, by="w-1")
    store.queue.finish("q-1", "w-1", IN_VAIN, at=202.0)
    with pytest.raises(Conflict, match=r"\(or the query searched on\) .*, got serving"):
        store.request_cancel("q-1", at=203.0)


def test_a_retired_query_cannot_be_cancelled_though_its_search_was(store: Store) -> None:
    searched(store)
    store.request_cancel("q-1", at=202.0)
    store.move("q-1", QueryPhase.RETIRED, at=203.0)
    with pytest.raises(Conflict, match="got retired"):
        store.request_cancel("q-1", at=204.0)


@pytest.mark.parametrize("worker", ["", "w-1"])
def test_a_query_that_is_retired_is_searched_on_no_longer(store: Store, worker: str) -> None:
    searched(store, by=worker)
    store.move("q-1", QueryPhase.WAITING, at=202.0)
    assert store.query("q-1").searching == SEARCH  # it lost its machines, and is live
    store.move("q-1", QueryPhase.RETIRED, at=203.0)
    record = store.query("q-1")
    assert record.search == replace(SEARCH, ended="the query is retired", ended_at=203.0)
    assert store.queue.beat("q-1", "w-1", at=204.0) is True
    assert store.queue.finish("q-1", "w-1", FOUND, at=205.0) is False
    assert store.query("q-1").phase is QueryPhase.RETIRED
    assert store.queue.claim("w-2", at=206.0) is None
    with pytest.raises(Conflict, match="got retired"):
        store.request_cancel("q-1", at=207.0)


@pytest.mark.parametrize("result", [None, {"found": 2}])
def test_a_replan_takes_the_query_from_whoever_searches_on(
    store: Store, result: dict[str, object] | None
) -> None:
    searched(store, by="w-1")
    plans = () if result is None else (("p-7", {"id": "p-7"}),)
    spec = {"pipeline": "digits"}
    told = Replan(query_id="q-1", spec=spec, why="other", at=202.0, result=result, plans=plans)
    assert store.replan(told)
    record = store.query("q-1")
    assert (record.search, record.claimed_by) == (None, None)
    assert store.queue.beat("q-1", "w-1", at=203.0) is True
    assert store.queue.finish("q-1", "w-1", FOUND, at=204.0) is False
    assert [plan.id for plan in store.plans("q-1")] == [plan_id for plan_id, _ in plans]


def test_a_plan_that_was_replaced_is_still_given_and_says_so(store: Store) -> None:
    planned(store, "q-1")  # p-0 and p-1
    told = Replan(query_id="q-1", spec={}, why="other", at=202.0)
    plans = (("p-1", {"id": "p-1", "now": True}), ("p-7", {"id": "p-7"}))
    store.replan(replace(told, result={"found": 2}, plans=plans))
    assert [plan.id for plan in store.plans("q-1")] == ["p-1", "p-7"]
    assert store.plan("p-0").superseded_at == 202.0
    again = store.plan("p-1")  # found once more: a plan of now
    assert (again.superseded_at, again.document) == (None, {"id": "p-1", "now": True})
    store.replan(replace(told, at=203.0))  # planned anew: it has no plans, and had those
    assert store.plans("q-1") == ()
    assert store.plan("p-7").superseded_at == 203.0
    with pytest.raises(NotFound, match="plan must exist, got 'p-0'"):
        store.plan("p-0")


def test_a_plan_that_one_query_has_and_another_had_is_that_of_the_former(store: Store) -> None:
    planned(store, "q-1")
    planned(store, "q-2")
    store.replan(Replan(query_id="q-2", spec={}, why="other", at=202.0))
    assert (store.plan("p-0").query_id, store.plan("p-0").superseded_at) == ("q-1", None)


def test_a_query_that_is_planned_anew_has_its_crashes_before_it(store: Store) -> None:
    searched(store, by="w-1")
    store.queue.crashed("w-1", at=202.0, limit=2, cause="?")
    store.replan(Replan(query_id="q-1", spec={}, why="other", at=203.0))
    store.queue.claim("w-1", at=204.0)
    store.queue.crashed("w-1", at=205.0, limit=2, cause="?")
    assert store.query("q-1").phase is QueryPhase.QUEUED


def test_live_queries_have_a_revision_that_grows_with_their_plans(store: Store) -> None:
    store.submit(new("q-0"))
    assert store.live() == {}
    store.queue.claim("w-1", at=1.0)
    store.queue.finish("q-0", "w-1", IN_VAIN, at=2.0)
    planned(store, "q-2")
    planned(store, "q-1")
    assert list(store.live()) == ["q-2", "q-1"]
    first = store.live()["q-1"]
    assert store.query("q-1").revision == first
    # Away and back between two looks: with the same plans, but that cannot be known.
    store.replan(Replan(query_id="q-1", spec={}, why="other", at=3.0))
    assert list(store.live()) == ["q-2"]
    store.queue.claim("w-1", at=4.0)
    store.queue.finish("q-1", "w-1", FOUND, at=5.0)
    assert store.live()["q-1"] > first
