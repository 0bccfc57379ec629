"""The schedule follows queries, machines and waiting times; who made way is on record."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from circinus.api.phases import QueryPhase
from circinus.api.store.records import PlanningEnding, Replan, Search, to_document
from circinus.api.store.store import Store
from circinus.api.use_cases.queries import undeploy
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.planner.search.result import PlanningSummary
from tests.api.fakes import FakeDeployer, add_planned, plan, result, sql_store
from tests.api.loops import Loops, loops


class AdjustedClock(ManualClock):
    """A system clock that somebody sets ahead; monotonic seconds know nothing of it."""

    ahead_s = 0.0

    def timestamp(self) -> float:
        return self.seconds + self.ahead_s


@pytest.fixture
def watched(store: Store, clock: ManualClock) -> Loops:
    return loops(store, FakeDeployer(), clock)


def tick(watched: Loops) -> None:
    asyncio.run(watched.tick())


def phases(store: Store, *ids: str) -> list[QueryPhase]:
    return [store.query(query_id).phase for query_id in ids]


def told(store: Store, query_id: str) -> list[tuple[str, str | None, bool]]:
    records = store.schedules.displaced(limit=9, query_id=query_id)
    return [(r.query_id, r.by, r.moved) for r in records]


@pytest.mark.parametrize(
    ("machines", "rule"),
    [
        ({"moon": 1}, r"machines must name shared tiers \(cloud\), got 'moon'"),
        ({"cloud": -1}, r"machines\.cloud must be from 0 to 100000, got -1"),
        ({"cloud": 100_001}, r"machines\.cloud must be from 0 to 100000, got 100001"),
    ],
)
def test_machines_that_cannot_be_are_refused(
    watched: Loops, machines: dict[str, int], rule: str
) -> None:
    with pytest.raises(InvalidInput, match=rule):
        watched.capacity.set_machines(machines)
    assert watched.capacity.now() == watched.capacity.stated


def test_one_wrong_tier_leaves_the_others_as_they_were(watched: Loops) -> None:
    with pytest.raises(InvalidInput, match="moon"):
        watched.capacity.set_machines({"cloud": 5, "moon": 1})
    assert watched.capacity.now().tier("cloud").machines == 1


def test_planning_counts_on_machines_that_may_come_back(watched: Loops) -> None:
    for machines, planned_for in ((0, 1), (3, 3)):
        watched.capacity.set_machines({"cloud": machines})
        assert watched.capacity.now().tier("cloud").machines == machines
        assert watched.capacity.planned_for().tier("cloud").machines == planned_for


def test_the_evicted_are_named_and_wait_and_are_served_when_machines_come_back(
    store: Store, watched: Loops
) -> None:
    add_planned(store, "q-1", plan(share=1.0))
    tick(watched)
    watched.capacity.set_machines({"cloud": 0})
    tick(watched)
    assert phases(store, "q-1") == [QueryPhase.WAITING]
    assert store.query("q-1").message.startswith(
        "q-1 was stopped because its machines or plan are gone. Its only plan"
    )
    assert told(store, "q-1") == [("q-1", None, False)]
    assert watched.in_force.read()[1].machines == {"cloud": 0}
    watched.capacity.set_machines({"cloud": None})
    tick(watched)
    assert phases(store, "q-1") == [QueryPhase.SERVING]


def test_machines_that_were_set_are_remembered_by_the_next_service(
    store: Store, clock: ManualClock, watched: Loops
) -> None:
    watched.capacity.set_machines({"cloud": 2})
    again = loops(store, FakeDeployer(), clock)
    assert again.capacity.now().tier("cloud").machines == 2


def test_a_higher_priority_takes_the_place_and_both_sides_can_tell(
    store: Store, watched: Loops
) -> None:
    add_planned(store, "q-1", plan(share=1.0), weight=100.0)
    tick(watched)
    add_planned(store, "q-2", plan(share=1.0), priority=1)
    tick(watched)
    assert phases(store, "q-1", "q-2") == [QueryPhase.WAITING, QueryPhase.SERVING]
    assert told(store, "q-1") == told(store, "q-2") == [("q-1", "q-2", False)]
    assert "q-1 was stopped for q-2." in store.query("q-1").message


def test_a_tenant_holds_no_more_than_its_quota(store: Store, clock: ManualClock) -> None:
    watched = loops(store, FakeDeployer(), clock, quotas={"acme": 0.5})
    add_planned(store, "q-1", plan(share=0.3), tenant="acme")
    add_planned(store, "q-2", plan(share=0.3), tenant="acme", weight=0.5)
    add_planned(store, "q-3", plan(share=0.3), tenant="lab", weight=0.1)
    tick(watched)
    assert phases(store, "q-1", "q-2", "q-3") == [
        QueryPhase.SERVING,
        QueryPhase.WAITING,
        QueryPhase.SERVING,
    ]
    assert "tenant acme may hold 0.5" in store.query("q-2").message


def test_who_waits_too_long_is_served_though_nothing_else_happens(
    store: Store, clock: ManualClock, watched: Loops
) -> None:
    add_planned(store, "q-1", plan(share=1.0), weight=1000.0)
    tick(watched)
    add_planned(store, "q-2", plan(share=1.0))
    tick(watched)
    clock.sleep(59.0)
    tick(watched)
    assert phases(store, "q-1", "q-2") == [QueryPhase.SERVING, QueryPhase.WAITING]
    clock.sleep(1.0)
    tick(watched)
    assert phases(store, "q-1", "q-2") == [QueryPhase.WAITING, QueryPhase.SERVING]


def test_waiting_is_remembered_over_a_restart(
    store: Store, clock: ManualClock, watched: Loops
) -> None:
    add_planned(store, "q-1", plan(share=1.0), weight=1000.0)
    tick(watched)
    add_planned(store, "q-2", plan(share=1.0))
    tick(watched)
    clock.sleep(30.0)
    again = loops(store, FakeDeployer(), clock)
    tick(again)
    assert phases(store, "q-1", "q-2") == [QueryPhase.SERVING, QueryPhase.WAITING]
    clock.sleep(30.0)
    tick(again)
    assert phases(store, "q-1", "q-2") == [QueryPhase.WAITING, QueryPhase.SERVING]


def test_a_look_at_which_nothing_changed_stores_nothing(
    store: Store, clock: ManualClock, watched: Loops
) -> None:
    add_planned(store, "q-1", plan())
    tick(watched)
    before = watched.in_force.read()
    for _ in range(3):
        clock.sleep(1000.0)
        tick(watched)
    assert watched.in_force.read() == before


def test_the_history_of_who_waits_does_not_grow_with_every_schedule(
    store: Store, watched: Loops
) -> None:
    add_planned(store, "big", plan(share=1.0), weight=0.001)
    for i in range(4):
        add_planned(store, f"q-{i}", plan(share=0.1))
        tick(watched)
    waiting = [c for c in store.query("big").history if c.phase is QueryPhase.WAITING]
    served = [c for c in store.query("big").history if c.phase is QueryPhase.SERVING]
    assert len(waiting) + len(served) <= 4
    undeploy(store, "q-0", clock=ManualClock(1.0))
    before = len(store.query("big").history)
    tick(watched)
    assert len(store.query("big").history) == before


def test_plans_that_another_process_found_are_deployed_while_the_old_one_runs(
    store: Store, clock: ManualClock, tmp_path: Path
) -> None:
    deployer = FakeDeployer()
    watched = loops(store, deployer, clock)
    add_planned(store, "q-1", plan(share=0.5))
    tick(watched)
    worker = sql_store(tmp_path)
    assert worker.search_on("q-1", Search(why="late", infrastructure={}, at=1.0))
    assert worker.queue.claim("w", at=2.0) is not None
    found = plan(share=0.75)
    tick(watched)
    before = deployer.applied
    ending = PlanningEnding(
        phase=QueryPhase.WAITING,
        message="found",
        result=to_document(PlanningSummary.of(result(found))),
        plans=((found.id, to_document(found)),),
    )
    assert worker.queue.finish("q-1", "w", ending, at=3.0)
    worker.close()
    tick(watched)
    assert phases(store, "q-1") == [QueryPhase.SERVING]
    assert deployer.desired["q-1"].plan == found
    # In one step: it was never taken down in between.
    assert deployer.applied == before + 1


def test_a_query_that_was_planned_anew_between_two_looks_serves_again_with_equal_plans(
    store: Store, watched: Loops
) -> None:
    add_planned(store, "q-1", plan())
    tick(watched)
    spec, same = store.query("q-1").spec, plan()
    found = to_document(PlanningSummary.of(result(same)))
    plans = ((same.id, to_document(same)),)
    store.replan(Replan(query_id="q-1", spec=spec, why="other", at=2.0, result=found, plans=plans))
    assert phases(store, "q-1") == [QueryPhase.WAITING]
    tick(watched)
    assert phases(store, "q-1") == [QueryPhase.SERVING]


def test_a_query_that_cannot_compete_waits_with_its_reason_and_keeps_nobody_from_being_served(
    store: Store, clock: ManualClock, watched: Loops
) -> None:
    add_planned(store, "q-1", plan(share=0.3), weight=1e308)  # stored before there were ranges
    add_planned(store, "q-2", plan(share=0.3))
    for loop in (watched, loops(store, FakeDeployer(), clock)):  # also the next service
        tick(loop)
        assert phases(store, "q-1", "q-2") == [QueryPhase.WAITING, QueryPhase.SERVING]
        message = store.query("q-1").message
        assert "set aside, so that others are served: query q-1.weight must be from" in message
    add_planned(store, "q-3", plan(share=0.3), weight=1e-300)
    add_planned(store, "q-4", plan(share=0.3))
    tick(watched)
    assert phases(store, "q-3", "q-4") == [QueryPhase.WAITING, QueryPhase.SERVING]
    assert watched.in_force.read()[1].schedule.aside == ("q-1", "q-3")
    undeploy(store, "q-1", clock=clock)
    tick(watched)
    assert watched.in_force.read()[1].schedule.aside == ("q-3",)


def test_a_query_is_retired_after_its_duration_however_the_system_clock_is_set(
    store: Store,
) -> None:
    clock = AdjustedClock(1000.0)
    watched = loops(store, FakeDeployer(), clock)
    add_planned(store, "q-1", plan(), duration_s=60.0)
    tick(watched)
    tick(watched)
    assert phases(store, "q-1") == [QueryPhase.SERVING]
    clock.ahead_s = 3600.0
    clock.seconds += 1
    tick(watched)
    assert phases(store, "q-1") == [QueryPhase.SERVING]
    clock.seconds += 60
    tick(watched)
    assert phases(store, "q-1") == [QueryPhase.RETIRED]
