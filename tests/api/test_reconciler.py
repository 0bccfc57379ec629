"""What runs follows what is planned, retired, over and failed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from circinus.api.control.reconciler import Samples
from circinus.api.phases import QueryPhase
from circinus.api.schemas.events import EventKind
from circinus.api.store.store import Store
from circinus.api.use_cases.queries import undeploy
from circinus.deploy.runtime.deployment import DeploymentPhase, DeploymentStatus
from circinus.deploy.runtime.instances import DesiredDeployment
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.io.datasets import Dataset
from tests.api.fakes import PIPELINE, WITHOUT_DATA, FakeCatalogue, FakeDeployer, add_planned, plan
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


def told(store: Store) -> list[tuple[object, ...]]:
    """Return what was told of deployments: query, state, plan and why."""
    events = [e for e in store.events.since(0, 999) if e.kind == EventKind.DEPLOYMENT]
    return [(e.query_id, *(e.data[name] for name in ("state", "plan_id", "why"))) for e in events]


def test_what_becomes_of_a_deployment_is_told_once(store: Store) -> None:
    clock, deployer = ManualClock(), FakeDeployer(broken={plan().id})
    watched = loops(store, deployer, clock)
    add_planned(store, "q-1", plan())
    for _ in range(3):
        asyncio.run(watched.tick())
    expected: list[tuple[object, ...]] = [
        ("q-1", "starts", plan().id, None),
        ("q-1", "failed", plan().id, "no such program"),
    ]
    assert told(store) == expected
    deployer.broken.clear()
    clock.sleep(1.0)
    for _ in range(3):
        asyncio.run(watched.tick())
    expected.append(("q-1", "serves", plan().id, None))
    assert told(store) == expected
    undeploy(store, "q-1", clock=clock)
    for _ in range(3):
        asyncio.run(watched.tick())
    assert told(store) == [*expected, ("q-1", "ended", plan().id, None)]


def test_what_a_new_start_finds_serving_is_not_told_again(store: Store) -> None:
    clock, deployer = ManualClock(), FakeDeployer()
    add_planned(store, "q-1", plan(share=0.2))
    add_planned(store, "q-2", plan(share=0.2))
    asyncio.run(loops(store, deployer, clock).tick())
    before = told(store)
    undeploy(store, "q-2", clock=clock)
    asyncio.run(loops(store, deployer, clock).tick())
    assert told(store)[len(before) :] == [("q-2", "ended", plan(share=0.2).id, None)]


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
    assert "is tried again: pipeline must be registered, got 'gone'" in record.message


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


@dataclass
class _SlowDeployer(FakeDeployer):
    """One whose call lasts until it is told that the slow ones are there."""

    slow: set[str] = field(default_factory=set)  # ids of plans
    there: asyncio.Event = field(default_factory=asyncio.Event)

    async def apply(self, desired: Mapping[str, DesiredDeployment]) -> None:
        await super().apply(desired)
        if any(each.plan.id in self.slow for each in desired.values()):
            await self.there.wait()

    async def serving(self) -> dict[str, str]:
        up = await super().serving()
        return {q: p for q, p in up.items() if self.there.is_set() or p not in self.slow}

    async def status(self, query_id: str) -> DeploymentStatus | None:
        status = await super().status(query_id)
        if status is None or self.there.is_set() or status.plan_id not in self.slow:
            return status
        return replace(status, phase=DeploymentPhase.STARTING)


def test_a_slow_start_delays_no_other_deployment_nor_what_comes_later(store: Store) -> None:
    slow, broken = plan(share=0.1), plan(share=0.15)
    clock, deployer = ManualClock(), _SlowDeployer(slow={slow.id}, broken={broken.id})
    watched = loops(store, deployer, clock)
    add_planned(store, "q-1", slow)
    add_planned(store, "q-2", plan(share=0.2))

    def phases() -> list[str]:
        ids = store.ids(frozenset(QueryPhase))
        return [store.query(query_id).phase.value for query_id in ids]

    async def scenario() -> None:
        await watched.tick()
        assert phases() == ["deploying", "serving"]
        add_planned(store, "q-3", plan(share=0.25))
        await watched.tick()
        assert phases() == ["deploying", "serving", "serving"]
        add_planned(store, "q-4", broken)
        await watched.tick()
        assert "no such program" in store.query("q-4").message
        deployer.broken.clear()
        clock.sleep(1.0)
        await watched.tick()
        assert phases() == ["deploying", "serving", "serving", "serving"]
        assert store.query("q-1").message == f"starting plan {slow.id}"
        deployer.there.set()
        await asyncio.sleep(0)
        await watched.tick()
        assert phases() == ["serving"] * 4

    asyncio.run(scenario())


def test_a_pipeline_without_a_sample_is_deployed_without_and_holds_up_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def broken(count: int, seed: int) -> Dataset:
        asked.append(count)
        raise ZeroDivisionError("no examples today")

    def hanging(count: int, seed: int) -> Dataset:
        time.sleep(60.0)
        raise AssertionError("nobody waits for it")

    deployer = FakeDeployer()
    watched = loops(store, deployer, ManualClock())
    named = {
        "add": PIPELINE,
        "broken": replace(PIPELINE, examples=broken),
        "hanging": replace(PIPELINE, examples=hanging),
        "bare": WITHOUT_DATA,
    }
    reconciler = watched.reconciler
    reconciler.parts = replace(reconciler.parts, catalogue=FakeCatalogue({**named}))
    monkeypatch.setattr(reconciler, "_samples", Samples(reconciler.parts.sample, patience_s=0.2))
    for i, name in enumerate(named):
        add_planned(store, f"q-{i}", replace(plan(share=0.2), pipeline=name))

    async def scenario() -> None:
        for _ in range(2):
            await watched.tick()

    asyncio.run(scenario())
    served = {deployer.desired[f"q-{i}"].sample for i in range(4)}
    assert served == {0, None}
    assert asked == [1]
    assert {store.query(f"q-{i}").phase for i in range(4)} == {QueryPhase.SERVING}
