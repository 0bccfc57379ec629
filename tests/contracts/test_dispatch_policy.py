"""What every dispatch policy promises."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import InvalidInput
from scheduler.dispatch.matching import MinCostMatching
from scheduler.dispatch.policy import DispatchPolicy, FloatArray, InstanceState, WaitingRequest

POLICIES: list[DispatchPolicy] = [MinCostMatching(), MinCostMatching(xi=1.0)]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=repr)

State = tuple[list[WaitingRequest], list[InstanceState], FloatArray]


@st.composite
def states(draw: st.DrawFn) -> State:
    """Any number of requests and instances, deadlines or none, pairs that cannot be."""
    seconds = st.one_of(st.floats(0, 1e4), st.sampled_from([0.0, 1.0]))
    waiting = [
        WaitingRequest(
            id=f"r{i}",
            waited_s=draw(seconds),
            qos_s=draw(st.one_of(st.none(), st.floats(1e-6, 1e4))),
        )
        for i in range(draw(st.integers(0, 7)))
    ]
    instances = [
        InstanceState(
            id=f"i{j}",
            busy_s=draw(seconds),
            idle=draw(st.booleans()),
            coefficient=draw(st.floats(0.01, 1.0)),
        )
        for j in range(draw(st.integers(0, 7)))
    ]
    pairs = len(waiting) * len(instances)
    predicted = draw(st.lists(st.one_of(seconds, st.just(inf)), min_size=pairs, max_size=pairs))
    return waiting, instances, np.array(predicted).reshape(len(waiting), len(instances))


@every_policy
@pytest.mark.parametrize(
    ("predicted", "message"),
    [
        ([[nan]], "predicted_s must be >= 0 everywhere"),
        ([[-1e-9]], "predicted_s must be >= 0 everywhere"),
        ([[1.0, 1.0]], r"predicted_s must have shape \(1, 1\), got \(1, 2\)\."),
    ],
)
def test_predictions_that_make_no_sense_are_refused(
    policy: DispatchPolicy, predicted: list[list[float]], message: str
) -> None:
    waiting = [WaitingRequest(id="r", waited_s=0.0)]
    with pytest.raises(InvalidInput, match=message):
        policy.assign(waiting, [InstanceState(id="i")], np.array(predicted))


@every_policy
@given(state=states())
def test_only_idle_instances_start_and_nothing_is_doubled(
    policy: DispatchPolicy, state: State
) -> None:
    waiting, instances, predicted = state
    starts = policy.assign(waiting, instances, predicted)
    idle = {instance.id for instance in instances if instance.idle}
    assert {start.instance for start in starts} <= idle
    assert {start.request for start in starts} <= {request.id for request in waiting}
    assert len({start.request for start in starts}) == len(starts)
    assert len({start.instance for start in starts}) == len(starts)


@every_policy
@given(state=states())
def test_a_request_never_starts_where_it_cannot_be_served(
    policy: DispatchPolicy, state: State
) -> None:
    waiting, instances, predicted = state
    row = {request.id: i for i, request in enumerate(waiting)}
    column = {instance.id: j for j, instance in enumerate(instances)}
    for start in policy.assign(waiting, instances, predicted):
        assert np.isfinite(predicted[row[start.request], column[start.instance]])


@every_policy
@given(state=states())
def test_equal_states_get_equal_starts_and_nothing_is_changed(
    policy: DispatchPolicy, state: State
) -> None:
    waiting, instances, predicted = state
    before = predicted.copy()
    predicted.flags.writeable = False
    assert policy.assign(waiting, instances, predicted) == policy.assign(
        waiting, instances, predicted
    )
    assert np.array_equal(predicted, before)


@every_policy
@given(state=states())
def test_every_request_is_served_in_the_end(policy: DispatchPolicy, state: State) -> None:
    waiting, instances, predicted = state
    left = [i for i in range(len(waiting)) if np.isfinite(predicted[i]).any()]
    idle = [InstanceState(id=instance.id) for instance in instances]
    served: list[str] = []
    for _ in range(len(left)):  # each round at least one starts, and is done before the next
        starts = policy.assign([waiting[i] for i in left], idle, predicted[left])
        served += [start.request for start in starts]
        left = [i for i in left if waiting[i].id not in served]
    assert left == []
    assert len(served) == len(set(served))
