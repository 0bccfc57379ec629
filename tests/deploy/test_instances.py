from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from circinus.deploy.runtime.instances import (
    ExtraReplica,
    InstanceKey,
    InstanceSpec,
    emulated_speed,
    instances_of,
)
from circinus.deploy.runtime.supervisor import instance_type
from circinus.deploy.workers.shares import Enforcement
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.plan import Deployment, Plan
from circinus.pipelines.model.tiers import MachineType, Tier
from tests.deploy.serving import LOCAL, ONE_TIER, desired, plan, serving, tiny, within

UNLIKE = Infrastructure(
    name="unlike",
    tiers=(
        Tier(
            name="cloud",
            emulated=True,
            types=(
                MachineType(name="small", speed_factor=0.25),
                MachineType(name="large", machines=2, price_usd_per_hour=1.0, speed_factor=0.5),
            ),
        ),
    ),
)


def typed(*types: str | None) -> dict[InstanceKey, InstanceSpec]:
    chosen = plan("nap", replicas={"cloud": 3})
    wanted = replace(desired("nap", chosen), machine_types=types)
    return instances_of("q", wanted, tiny("nap").graph, UNLIKE)


def test_a_type_must_be_said_for_every_item_or_none() -> None:
    with pytest.raises(InvalidInput, match="machine_types must be one for each of 3 items, got"):
        typed("small", "large")


def test_a_type_that_the_tier_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"cloud\.types must be among small, large, got 'x'"):
        typed("small", "large", "x")


def pooled(*pool: ExtraReplica, extras: tuple[ExtraReplica, ...] = ()) -> list[str]:
    """The instances of a plan with two on the cloud, and a pool there."""
    chosen = plan("nap", replicas={"cloud": 2})
    wanted = replace(desired("nap", chosen), machine_types=(None, None), pool=pool, extras=extras)
    found = instances_of("q", wanted, tiny("nap").graph, UNLIKE)
    assert {spec.share for spec in found.values()} == {1.0}
    return [str(key).split("/", 2)[2] for key in found]


def test_a_pool_on_a_tier_that_the_plan_does_not_use_is_refused() -> None:
    with pytest.raises(InvalidInput, match="pool must be among cloud, got 'edge'"):
        pooled(ExtraReplica("edge", "small"))


def test_a_pool_takes_the_place_of_what_the_plan_has_on_its_tier() -> None:
    small, large = ExtraReplica("cloud", "small"), ExtraReplica("cloud", "large")
    assert pooled(large, large, small) == ["cloud/0/large", "cloud/1/large", "cloud/0/small"]
    assert pooled(large, extras=(large,)) == ["cloud/0/large", "cloud/1/large"]
    assert pooled() == ["cloud/0", "cloud/1"]


def test_each_instance_is_as_fast_as_its_machine() -> None:
    found = typed("large", "small", "large")
    told = [(k.machine_type, k.replica, emulated_speed(s.tier)) for k, s in found.items()]
    assert told == [("large", 0, 0.5), ("small", 0, 0.25), ("large", 1, 0.5)]
    assert [str(key).split("/", 2)[2] for key in found] == [
        "cloud/0/large",
        "cloud/0/small",
        "cloud/1/large",
    ]


def test_an_extra_replica_on_a_tier_that_the_plan_does_not_use_is_refused() -> None:
    wanted = replace(desired("nap"), extras=(ExtraReplica("edge"),))
    with pytest.raises(InvalidInput, match="extras must be among cloud, got 'edge'"):
        instances_of("q", wanted, tiny("nap").graph, UNLIKE)


def test_extra_replicas_are_as_large_as_the_others_and_change_none_of_them() -> None:
    chosen = plan("nap", replicas={"cloud": 2}, shares={"cloud": 0.3})
    wanted = replace(desired("nap", chosen), machine_types=("large", "small"))
    more = replace(wanted, extras=(ExtraReplica("cloud", "large"), ExtraReplica("cloud", "large")))
    without = instances_of("q", wanted, tiny("nap").graph, UNLIKE)
    found = instances_of("q", more, tiny("nap").graph, UNLIKE)
    assert {key: found[key] for key in without} == without
    extras = [spec for key, spec in found.items() if key not in without]
    assert [(spec.key.replica, spec.machine_type, spec.share) for spec in extras] == [
        (1, "large", 0.3),
        (2, "large", 0.3),
    ]


