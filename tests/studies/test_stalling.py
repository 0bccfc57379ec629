from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.trace import Trace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import Knob, OperatorSpec
from circinus.studies.trace.stalling import Stalls, stalled

# Source `a` with two settings, then `b` with two: configurations 0 and 1 share the runs of `a`,
# 2 and 3 do.
GRAPH = PipelineGraph(
    name="two",
    operators=(
        OperatorSpec(name="a", knobs=(Knob(name="x", values=(1, 2)),)),
        OperatorSpec(name="b", after=("a",), knobs=(Knob(name="y", values=(1, 2)),)),
    ),
)
INPUTS = 20_000


def trace(inputs: int = INPUTS) -> Trace:
    return Trace(
        graph=GRAPH,
        configurations=np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.int16),
        score=np.full((4, inputs), 0.5, np.float32),
        latency_s=np.full((4, 2, inputs), 0.02, np.float32),
        output_bytes=np.ones((4, 2, inputs), np.float32),
        input_bytes=np.ones(inputs, np.float32),
        features=np.zeros((inputs, 1), np.float32),
    )


@pytest.mark.parametrize("field", ["every_s", "stall_s"])
def test_stalls_without_a_positive_time_are_refused(field: str) -> None:
    with pytest.raises(InvalidInput, match=f"{field} must be .*> 0, got 0"):
        replace(Stalls(), **{field: 0})


def test_a_failed_run_stays_without_seconds() -> None:
    before = trace(inputs=10)
    before.latency_s[0, :, 3] = before.score[0, 3] = np.nan  # configuration 1 shares a run of `a`
    after = stalled(before, Stalls())
    assert np.isnan(after.latency_s[0, :, 3]).all()
    assert np.isnan(after.latency_s).sum() == 2


def test_what_configurations_share_stalls_once_for_all_of_them() -> None:
    after = stalled(trace(), Stalls())  # a Trace checks it, too
    np.testing.assert_array_equal(after.latency_s[0, 0], after.latency_s[1, 0])
    assert (after.latency_s[0, 0] != after.latency_s[2, 0]).any()
    assert (after.latency_s[0, 1] != after.latency_s[1, 1]).any()


def test_stalls_come_as_often_and_take_as_long_as_said() -> None:
    # A run of 0.02 s meets at least one stall with 1 - exp(-0.02 / 0.25) = 7.69 %, and takes
    # 0.02 (1 + 0.1 / 0.25) = 0.028 s on average. 120,000 runs: standard errors of 0.08 % and
    # 0.12 ms (the deviation is sqrt(2 * 0.08) * 0.1 = 0.04 s); four of them allow for 1 in 15,000.
    after = stalled(trace(), Stalls(every_s=0.25, stall_s=0.1, seed=3))
    runs = after.latency_s[[0, 2, 0, 1, 2, 3], [0, 0, 1, 1, 1, 1]]
    assert float((runs > 0.0201).mean()) == pytest.approx(0.0769, abs=0.0032)
    assert float(runs.mean()) == pytest.approx(0.028, abs=0.00048)


def test_a_seed_names_the_stalls_and_scores_stay() -> None:
    one, again, other = (stalled(trace(100), Stalls(seed=seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.latency_s, again.latency_s)
    assert (one.latency_s != other.latency_s).any()
    np.testing.assert_array_equal(one.score, trace(100).score)
    assert one.graph.name == "two_stalled"
