"""Replicas follow the rate of requests while there is room, and make way for queries."""

from __future__ import annotations

import asyncio

import pytest

from circinus.api.control.service import Service
from circinus.api.http.routes.service import RenderedSchedule
from circinus.api.store.store import Store
from circinus.deploy.runtime.instances import ExtraReplica
from circinus.pipelines.clock import ManualClock
from circinus.scheduler.problem import Slice
from tests.api.fakes import FakeDeployer, add_planned, plan
from tests.api.loops import Loops, loops

RATED = {"request_rate_per_s": 4.0}


@pytest.fixture
def watched(store: Store, deployer: FakeDeployer, clock: ManualClock) -> Loops:
    return loops(store, deployer, clock)


def run(watched: Loops, clock: ManualClock, seconds: int) -> None:
    """Tick once a second."""
    for _ in range(seconds):
        asyncio.run(watched.tick())
        clock.sleep(1.0)


def extras(deployer: FakeDeployer, query: str = "q-1") -> int:
    found = deployer.desired[query].extras
    assert set(found) <= {ExtraReplica("cloud")}
    return len(found)


def test_batch_work_has_no_extras(
    store: Store, deployer: FakeDeployer, watched: Loops, clock: ManualClock
) -> None:
    add_planned(store, "q-1", plan(share=0.2), slo={"accuracy": 0.5, "throughput_per_s": 1.0})
    deployer.report("q-1", arrivals_per_s=100.0)
    run(watched, clock, 20)
    assert extras(deployer) == 0
    assert deployer.applied == 1


def test_a_query_without_a_rate_gets_extras_beyond_what_its_plan_bears(
    store: Store, deployer: FakeDeployer, watched: Loops, clock: ManualClock
) -> None:
    add_planned(store, "q-1", plan(share=0.2))  # 0.2 s a request: 3.5/s at 70 %
    deployer.report("q-1", arrivals_per_s=4.3)
    run(watched, clock, 20)
    assert extras(deployer) == 0
    deployer.report("q-1", arrivals_per_s=5.0)  # it is always at work
    run(watched, clock, 5)
    assert extras(deployer) == 1


def test_replicas_that_were_asked_for_follow_no_rate(
    store: Store, deployer: FakeDeployer, watched: Loops, clock: ManualClock
) -> None:
    add_planned(store, "q-1", plan(share=0.2), **RATED)
    deployer.report("q-1", arrivals_per_s=32.0)
    run(watched, clock, 1)
    store.set_replicas("q-1", 2)
    run(watched, clock, 20)
    assert extras(deployer) == 1
    store.set_replicas("q-1", 4)
    run(watched, clock, 1)
    assert extras(deployer) == 3
    store.set_replicas("q-1", 1)
    run(watched, clock, 1)
    assert extras(deployer) == 0
    store.set_replicas("q-1", None)
    run(watched, clock, 5)
    assert extras(deployer) == 4  # eight times are wanted, a machine has room for five


def test_no_more_replicas_are_had_than_there_is_room_for(
    store: Store, deployer: FakeDeployer, watched: Loops, clock: ManualClock
) -> None:
    add_planned(store, "q-1", plan(share=0.4))
    run(watched, clock, 1)
    store.set_replicas("q-1", 1000)
    run(watched, clock, 1)
    assert extras(deployer) == 1


def test_an_objective_on_cost_keeps_extras_away(
    store: Store, deployer: FakeDeployer, watched: Loops, clock: ManualClock
) -> None:
    slo = {"accuracy": 0.5, "latency_s": 1.0, "cost_usd_per_hour": 0.55}
    add_planned(store, "q-1", plan(share=0.5), slo=slo, **RATED)
    deployer.report("q-1", arrivals_per_s=8.0)
    run(watched, clock, 20)
    assert extras(deployer) == 0


def test_a_rate_that_doubles_is_followed_and_given_up_again_a_minute_after(
    store: Store, deployer: FakeDeployer, watched: Loops, clock: ManualClock
) -> None:
    add_planned(store, "q-1", plan(share=0.2), **RATED)
    deployer.report("q-1", arrivals_per_s=4.0)
    run(watched, clock, 20)
    assert extras(deployer) == 0
    deployer.report("q-1", arrivals_per_s=8.0)
    run(watched, clock, 5)
    assert extras(deployer) == 1
    in_force = watched.in_force.read()[1]
    assert in_force.extras == {"q-1": (Slice("cloud", 0, 0.2),)}
    shown = RenderedSchedule(Service(watched.rescheduler.parts, deployer))
    assert b'"extras":[{"tier":"cloud","machine":0,"share":0.2' in shown.read()[2]
    deployer.report("q-1", arrivals_per_s=4.0)
    run(watched, clock, 59)
    assert extras(deployer) == 1
    run(watched, clock, 2)
    assert extras(deployer) == 0
    assert watched.in_force.read()[1].extras == {}


def test_a_query_that_needs_the_room_gets_it_from_extras(
    store: Store, deployer: FakeDeployer, watched: Loops, clock: ManualClock
) -> None:
    add_planned(store, "q-1", plan(share=0.4), **RATED)
    deployer.report("q-1", arrivals_per_s=20.0)
    run(watched, clock, 5)
    assert extras(deployer) == 1  # four are wanted, a machine has room for two
    add_planned(store, "q-2", plan(share=0.5))
    run(watched, clock, 1)
    assert extras(deployer) == 0
    assert set(deployer.desired) == {"q-1", "q-2"}
    assert store.schedules.displaced(limit=9) == ()


def test_the_next_service_begins_without_extras(
    store: Store, deployer: FakeDeployer, watched: Loops, clock: ManualClock
) -> None:
    add_planned(store, "q-1", plan(share=0.2), **RATED)
    deployer.report("q-1", arrivals_per_s=8.0)
    run(watched, clock, 5)
    fresh = FakeDeployer()
    run(loops(store, fresh, clock), clock, 1)
    assert extras(fresh) == 0
