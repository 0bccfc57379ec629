"""What runs follows what is planned, retired, over and failed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from circinus.api.phases import QueryPhase
from circinus.api.store.store import Store
from circinus.api.use_cases.queries import undeploy
from circinus.pipelines.clock import ManualClock
from tests.api.fakes import FakeDeployer, add_planned, plan
from tests.api.loops import loops


def test_a_deployment_that_fails_is_a_message_and_tried_again(store: Store) -> None:
    clock, deployer = ManualClock(), FakeDeployer(broken={plan().id})
    watched = loops(store, deployer, clock)
    add_planned(store, "q-1", plan())
    asyncio.run(watched.tick())
    record = store.query("q-1")
    assert record.phase is QueryPhase.DEPLOYING
    assert "failed and is tried again: no such program" in record.message
    asyncio.run(watched.tick())
    assert deployer.applied == 1  # not before its time
    deployer.broken.clear()
    clock.sleep(1.0)
    asyncio.run(watched.tick())
    assert (deployer.applied, store.query("q-1").phase) == (2, QueryPhase.SERVING)
    clock.sleep(100.0)
    asyncio.run(watched.tick())
    assert deployer.applied == 2


def test_a_pipeline_that_is_no_longer_offered_holds_up_no_other_query(store: Store) -> None:
    clock, deployer = ManualClock(), FakeDeployer()
    watched = loops(store, deployer, clock)
    gone = replace(plan(share=0.2), pipeline="gone")
    add_planned(store, "q-1", gone)
    add_planned(store, "q-2", plan(share=0.2))
    asyncio.run(watched.tick())
    assert set(deployer.desired) == {"q-2"}
    assert store.query("q-2").phase is QueryPhase.SERVING
    record = store.query("q-1")
    assert record.phase is QueryPhase.DEPLOYING
    assert "is tried again: pipeline must be registered (add, bare), got 'gone'" in record.message


def test_a_query_without_room_waits_with_a_reason_until_another_retires(store: Store) -> None:
    clock, deployer = ManualClock(), FakeDeployer()
    watched = loops(store, deployer, clock)
    for query_id in ("q-1", "q-2"):  # 0.6 + 0.6 of one machine
        add_planned(store, query_id, plan(share=0.6))
    asyncio.run(watched.tick())
    phases = {i: store.query(i).phase for i in ("q-1", "q-2")}
    assert sorted(phases.values()) == [QueryPhase.SERVING, QueryPhase.WAITING]
    waiting = next(i for i, phase in phases.items() if phase is QueryPhase.WAITING)
    assert "cloud" in store.query(waiting).message
    serving = next(i for i, phase in phases.items() if phase is QueryPhase.SERVING)
    undeploy(store, serving, clock=clock)
    asyncio.run(watched.tick())
    assert store.query(waiting).phase is QueryPhase.SERVING
    assert set(deployer.desired) == {waiting}


def test_a_query_is_retired_when_its_duration_is_over(store: Store) -> None:
    clock, deployer = ManualClock(), FakeDeployer()
    watched = loops(store, deployer, clock)
    add_planned(store, "q-1", plan(), duration_s=10.0)
    asyncio.run(watched.tick())
    clock.sleep(9.9)
    asyncio.run(watched.tick())
    assert store.query("q-1").phase is QueryPhase.SERVING
    clock.sleep(0.1)
    asyncio.run(watched.tick())
    assert store.query("q-1").phase is QueryPhase.RETIRED
    assert deployer.desired == {}


def test_a_new_start_deploys_what_was_scheduled(store: Store) -> None:
    clock, first, second = ManualClock(), FakeDeployer(), FakeDeployer()
    add_planned(store, "q-1", plan(share=0.5), plan(share=0.75))
    asyncio.run(loops(store, first, clock).tick())
    asyncio.run(loops(store, second, clock).tick())
    assert second.desired["q-1"].plan == first.desired["q-1"].plan
    phases = [change.phase for change in store.query("q-1").history[-3:]]
    assert phases == [QueryPhase.SERVING, QueryPhase.DEPLOYING, QueryPhase.SERVING]


def test_nothing_to_do_is_nothing_done(store: Store) -> None:
    deployer = FakeDeployer()
    watched = loops(store, deployer, ManualClock())
    for _ in range(3):
        asyncio.run(watched.tick())
    assert deployer.applied == 1  # the first look, which also ends what is left over


def test_who_is_evicted_while_others_start_waits_though_it_was_being_marked(
    store: Store,
) -> None:
    clock, deployer = ManualClock(), FakeDeployer()
    watched = loops(store, deployer, clock)
    add_planned(store, "q-1", plan())
    asyncio.run(watched.rescheduler.tick())
    older = watched.rescheduler.target
    watched.capacity.set_machines({"cloud": 0})
    asyncio.run(watched.rescheduler.tick())
    assert store.query("q-1").phase is QueryPhase.WAITING
    newer, watched.rescheduler.target = watched.rescheduler.target, older
    asyncio.run(watched.reconciler.tick())  # it had not looked up yet
    watched.rescheduler.target = newer
    asyncio.run(watched.reconciler.tick())
    assert store.query("q-1").phase is QueryPhase.WAITING
    assert deployer.desired == {}
