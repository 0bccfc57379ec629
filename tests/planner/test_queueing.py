"""Latencies predicted for a request rate beside a simulation of the plan's queues.

Two tiers in a row: requests of a Poisson process wait for a copy of the first tier's group, are
moved, and wait for one of the second's. The simulator is the one that dispatch rules are judged
with; service times are those measured, drawn anew for every request.
"""

from __future__ import annotations

import numpy as np
import pytest

from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.latency import Work, busy_seconds, deployment_arrays
from circinus.pipelines.model.operators import OperatorSpec
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import Query
from circinus.pipelines.model.slo import LatencyStatistic, Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.plans import feasible_plans
from circinus.planner.strategy.protocol import SearchSetting
from circinus.scheduler.dispatch.baselines import FcfsDispatch
from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policy import Fleet
from circinus.scheduler.simulation.engine import Scenario, simulate
from tests.oracles.measured import measured_of

REQUESTS = 20_000
BYTES = 1000.0
GRAPH = PipelineGraph(
    name="two", operators=(OperatorSpec(name="a"), OperatorSpec(name="b", after=("a",)))
)
TIERS = Infrastructure(
    name="two",
    tiers=(
        Tier(name="edge", machines=8, price_usd_per_hour=1.0, speed_factor=0.5),
        Tier(name="cloud", machines=8, price_usd_per_hour=3.0),
    ),
    links=(Link(between=("edge", "cloud"), bandwidth_bytes_per_s=1e6, delay_s=0.005),),
)


def _work() -> Work:
    rng = np.random.default_rng(3)
    return Work(
        operator_s=0.05 * rng.lognormal(0.0, 0.4, (2, 400)),
        output_bytes=np.full((2, 400), BYTES),
        input_bytes=np.full(400, BYTES),
    )


def _plans(statistic: LatencyStatistic, rate: float) -> tuple[Plan, ...]:
    slo = Slo(accuracy=0.5, latency_s=1.0, latency_statistic=statistic)
    query = Query(pipeline="two", slo=slo, request_rate_per_s=rate)
    setting = SearchSetting.of(query, GRAPH, TIERS, 400)
    return feasible_plans(setting, measured_of(GRAPH, _work()), most=50)


def _served(
    arrived_s: FloatArray, service_s: FloatArray, copies: int, policy: CompiledPolicy
) -> FloatArray:
    """When each request is done, in the order of arrival."""
    order = np.argsort(arrived_s, kind="stable")
    column = service_s[order, None]
    run = simulate(
        Scenario(
            arrived_s=arrived_s[order],
            size=np.ones(len(order)),
            service_s=column,
            predicted_s=column,
            qos_s=1e9,
            fleet=Fleet.alike(copies),
        ),
        policy,
    )
    done = np.empty_like(arrived_s)
    done[order] = run.finished_s
    return done


def _simulated(plan: Plan, rate: float, policy: CompiledPolicy) -> FloatArray:
    """Latencies of requests to a plan."""
    rng = np.random.default_rng(7)
    tiers, shares = deployment_arrays(GRAPH, TIERS, plan.deployment)
    busy = busy_seconds(GRAPH, TIERS, _work(), tiers, shares)[0]  # (O, n)
    drawn = busy[:, rng.integers(busy.shape[1], size=REQUESTS)]
    arrived = np.cumsum(rng.exponential(1 / rate, REQUESTS))
    place = plan.deployment.placement
    now, here = arrived, TIERS.origin or ""
    groups = [["a", "b"]] if place["a"] == place["b"] else [["a"], ["b"]]
    for group in groups:
        tier = place[group[0]]
        route = TIERS.route(here, tier)
        now = now + route.delay_s + route.s_per_byte * BYTES
        rows = [GRAPH.position(name) for name in group]
        now = _served(now, drawn[rows].sum(axis=0), plan.deployment.replicas[group[0]], policy)
        here = tier
    return now - arrived


@pytest.mark.parametrize("rate", [3.0, 20.0])
@pytest.mark.parametrize("policy", [FcfsDispatch(), PlanAhead()], ids=repr)
@pytest.mark.parametrize("statistic", [LatencyStatistic.MEAN, LatencyStatistic.P95])
def test_the_predicted_latency_at_a_rate_is_on_the_safe_side_and_near(
    statistic: LatencyStatistic, policy: CompiledPolicy, rate: float
) -> None:
    plans = _plans(statistic, rate)
    used = {plan.deployment.tiers for plan in plans}
    assert plans
    for plan in plans[:6]:
        seen = float(statistic.of(_simulated(plan, rate, policy)[None])[0])
        # Exponential service is assumed where it varies less, and percentiles are added up.
        # 20,000 requests: the simulated figure itself is within 3 % (six runs in a thousand not).
        assert seen <= plan.latency_s.value * 1.03, (plan.deployment, used)
        assert plan.latency_s.value <= 2.5 * seen, (plan.deployment, used)
