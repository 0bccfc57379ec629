"""What one of a deployment unit runs is a plan on a tier of its own, with a number of workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from circinus.deploy.routes.workloads import UnitWorkload
from circinus.deploy.runtime.instances import instances_of
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.routing.units import DeploymentUnit
from tests.deploy.serving import reference, tiny

UNIT = DeploymentUnit(
    name="cheap",
    model="tiny",
    hardware="here",
    framework="python",
    price_usd_per_hour=0.5,
    most_per_s=20,
    latency_s=0.1,
)
ARITHMETIC = UnitWorkload(
    unit=UNIT,
    pipeline_reference=reference("arithmetic"),
    knobs={"add": {"amount": 10}},
    share=0.25,
)


def test_a_knob_that_the_pipeline_has_not_is_refused() -> None:
    wrong = replace(ARITHMETIC, knobs={"add": {"sum": 2}})
    with pytest.raises(InvalidInput, match="operator add, knob must be among amount, got 'sum'"):
        wrong.plan(tiny("arithmetic").graph)


@pytest.mark.parametrize("name", ["share", "speed"])
def test_a_part_of_a_machine_is_one(name: str) -> None:
    with pytest.raises(InvalidInput, match=rf"unit cheap.{name} must be in \(0, 1\]"):
        UnitWorkload(unit=UNIT, pipeline_reference="any", **{name: 1.5})  # type: ignore[arg-type]  # a name of two


def test_as_many_workers_as_are_wanted_run_all_operators_each_on_the_unit_s_share() -> None:
    graph = tiny("arithmetic").graph
    desired = ARITHMETIC.desired(graph, 3)

    specs = instances_of("r", desired, graph, ARITHMETIC.infrastructure).values()

    assert [spec.key.replica for spec in specs] == [0, 1, 2]
    assert {spec.share for spec in specs} == {0.25}
    assert {spec.names for spec in specs} == {tuple(o.name for o in graph.operators)}
    assert {spec.configuration.of("add")["amount"] for spec in specs} == {10}


def test_another_number_is_no_other_plan_and_another_configuration_is() -> None:
    graph = tiny("arithmetic").graph
    other = replace(ARITHMETIC, knobs={"add": {"amount": 1}})
    assert ARITHMETIC.desired(graph, 1).plan.id == ARITHMETIC.desired(graph, 4).plan.id
    assert other.plan(graph).id != ARITHMETIC.plan(graph).id


def test_its_price_is_that_of_what_one_gets() -> None:
    (tier,) = ARITHMETIC.infrastructure.tiers
    assert tier.price_usd_per_hour * ARITHMETIC.share == pytest.approx(UNIT.price_usd_per_hour)