def test_instances_without_a_machine_are_as_slow_as_the_slowest_type() -> None:
    found = typed()
    assert {emulated_speed(spec.tier) for spec in found.values()} == {0.25}
    assert {spec.machine_type for spec in found.values()} == {None}


def test_instances_of_a_type_learn_together_and_replicas_elsewhere_alone() -> None:
    told = [instance_type(spec).name for spec in typed("large", "small", "large").values()]
    assert told == ["large", "small", "large"]
    assert [instance_type(spec).name for spec in typed().values()] == [
        "replica 0",
        "replica 1",
        "replica 2",
    ]


def test_an_instance_per_tier_and_replica_has_the_demands_share() -> None:
    chosen = plan(
        "fork",
        {"left": "edge", "right": "edge", "join": "cloud"},
        shares={"edge": 0.4, "cloud": 0.5},
        replicas={"cloud": 2},
    )
    found = instances_of("q", desired("fork", chosen), tiny("fork").graph, LOCAL)
    # left and right can run at once: their slice is twice the share of one.
    assert {(k.tier, k.replica): spec.share for k, spec in found.items()} == {
        ("edge", 0): 0.8,
        ("cloud", 0): 0.5,
        ("cloud", 1): 0.5,
    }
    edge = found[InstanceKey("q", chosen.id, "edge", 0)]
    assert [operator.name for operator in edge.operators] == ["left", "right"]


def with_own_slices() -> Plan:
    """Left and join in the cloud's own slice, right in a further one with two copies."""
    chosen = plan("fork")
    deployment = Deployment(
        placement=chosen.deployment.placement,
        allocation={"left": 0.5, "right": 0.25, "join": 0.5},
        replicas={"left": 1, "right": 2, "join": 1},
        slices={"right": "cloud.2"},
    )
    demand = deployment.demand(tiny("fork").graph)
    return replace(chosen, deployment=deployment, demand=demand)


def test_an_instance_of_each_slice_has_the_share_of_that() -> None:
    wanted = desired("fork", with_own_slices())
    extras = (ExtraReplica("cloud"), ExtraReplica("cloud", slice="cloud.2"))
    found = instances_of("q", replace(wanted, extras=extras), tiny("fork").graph, ONE_TIER)
    assert {
        str(key).split("/", 2)[2]: (spec.names, spec.share) for key, spec in found.items()
    } == {
        "cloud/0": (("left", "join"), 0.5),
        "cloud/0/cloud.2": (("right",), 0.25),
        "cloud/1/cloud.2": (("right",), 0.25),
        "cloud/1": (("left", "join"), 0.5),
        "cloud/2/cloud.2": (("right",), 0.25),
    }


def test_branches_in_slices_of_their_own_are_served_side_by_side_at_their_shares(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {"q": desired("fork", with_own_slices())}) as orchestrator:
            running = orchestrator.status("q").instances
            assert [each.spec.share for each in running] == [0.5, 0.25, 0.25]
            assert {each.running.enforcement for each in running if each.running} == {
                Enforcement.DUTY_CYCLE
            }
            result = await orchestrator.request("q", 0.2, within(20.0))
            # Naps count as computing: 0.2 s take 0.4 s on a half, 0.8 s on a quarter.
            assert result.output == {"left": 0.2, "right": 0.2}
            assert result.operator_s["left"] >= 0.4
            assert result.operator_s["right"] >= 0.8
            assert result.path_operator_s < result.operator_s["left"] + result.operator_s["right"]
            assert result.tier_s["cloud"] == pytest.approx(sum(result.operator_s.values()))

    asyncio.run(scenario())
