"""A tier with types from its machines' counts to the instances that are asked for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from circinus.api.query_file import read_infrastructure
from circinus.api.schemas.schedule import PreviewBody
from circinus.api.schemas.service import infrastructure_view
from circinus.api.store.store import Store
from circinus.api.text.tiers import tiers_table
from circinus.api.use_cases.scheduling import live_problem, preview
from circinus.api.use_cases.views import schedule_view
from circinus.deploy.runtime.deployment import DeploymentPhase, DeploymentStatus
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.tiers import MachineType, Tier
from circinus.scheduler.problem import Slice
from tests.api.fakes import FakeDeployer, add_planned, plan
from tests.api.loops import Loops, loops

SMALL = MachineType(name="small", machines=1, price_usd_per_hour=0.5, speed_factor=0.5)
LARGE = MachineType(name="large", machines=1, price_usd_per_hour=2.0, speed_factor=2.0)
UNLIKE = Infrastructure(name="unlike", tiers=(Tier(name="cloud", types=(SMALL, LARGE)),))


@pytest.fixture
def watched(store: Store, deployer: FakeDeployer) -> Loops:
    return loops(store, deployer, ManualClock(1000.0), infrastructure=UNLIKE)


def tick(watched: Loops) -> None:
    asyncio.run(watched.tick())


def types(deployer: FakeDeployer) -> dict[str, tuple[str | None, ...]]:
    return {query: desired.machine_types for query, desired in deployer.desired.items()}


@pytest.mark.parametrize(
    ("machines", "rule"),
    [
        (
            {"cloud": 3},
            r"machines must name one of the tier's types \(cloud/small, cloud/large\), "
            "got 'cloud'",
        ),
        ({"cloud/tiny": 1}, r"must name shared tiers \(cloud/small, cloud/large\), got 'cloud/t"),
        ({"cloud/small": -1}, r"machines\.cloud/small must be from 0 to 100000, got -1"),
    ],
)
def test_machines_that_cannot_be_are_refused(
    watched: Loops, machines: dict[str, int], rule: str
) -> None:
    with pytest.raises(InvalidInput, match=rule):
        watched.capacity.set_machines(machines)
    assert watched.capacity.now() == UNLIKE


def test_a_preview_of_machines_that_cannot_be_is_refused(watched: Loops) -> None:
    with pytest.raises(InvalidInput, match="machines must be among cloud/small, cloud/large, got"):
        preview(watched.rescheduler.parts, PreviewBody(machines={"cloud": 1}))


def test_types_are_planned_for_as_they_are_stated_or_more(watched: Loops) -> None:
    watched.capacity.set_machines({"cloud/small": 0, "cloud/large": 3})
    now, planned = watched.capacity.now().tiers[0], watched.capacity.planned_for().tiers[0]
    assert [each.machines for each in now.types] == [0, 3]
    assert [each.machines for each in planned.types] == [1, 3]
    assert now.speed_factor == 0.5  # a small one may come back while a plan serves
    assert [(t.name, t.machines) for t in infrastructure_view(UNLIKE).tiers[0].types] == [
        ("small", 1),
        ("large", 1),
    ]


def test_the_example_is_an_infrastructure_and_its_types_are_shown() -> None:
    example = Path(__file__).parents[2] / "examples" / "infrastructure" / "unlike-machines.yaml"
    view = infrastructure_view(read_infrastructure(str(example)))
    console = Console(width=100, record=True, file=StringIO())
    console.print(tiers_table(view))
    shown = " ".join(console.export_text().split())
    assert "cloud/small 3 0.5x" in shown
    assert "cloud/large 1 1x" in shown


def test_who_sits_where_decides_what_runs_and_what_it_costs(
    store: Store, deployer: FakeDeployer, watched: Loops
) -> None:
    add_planned(store, "q-1", plan(share=1.0))
    add_planned(store, "q-2", plan(share=1.0))
    tick(watched)
    assert types(deployer) == {"q-1": ("small",), "q-2": ("large",)}
    parts = watched.rescheduler.parts
    schedule, how_good = preview(parts, PreviewBody())
    shown = schedule_view(schedule, parts.capacity.now(), how_good).assignments
    assert [(a.query_id, a.machines[0].machine_type, a.cost_usd_per_hour) for a in shown] == [
        ("q-1", "small", 0.5),
        ("q-2", "large", 2.0),
    ]


def test_machines_of_one_type_change_nothing_for_queries_on_another(
    store: Store, deployer: FakeDeployer, watched: Loops
) -> None:
    add_planned(store, "q-1", plan(share=1.0))
    add_planned(store, "q-2", plan(share=1.0))
    tick(watched)
    watched.capacity.set_machines({"cloud/small": 3})
    held = live_problem(watched.rescheduler.parts).running  # before anybody rescheduled
    assert held["q-2"].machines == (Slice("cloud", 3, 1.0),)
    tick(watched)
    assert types(deployer) == {"q-1": ("small",), "q-2": ("large",)}
    in_force = watched.in_force.read()[1]
    assert in_force.types == {"cloud": (("small", 3), ("large", 1))}
    assert in_force.machines == {"cloud/small": 3, "cloud/large": 1}
    assert in_force.schedule.by_query["q-2"].machines == (Slice("cloud", 3, 1.0),)
    assert store.schedules.displaced(limit=9) == ()
    kept, _ = preview(watched.rescheduler.parts, PreviewBody(machines={"cloud/small": 1}))
    assert kept.by_query["q-2"].machines == (Slice("cloud", 1, 1.0),)


def test_the_next_service_finds_every_query_on_the_machine_that_it_had(
    store: Store, deployer: FakeDeployer, watched: Loops
) -> None:
    add_planned(store, "q-1", plan(share=1.0))
    add_planned(store, "q-2", plan(share=1.0))
    tick(watched)
    # The next one's large machines are the cheaper ones, so their numbers come first.
    cheap = replace(LARGE, machines=2, price_usd_per_hour=0.1)
    other = Infrastructure(name="other", tiers=(Tier(name="cloud", types=(SMALL, cheap)),))
    again = loops(store, deployer, ManualClock(1001.0), infrastructure=other)
    tick(again)
    assert types(deployer) == {"q-1": ("small",), "q-2": ("large",)}
    held = again.in_force.read()[1].schedule.by_query
    assert (held["q-1"].machines[0].machine, held["q-2"].machines[0].machine) == (2, 0)


def test_a_query_whose_type_goes_moves_to_another(
    store: Store, deployer: FakeDeployer, watched: Loops
) -> None:
    add_planned(store, "q-1", plan(share=1.0))
    tick(watched)
    watched.capacity.set_machines({"cloud/small": 0})
    tick(watched)
    assert types(deployer) == {"q-1": ("large",)}
    [moved] = store.schedules.displaced(limit=9)
    assert (moved.query_id, moved.by, moved.moved) == ("q-1", None, True)


def test_instances_that_could_not_move_are_tried_again(store: Store) -> None:
    class Stuck(FakeDeployer):
        async def status(self, query_id: str) -> DeploymentStatus | None:
            plan_id = self.desired[query_id].plan.id
            phase = DeploymentPhase.SERVING
            return DeploymentStatus(phase=phase, plan_id=plan_id, reason="no room")

    clock, stuck = ManualClock(1000.0), Stuck()
    watched = loops(store, stuck, clock, infrastructure=UNLIKE)
    add_planned(store, "q-1", plan(share=1.0))
    tick(watched)
    clock.sleep(1.0)
    tick(watched)
    assert stuck.applied == 2
