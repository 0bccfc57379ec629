"""How many requests per second the limits of endpoints let through."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from circinus.pipelines.model.endpoints import Endpoint, RateLimits, Usage
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.operators import OperatorSpec
from circinus.pipelines.model.query import PlanningContext, Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.deployment.callers import Callers, limited, limited_uses, tightest
from circinus.planner.deployment.placement import placements_of
from circinus.planner.deployment.prediction import effective_latencies, predict

GRAPH = PipelineGraph(
    name="g",
    operators=(
        OperatorSpec(name="a", calls=("small",)),
        OperatorSpec(name="b", after=("a",), calls=("small", "large")),
        OperatorSpec(name="c", after=("b",)),
    ),
)
CALLED = (frozenset({"small"}), frozenset({"small", "large"}), frozenset[str]())


def context(
    limits: RateLimits, rate: float | None = None, throughput: float | None = None
) -> PlanningContext:
    where = Infrastructure(
        name="two",
        tiers=(
            Tier(name="edge"),
            Tier(
                name="hosted",
                endpoints=(Endpoint(name="small", limits=limits), Endpoint(name="large")),
            ),
        ),
        links=(Link(between=("edge", "hosted"), bandwidth_bytes_per_s=1e9),),
    )
    slo = Slo(accuracy=0.5, latency_s=100.0, throughput_per_s=throughput)
    query = Query(pipeline="g", slo=slo, request_rate_per_s=rate)
    return PlanningContext(graph=GRAPH, infrastructure=where, query=query)


def work() -> Work:
    """Means over two inputs: a takes 1 s, 1 call, 300 tokens; b takes 2 s, 3 calls, 600 tokens."""
    used = np.zeros((3, len(Usage._fields), 2))
    used[0, :, 0], used[0, :, 1] = Usage(1, 100, 0, 100, 0.01), Usage(1, 300, 100, 100, 0.03)
    used[1, :, 0], used[1, :, 1] = Usage(2, 300, 0, 100, 0.01), Usage(4, 700, 0, 100, 0.01)
    return Work(
        operator_s=np.array([[0.5, 1.5], [1.0, 3.0], [0.01, 0.01]]),
        output_bytes=np.zeros((3, 2)),
        input_bytes=np.zeros(2),
        used=used,
    )


def test_without_limits_or_calls_nothing_bounds_a_plan() -> None:
    free = context(RateLimits(), rate=1e6)
    assert limited_uses(free, CALLED, work()) == ()
    assert tightest(free, CALLED, work()) is None
    bound = context(RateLimits(concurrent=1), rate=1e6)
    assert limited_uses(bound, None, work()) == ()
    assert limited_uses(bound, (frozenset(), frozenset(), frozenset()), work()) == ()
    assert limited(bound, None, work(), 0.7) == 0.0


@pytest.mark.parametrize(
    ("limits", "most_per_s"),
    [
        (RateLimits(requests_per_minute=120), 0.5),  # 4 calls a request: 240 at one per second
        (RateLimits(tokens_per_minute=5400), 0.1),  # 900 tokens: 54,000
        (RateLimits(concurrent=6), 2.0),  # 3 s
        (RateLimits(requests_per_minute=120, tokens_per_minute=5400, concurrent=6), 0.1),
    ],
)
def test_all_that_operators_use_of_an_endpoint_counts(
    limits: RateLimits, most_per_s: float
) -> None:
    use = tightest(context(limits, rate=1.0), CALLED, work())
    assert use is not None
    assert use.endpoint == "small"
    assert use.most_per_s == pytest.approx(most_per_s)


@pytest.mark.parametrize(
    ("limits", "most_per_s"),
    [
        (RateLimits(requests_per_minute=120), 0.5),
        (RateLimits(tokens_per_minute=5400), 0.1),
        (RateLimits(concurrent=6), 2.0),
    ],
)
def test_a_plan_fits_up_to_seven_tenths_of_a_limit(limits: RateLimits, most_per_s: float) -> None:
    for part, fits in ((0.7, True), (0.7001, False)):
        there = context(limits, rate=part * most_per_s)
        callers = Callers.of(GRAPH, there.infrastructure, there.query.restrictions)
        spots = placements_of(callers, GRAPH, there.infrastructure).where(callers, CALLED)
        found = predict(there, spots, work(), spots.full_steps)
        assert bool(found.fits.all()) == fits
        late = effective_latencies(there, spots, work(), spots.full_steps) > there.slo.latency_s
        assert bool(late.all()) == (not fits)
        # No copies, no waiting and no busy machine there: 1 + 2 + 0.01 s in all.
        assert found.replicas[:, 1].tolist() == [0]
        assert found.tier_wait_s[:, 1].tolist() == [0.0]
        assert found.service_s[:, 1].tolist() == [0.0]


def test_batch_work_may_use_all_of_a_limit() -> None:
    for rate, fits in ((0.5, True), (0.501, False)):
        there = context(RateLimits(requests_per_minute=120), throughput=rate)
        callers = Callers.of(GRAPH, there.infrastructure, there.query.restrictions)
        spots = placements_of(callers, GRAPH, there.infrastructure).where(callers, CALLED)
        assert bool(predict(there, spots, work(), spots.full_steps).fits.all()) == fits


def test_what_was_not_told_of_is_not_counted_but_its_seconds() -> None:
    silent = Work(
        operator_s=work().operator_s, output_bytes=np.zeros((3, 2)), input_bytes=np.zeros(2)
    )
    limits = RateLimits(requests_per_minute=120, concurrent=6)
    uses = limited_uses(context(limits, rate=1.0), CALLED, silent)
    assert [use.most_per_s for use in uses] == [inf, 2.0]
