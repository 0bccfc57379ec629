"""What dispatchers are told of plans: it reads back as it was written, or is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.api.schemas.following import (
    FollowedView,
    ReplicaView,
    ServedView,
    addresses_in,
    served_view,
    to_desired,
)
from circinus.deploy.runtime.following import ServedDeployment
from circinus.deploy.runtime.instances import DesiredDeployment, ExtraReplica
from circinus.pipelines.errors import InvalidInput
from tests.deploy.scheduled_plans import chain, plan_of

TIERS = ("device", "edge", "cloud")
REPLICAS = st.builds(
    ExtraReplica, st.sampled_from(TIERS), st.sampled_from([None, "small", "large"])
)
ADDRESSES = st.dictionaries(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))


@st.composite
def deployments(draw: st.DrawFn) -> ServedDeployment:
    length = draw(st.integers(1, 4))
    graph = chain("drawn", length)
    placement = draw(st.lists(st.sampled_from(TIERS), min_size=length, max_size=length))
    plan = plan_of(
        graph,
        placement,
        {tier: draw(st.floats(1e-6, 1.0)) for tier in TIERS},
        {tier: draw(st.integers(1, 5)) for tier in TIERS},
        draw(st.integers(0, 3**length - 1)),
    )
    types = [draw(st.sampled_from([None, "small"])) for _ in plan.demand]
    desired = DesiredDeployment(
        pipeline_reference=draw(st.text(min_size=1)),
        plan=plan,
        deadline_s=draw(st.none() | st.floats(1e-6, 1e6)),
        machine_types=tuple(types) if draw(st.booleans()) else (),
        extras=tuple(draw(st.lists(REPLICAS, max_size=3))),
        pool=tuple(draw(st.lists(REPLICAS, max_size=3))),
    )
    return ServedDeployment(desired=desired, addresses=draw(ADDRESSES))


@given(deployments())
def test_what_is_written_is_read_back(served: ServedDeployment) -> None:
    told = FollowedView(version="r-1", deployments={"q": served_view(served)}, awaited=["p"])
    read = FollowedView.model_validate_json(told.model_dump_json())
    graph = chain("drawn", len(served.desired.plan.deployment.placement))
    back = to_desired(read.deployments["q"], graph)
    assert back.goal == served.desired.goal
    assert back.plan == replace(served.desired.plan, p99_over_mean=back.plan.p99_over_mean)
    assert (back.deadline_s, back.sample) == (served.desired.deadline_s, None)
    assert addresses_in(read.deployments) == served.addresses
    assert (read.version, read.awaited) == ("r-1", ["p"])


def example() -> ServedView:
    plan = plan_of(chain("two", 2), ["edge", "cloud"], {}, {})
    desired = DesiredDeployment(pipeline_reference="two", plan=plan)
    return served_view(ServedDeployment(desired=desired, addresses={}))


def test_a_plan_that_reads_otherwise_than_it_was_written_is_refused() -> None:
    view = example()
    other = view.plan.model_copy(update={"placement": dict.fromkeys(view.plan.placement, "edge")})
    with pytest.raises(InvalidInput, match=f"plan must be plan {view.plan.id}, got 'p-"):
        to_desired(view.model_copy(update={"plan": other}), chain("two", 2))


def test_a_plan_of_another_graph_is_refused() -> None:
    with pytest.raises(InvalidInput, match="operator must be among op0, got 'op1'"):
        to_desired(example(), chain("two", 1))


def test_what_a_later_version_tells_besides_is_left_aside() -> None:
    told = example().model_dump() | {"from_tomorrow": 1}
    assert ServedView.model_validate(told) == example()
    assert ReplicaView.model_validate({"tier": "edge", "zone": "b"}) == ReplicaView(tier="edge")
