"""A query is served by a chosen mix of machine types: from what is asked to what is started."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from circinus.api.phases import QueryPhase
from circinus.api.schemas.events import EventKind, EventView
from circinus.api.schemas.schedule import PreviewBody
from circinus.api.store.records import Conflict, NotFound, Replan, plan_documents, to_document
from circinus.api.store.store import Store
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.queries import undeploy
from circinus.api.use_cases.query_pools import apply_pool, drop_pool
from circinus.api.use_cases.scheduling import live_problem, preview
from circinus.api.use_cases.views import pool_view
from circinus.deploy.runtime.instances import ExtraReplica
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.tiers import MachineType, Tier
from circinus.planner.search.result import PlanningSummary
from circinus.scheduler.problem import Slice, validate
from tests.api.fakes import SPEC, FakeDeployer, add_planned, plan, result, sql_store
from tests.api.loops import Loops, loops

SMALL = MachineType(name="small", machines=3, price_usd_per_hour=0.5, speed_factor=0.5)
LARGE = MachineType(name="large", machines=2, price_usd_per_hour=2.0, speed_factor=2.0)
UNLIKE = Infrastructure(
    name="unlike",
    tiers=(
        Tier(name="device", dedicated=True),
        Tier(name="edge", machines=1),
        Tier(name="cloud", types=(SMALL, LARGE)),
    ),
    links=(
        Link(between=("device", "edge"), bandwidth_bytes_per_s=1e6),
        Link(between=("edge", "cloud"), bandwidth_bytes_per_s=1e6),
    ),
)
MIX = {"cloud": {"small": 2, "large": 1}}


@pytest.fixture
def watched(store: Store, deployer: FakeDeployer) -> Loops:
    made = loops(store, deployer, ManualClock(1000.0), infrastructure=UNLIKE)
    add_planned(store, "q-1", plan(share=1.0))
    tick(made)
    return made


def tick(watched: Loops) -> None:
    asyncio.run(watched.tick())


def parts(watched: Loops) -> ServiceParts:
    return watched.rescheduler.parts


def told(store: Store, query_id: str = "q-1") -> list[str]:
    return [event.words for event in pool_events(store, query_id)]


def pool_events(store: Store, query_id: str = "q-1") -> tuple[EventView, ...]:
    return store.events.of(query_id, kinds={EventKind.POOL})


def machines(watched: Loops, query_id: str = "q-1") -> list[int]:
    served = watched.in_force.read()[1].schedule.by_query
    return sorted(s.machine for s in served[query_id].machines)


# --- What is refused, and changes nothing ----------------------------------------------


@pytest.mark.parametrize(
    ("slices", "rule"),
    [
        ({}, "pool must name at least one TIER/TYPE"),
        ({"fog": {"small": 1}}, "pool.tier must be among device, edge, cloud, got 'fog'"),
        ({"device": {"small": 1}}, "pool.tier must be shared: on a dedicated tier"),
        ({"edge": {"small": 1}}, "pool.tier must have machine types, got 'edge'"),
        ({"cloud": {"tiny": 1}}, "pool.cloud must be among small, large, got 'tiny'"),
        ({"cloud": {"small": -1}}, "pool.cloud/small must be from 0 to 1000, got -1"),
        ({"cloud": {"small": 1001}}, "pool.cloud/small must be from 0 to 1000, got 1001"),
        ({"cloud": {"small": 0}}, "pool.cloud must have at least one slice"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(
    watched: Loops, store: Store, slices: dict[str, dict[str, int]], rule: str
) -> None:
    with pytest.raises(InvalidInput, match=rule):
        apply_pool(parts(watched), "q-1", slices)
    assert store.pools() == {}


def test_only_queries_that_exist_have_pools(watched: Loops, store: Store) -> None:
    with pytest.raises(NotFound, match="query must exist"):
        apply_pool(parts(watched), "q-9", MIX)
    with pytest.raises(NotFound, match="query must exist"):
        drop_pool(parts(watched), "q-9")
    in_force = watched.in_force.read()[1]
    with pytest.raises(NotFound, match="pool must exist, got 'q-1'"):
        pool_view(store.query("q-1"), in_force, UNLIKE)


def test_a_query_that_is_not_served_gets_no_pool(watched: Loops, store: Store) -> None:
    add_planned(store, "q-2", plan(share=1.0))  # nobody looked at it yet
    with pytest.raises(Conflict, match="phase must be deploying or serving, got waiting"):
        apply_pool(parts(watched), "q-2", MIX)
    undeploy(store, "q-1", clock=parts(watched).clock)
    with pytest.raises(Conflict, match="phase must be deploying or serving, got retired"):
        apply_pool(parts(watched), "q-1", MIX)
    with pytest.raises(Conflict, match="phase must be serving to be given a pool"):
        store.set_pool("q-1", MIX, at=1.0)


def test_what_does_not_fit_says_what_is_missing_and_changes_nothing(
    watched: Loops, store: Store
) -> None:
    with pytest.raises(Conflict) as refused:
        apply_pool(parts(watched), "q-1", {"cloud": {"small": 4, "large": 3}})
    assert str(refused.value) == (
        "pool must fit: 1 of 4 slices of 1 find no room on cloud/small and "
        "1 of 3 slices of 1 find no room on cloud/large, got cloud/small=4 cloud/large=3."
    )
    tick(watched)
    assert (store.pools(), machines(watched), told(store)) == ({}, [0], [])


def test_a_plan_on_another_tier_gets_no_pool(store: Store, deployer: FakeDeployer) -> None:
    fog = Tier(name="fog", types=(MachineType(name="x"),))
    link = Link(between=("fog", "cloud"), bandwidth_bytes_per_s=1e6)
    other = Infrastructure(name="other", tiers=(*UNLIKE.tiers, fog), links=(*UNLIKE.links, link))
    watched = loops(store, deployer, ManualClock(1000.0), infrastructure=other)
    add_planned(store, "q-1", plan(share=1.0))
    tick(watched)
    with pytest.raises(Conflict, match=r"pool must fit: plan .* does not use tier fog"):
        apply_pool(parts(watched), "q-1", {"fog": {"x": 1}})


def test_a_quota_is_kept(store: Store, deployer: FakeDeployer) -> None:
    """Two fifths of five machines are two."""
    watched = loops(store, deployer, ManualClock(1000.0), {"t": 0.4}, UNLIKE)
    add_planned(store, "q-1", plan(share=1.0), tenant="t")
    tick(watched)
    with pytest.raises(Conflict, match="tenant t may hold 2 machines of cloud, and would hold 3"):
        apply_pool(parts(watched), "q-1", MIX)
    apply_pool(parts(watched), "q-1", {"cloud": {"large": 2}})


def test_the_cost_objective_is_kept(store: Store, deployer: FakeDeployer) -> None:
    """Two small ones and a large one cost 3 USD/h."""
    watched = loops(store, deployer, ManualClock(1000.0), infrastructure=UNLIKE)
    slo = {"accuracy": 0.9, "latency_s": 1.0, "cost_usd_per_hour": 2.5}
    add_planned(store, "q-1", plan(share=1.0), slo=slo)
    tick(watched)
    with pytest.raises(Conflict, match=r"it costs 3 USD/h, and the query may cost 2\.5"):
        apply_pool(parts(watched), "q-1", MIX)
    apply_pool(parts(watched), "q-1", {"cloud": {"small": 1, "large": 1}})


# --- What is placed -------------------------------------------------------------------


def test_a_pool_is_placed_started_and_told(
    watched: Loops, store: Store, deployer: FakeDeployer
) -> None:
    record = apply_pool(parts(watched), "q-1", {"cloud": {"small": 2, "large": 1}})
    assert pool_view(record, watched.in_force.read()[1], UNLIKE).state == "pending"
    tick(watched)
    assert machines(watched) == [0, 1, 3]
    desired = deployer.desired["q-1"]
    assert desired.machine_types == (None,)
    small, large = ExtraReplica("cloud", "small"), ExtraReplica("cloud", "large")
    assert desired.pool == (small, small, large)
    view = pool_view(store.query("q-1"), watched.in_force.read()[1], UNLIKE)
    assert (view.state, view.missing, view.slices) == ("placed", None, MIX)
    assert [at.machine_type for at in view.machines] == ["small", "small", "large"]
    assert view.cost_usd_per_hour == 3.0
    assert told(store) == [
        "pool of q-1 is chosen: cloud/small=2 cloud/large=1",
        "pool of q-1 is placed: cloud/small=2 cloud/large=1",
    ]
    assert store.schedules.displaced(limit=9) == ()
    tick(watched)
    apply_pool(parts(watched), "q-1", MIX)  # the same again
    assert len(told(store)) == 2


def test_counts_of_zero_say_nothing(watched: Loops, store: Store) -> None:
    apply_pool(parts(watched), "q-1", {"cloud": {"small": 0, "large": 2}})
    assert store.pools() == {"q-1": {"cloud": {"large": 2}}}


def test_without_a_pool_the_plans_own_replicas_serve_again(
    watched: Loops, store: Store, deployer: FakeDeployer
) -> None:
    apply_pool(parts(watched), "q-1", {"cloud": {"large": 2}})
    tick(watched)
    drop_pool(parts(watched), "q-1")
    tick(watched)
    assert machines(watched) == [3]  # on what it has: nothing is started anew
    assert (deployer.desired["q-1"].machine_types, deployer.desired["q-1"].pool) == (
        ("large",),
        (),
    )
    assert told(store)[-1] == "pool of q-1 is dropped: as was asked for"
    drop_pool(parts(watched), "q-1")
    assert len(told(store)) == 3


def test_a_pool_lasts_over_a_restart(
    watched: Loops, store: Store, deployer: FakeDeployer, tmp_path: Path
) -> None:
    apply_pool(parts(watched), "q-1", MIX)
    tick(watched)
    before = watched.in_force.read()[1]
    reopened = sql_store(tmp_path)
    again = loops(reopened, FakeDeployer(), ManualClock(1001.0), infrastructure=UNLIKE)
    tick(again)
    after = again.in_force.read()[1]
    assert after.schedule.by_query == before.schedule.by_query
    assert after.pools == {"q-1": MIX}
    assert len(told(reopened)) == 2
    reopened.close()


def test_a_restart_without_the_type_drops_the_pool_and_says_so(
    watched: Loops, store: Store, deployer: FakeDeployer
) -> None:
    apply_pool(parts(watched), "q-1", MIX)
    tick(watched)
    tiers = (*UNLIKE.tiers[:2], Tier(name="cloud", types=(SMALL,)))
    other = Infrastructure(name="other", tiers=tiers, links=UNLIKE.links)
    again = loops(store, deployer, ManualClock(1001.0), infrastructure=other)
    tick(again)
    assert store.pools() == {}
    assert told(store)[-1] == "pool of q-1 is dropped: tier cloud has no machine type large"
    assert deployer.desired["q-1"].machine_types == ("small",)


def test_machines_that_go_are_told_and_waited_for(
    watched: Loops, store: Store, deployer: FakeDeployer
) -> None:
    apply_pool(parts(watched), "q-1", {"cloud": {"large": 2}})
    tick(watched)
    watched.capacity.set_machines({"cloud/large": 1})
    tick(watched)
    view = pool_view(store.query("q-1"), watched.in_force.read()[1], watched.capacity.now())
    assert (view.state, view.missing) == (
        "lacking",
        "1 of 2 slices of 1 find no room on cloud/large",
    )
    assert deployer.desired["q-1"].pool == ()
    assert told(store)[-1] == (
        "pool of q-1 is lacking: 1 of 2 slices of 1 find no room on cloud/large"
    )
    watched.capacity.set_machines({"cloud/large": None})
    tick(watched)
    assert set(deployer.desired["q-1"].pool) == {ExtraReplica("cloud", "large")}
    assert told(store)[-1] == "pool of q-1 is placed: cloud/large=2"


def test_other_plans_off_the_tier_end_the_pool(watched: Loops, store: Store) -> None:
    apply_pool(parts(watched), "q-1", MIX)
    tick(watched)
    here = plan(share=0.5)
    found = replace(
        here,
        deployment=replace(here.deployment, placement={"add": "edge"}),
        demand=(DemandItem("edge", 0.5),),
        tier_service_s={"edge": 0.2},
    )
    summary = to_document(PlanningSummary.of(result(found)))
    other = Replan(
        query_id="q-1", spec=SPEC, why="a test", at=1.0, result=summary,
        plans=plan_documents([found]),
    )  # fmt: skip
    assert store.replan(other)
    tick(watched)
    assert store.pools() == {}
    assert told(store)[-1] == f"pool of q-1 is dropped: plan {found.id} does not use tier cloud"


def test_a_plan_of_several_slices_of_a_tier_gets_no_pool_there(
    watched: Loops, store: Store
) -> None:
    found = plan(share=0.5)
    deployment = replace(found.deployment, slices={"add": "cloud.2"})
    further = replace(found, deployment=deployment, tier_service_s={"cloud.2": 0.2})
    add_planned(store, "q-2", further)
    tick(watched)
    with pytest.raises(Conflict, match="several slices of tier cloud"):
        apply_pool(parts(watched), "q-2", MIX)
    assert store.pools() == {}


def test_a_retired_query_holds_no_pool(watched: Loops, store: Store) -> None:
    apply_pool(parts(watched), "q-1", MIX)
    tick(watched)
    undeploy(store, "q-1", clock=parts(watched).clock)
    add_planned(store, "q-2", plan(share=1.0))
    tick(watched)
    assert machines(watched, "q-2") == [0]
    assert watched.in_force.read()[1].pools == {}


def test_a_pool_gets_no_extra_replicas(
    watched: Loops, store: Store, deployer: FakeDeployer
) -> None:
    clock = parts(watched).clock
    assert isinstance(clock, ManualClock)
    add_planned(store, "q-2", plan(share=0.5), request_rate_per_s=1.0)
    tick(watched)
    apply_pool(parts(watched), "q-2", {"cloud": {"large": 1}})
    deployer.report("q-2", arrivals_per_s=3.0)
    for _ in range(9):
        tick(watched)
        clock.sleep(1.0)
    assert deployer.desired["q-2"].extras == ()
    drop_pool(parts(watched), "q-2")
    for _ in range(9):
        tick(watched)
        clock.sleep(1.0)
    assert len(deployer.desired["q-2"].extras) == 2


def test_nobody_takes_a_pools_place_in_a_preview(watched: Loops, store: Store) -> None:
    apply_pool(parts(watched), "q-1", {"cloud": {"small": 3, "large": 1}})
    tick(watched)
    problem = live_problem(parts(watched))
    assert validate(problem, watched.in_force.read()[1].schedule) == ()
    item = {"tier": "cloud", "share": 1.0}
    body = {
        "arriving": [
            {"id": f"n-{i}", "priority": 9, "plans": [{"id": "p", "demand": [item]}]}
            for i in range(2)
        ]
    }
    found, _ = preview(parts(watched), PreviewBody.model_validate(body))
    assert found.by_query["q-1"].machines == tuple(Slice("cloud", m, 1.0) for m in range(4))
    assert len(found.waiting) == 1
    # With fewer machines it is served by its plan.
    fewer, _ = preview(parts(watched), PreviewBody(machines={"cloud/small": 2}))
    assert len(fewer.by_query["q-1"].machines) == 1


def test_phases_stay_as_they_are_while_a_pool_is_changed(watched: Loops, store: Store) -> None:
    assert store.query("q-1").phase is QueryPhase.SERVING
    version = store.query("q-1").version
    apply_pool(parts(watched), "q-1", MIX)
    assert store.query("q-1").version == version + 1
    tick(watched)
    assert store.query("q-1").phase is QueryPhase.SERVING
    assert store.query("q-1").version == version + 1
