from __future__ import annotations

from math import exp, factorial, log

import numpy as np
import pytest

from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.latency import Work, busy_seconds, deployment_arrays
from circinus.pipelines.model.operators import OperatorSpec
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import PlanningContext, Query, fitted
from circinus.pipelines.model.slo import LatencyStatistic, Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.deployment.placement import placements
from circinus.planner.deployment.prediction import (
    copies,
    effective_latencies,
    effective_latency,
    mean_wait_s,
    meets,
    predict,
    quantile_wait_s,
    waiting_probability,
)
from circinus.planner.models.latency_tail import LatencyTail, lineage_cells
from circinus.planner.models.operator_seconds import Seconds, SecondsModel
from circinus.planner.search.plans import feasible_plans
from circinus.planner.strategy.protocol import SearchSetting
from circinus.planner.strategy.space import indices_of
from circinus.scheduler.dispatch.baselines import FcfsDispatch
from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policy import Fleet
from circinus.scheduler.simulation.engine import Scenario, simulate
from tests.oracles.measured import measured_of
from tests.oracles.synthetic import chain

GRAPH = chain(0, 0, 0)
TIERS: Infrastructure = PRESETS["three-tier"]


@pytest.mark.parametrize(
    ("rate", "throughput"), [(None, None), (0.5, None), (8.0, None), (None, 3.0)]
)
def test_effective_latencies_are_those_of_predictions_and_say_what_meets_the_slo(
    rate: float | None, throughput: float | None
) -> None:
    slo = Slo(accuracy=0.5, latency_s=0.4, throughput_per_s=throughput)
    query = Query(pipeline=GRAPH.name, slo=slo, request_rate_per_s=rate)
    context, rng = (
        PlanningContext(graph=GRAPH, infrastructure=TIERS, query=query),
        np.random.default_rng(0),
    )
    every = placements(GRAPH, TIERS)
    spots = every.take(np.repeat(np.arange(len(every)), 20))
    steps = np.minimum(rng.integers(1, 21, spots.full_steps.shape), spots.full_steps)
    work = Work(
        operator_s=rng.uniform(0.01, 0.1, (3, 5)),
        output_bytes=rng.uniform(0, 1e4, (3, 5)),
        input_bytes=rng.uniform(0, 1e4, 5),
    )
    found = effective_latencies(context, spots, work, steps)
    prediction = predict(context, spots, work, steps)
    assert found.tolist() == effective_latency(context, prediction).tolist()
    fast = found <= slo.latency_s
    assert fast.tolist() == meets(context, prediction).tolist()
    assert fast.any()
    assert not fast.all()


def _erlang_c(servers: int, load: float) -> float:
    tail = load**servers / factorial(servers) * servers / (servers - load)
    return tail / (sum(load**k / factorial(k) for k in range(servers)) + tail)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (2, 1.2), (10, 6.9), (40, 27.0)])
def test_the_waiting_probability_is_erlangs_sum(servers: int, load: float) -> None:
    got = waiting_probability(np.array([servers]), np.array([load]))[0]
    assert got == pytest.approx(_erlang_c(servers, load), rel=1e-9)


def test_one_server_waits_as_m_m_1_does() -> None:
    # rate 5, S = 0.1: rho = 0.5, W = rho S / (1 - rho) = 0.1.
    args = (5.0, np.array([0.1]), np.array([1]))
    assert mean_wait_s(*args)[0] == pytest.approx(0.1)
    # Pr[W > t] = 0.5 exp(-5 t) = 0.1 at t = ln(5) / 5.
    wait = quantile_wait_s(*args, 0.9)[0]
    assert wait == pytest.approx(log(5) / 5)
    assert 0.5 * exp(-5 * wait) == pytest.approx(0.1)


def test_a_quantile_below_those_who_wait_is_zero() -> None:
    assert quantile_wait_s(1.0, np.array([0.1]), np.array([1]), 0.5)[0] == 0


def test_copies_keep_utilisation_within_bounds() -> None:
    service = np.array([0.0, 0.07, 0.0701, 1.0])
    assert copies(10.0, service).tolist() == [1, 1, 2, 15]


def test_idle_groups_do_not_wait() -> None:
    assert mean_wait_s(10.0, np.array([0.0]), np.array([1]))[0] == 0


ONE = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=1.0),))
_NOWHERE = np.zeros(1, dtype=np.int64)


def _context() -> PlanningContext:
    query = Query(pipeline="synthetic", slo=Slo(accuracy=0.5, latency_s=1.0))
    return PlanningContext(graph=chain(3), infrastructure=ONE, query=query)


def _work(seconds: np.ndarray) -> Work:
    n = len(seconds)
    return Work(operator_s=seconds[None, :], output_bytes=np.ones((1, n)), input_bytes=np.ones(n))


def test_a_mean_over_all_inputs_is_known() -> None:
    seconds = np.array([1.0, 2.0, 3.0, 10.0])
    spread = LatencyTail()
    spread.add(("a",), _work(seconds))
    known = spread.means(_work(seconds), population=4)
    assert known.mean[0] == pytest.approx(4.0)
    assert known.variance[0] == 0.0
    assert spread.upper_ratio(_context(), _NOWHERE, _work(seconds), 4, 2.0) == pytest.approx(1.0)


def test_steady_seconds_of_many_inputs_need_next_to_no_margin() -> None:
    rng = np.random.default_rng(0)
    spread = LatencyTail()
    for cell in range(20):
        spread.add((cell,), _work(rng.normal(1.0, 0.01, 200)))
    work = _work(rng.normal(1.0, 0.01, 200))
    ratio = spread.upper_ratio(_context(), _NOWHERE, work, 1_000, 2.0)
    assert 1.0 <= ratio < 1.1


def test_slow_inputs_met_elsewhere_are_expected_here() -> None:
    # Every other cell has met one input in ten that takes 20 times as long: means are 2.9.
    slow = np.where(np.arange(40) % 10 == 9, 20.0, 1.0)
    spread = LatencyTail()
    for cell in range(30):
        spread.add((cell,), _work(slow))
    lucky = _work(np.full(9, 1.0))
    known = spread.means(lucky, population=1_000)
    assert known.mean[0] == pytest.approx(2.9, rel=0.15)


def test_a_quiet_start_is_corrected_by_the_scout() -> None:
    # The first 16 inputs are quiet, later ones are twice as slow for everybody.
    factor = np.where(np.arange(64) < 16, 1.0, 2.0)
    spread = LatencyTail()
    spread.add(("scout",), _work(0.1 * factor))
    ratio = spread.upper_ratio(_context(), _NOWHERE, _work(np.full(16, 1.0)), 64, 0.0)
    assert ratio > 1.5  # the truth is 1.75; without the scout it would be 1.0


@pytest.mark.parametrize("spikes", [0.0, 0.05])
def test_the_upper_end_holds_as_often_as_it_says(spikes: float) -> None:
    # z = 2.05: 98 %. Of 300 populations at most 4.5 % may break it: a correct end fails this
    # with a probability below 0.2 %.
    rng = np.random.default_rng(1)
    broken = 0
    for _ in range(300):
        slow = np.where(rng.random((12, 160)) < spikes, 8.0, 1.0)
        everything = rng.lognormal(0.0, 0.3, (12, 160)) * slow
        spread = LatencyTail()
        for cell, seconds in enumerate(everything):
            spread.add((cell,), _work(seconds[: 48 if cell == 0 else 16]))
        known = everything[1, :16]
        ratio = spread.upper_ratio(_context(), _NOWHERE, _work(known), 160, 2.05)
        broken += bool(known.mean() * ratio < everything[1].mean())
    assert broken <= 13


def test_configurations_that_share_a_lineage_share_its_cell() -> None:
    from circinus.pipelines.model.configuration import ConfigurationSpace

    graph = chain(2, 2)
    space = ConfigurationSpace(graph)
    first, second, third = (
        lineage_cells(graph, space.configuration(number)) for number in (0, 1, 2)
    )
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert first[0] != third[0]


def test_beside_what_was_not_seen_the_interval_lies_about_the_mean() -> None:
    rng = np.random.default_rng(0)
    tail = LatencyTail()
    for cell in range(20):
        tail.add((cell,), _work(rng.normal(1.0, 0.3, 40)))
    work = _work(rng.normal(1.0, 0.3, 40))
    low, high = tail.interval(_context(), _NOWHERE, work, 100, 0.95)
    wider = tail.interval(_context(), _NOWHERE, work, 100, 0.99)
    assert wider[0] <= low < 1.0 < high <= wider[1]


def test_nothing_that_was_not_measured_is_slow_where_all_was() -> None:
    tail = LatencyTail()
    tail.add((0,), _work(np.ones(30)))
    assert tail.slow_chance(_work(np.ones(30)), 30) == 0.0
    assert tail.interval(_context(), _NOWHERE, _work(np.ones(30)), 30, 0.95) == (1.0, 1.0)


def test_few_quiet_runs_cannot_rule_out_slow_ones_and_many_can() -> None:
    tail, work = LatencyTail(), _work(np.ones(20))
    tail.add((0,), work)
    assert tail.slow_chance(work, 60) == 1.0  # half a slow run in 20: one in 40 is expected
    for cell in range(1, 100):
        tail.add((cell,), _work(np.ones(20)))
    assert tail.slow_chance(work, 60) == pytest.approx(0.5 * 40 / 2_000)


def test_a_configuration_that_runs_longer_meets_more_of_what_comes_by_the_second() -> None:
    tail = LatencyTail()
    for cell in range(99):
        tail.add((cell,), _work(np.ones(20)))
    long = _work(np.full(20, 10.0))
    tail.add((99,), long)
    assert tail.slow_chance(long, 60) == pytest.approx(0.5 * 400 / 2_180)


def test_slow_runs_that_were_seen_are_expected_again() -> None:
    tail, quiet = LatencyTail(), _work(np.ones(20))
    tail.add((0,), quiet)
    slow = np.ones(20)
    slow[7] = 25.0
    for cell in range(1, 100):
        tail.add((cell,), _work(slow if cell < 4 else np.ones(20)))
    assert tail.slow_chance(quiet, 60) == pytest.approx(3.5 * 40 / 2_000)


REQUESTS = 20_000
BYTES = 1000.0
QUEUEING_GRAPH = PipelineGraph(
    name="two", operators=(OperatorSpec(name="a"), OperatorSpec(name="b", after=("a",)))
)
QUEUEING_TIERS = Infrastructure(
    name="two",
    tiers=(
        Tier(name="edge", machines=8, price_usd_per_hour=1.0, speed_factor=0.5),
        Tier(name="cloud", machines=8, price_usd_per_hour=3.0),
    ),
    links=(Link(between=("edge", "cloud"), bandwidth_bytes_per_s=1e6, delay_s=0.005),),
)


def _queueing_work() -> Work:
    rng = np.random.default_rng(3)
    return Work(
        operator_s=0.05 * rng.lognormal(0.0, 0.4, (2, 400)),
        output_bytes=np.full((2, 400), BYTES),
        input_bytes=np.full(400, BYTES),
    )


def _plans(statistic: LatencyStatistic, rate: float) -> tuple[Plan, ...]:
    slo = Slo(accuracy=0.5, latency_s=1.0, latency_statistic=statistic)
    query = Query(pipeline="two", slo=slo, request_rate_per_s=rate)
    setting = SearchSetting.of(query, QUEUEING_GRAPH, QUEUEING_TIERS, 400)
    return feasible_plans(setting, measured_of(QUEUEING_GRAPH, _queueing_work()), most=50)


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
    tiers, shares = deployment_arrays(QUEUEING_GRAPH, QUEUEING_TIERS, plan.deployment)
    busy = busy_seconds(QUEUEING_GRAPH, QUEUEING_TIERS, _queueing_work(), tiers, shares)[
        0
    ]  # (O, n)
    drawn = busy[:, rng.integers(busy.shape[1], size=REQUESTS)]
    arrived = np.cumsum(rng.exponential(1 / rate, REQUESTS))
    place = plan.deployment.placement
    now, here = arrived, QUEUEING_TIERS.origin or ""
    groups = [["a", "b"]] if place["a"] == place["b"] else [["a"], ["b"]]
    for group in groups:
        tier = place[group[0]]
        route = QUEUEING_TIERS.route(here, tier)
        now = now + route.delay_s + route.s_per_byte * BYTES
        rows = [QUEUEING_GRAPH.position(name) for name in group]
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


def _seconds() -> Seconds:
    rng = np.random.default_rng(0)
    return Seconds(
        hoped_s=rng.random((3, 6)).T,
        log_latency=rng.random(6),
        log_variance=np.array([0.0, 0.01, 0.1, 0.3, 0.5, 0.2]),
        paid=rng.integers(0, 9, (6, 3)),
        share_cost=np.array([1.0, 2.0, 2.5, 1.5, 4.0, np.inf]),
    )


def test_what_a_cheaper_plan_saves_is_its_mean_over_a_log_normal_cost() -> None:
    seconds, rng = _seconds(), np.random.default_rng(1)
    finite = seconds.at(np.arange(5))
    normal = rng.standard_normal((200_000, 1))
    deviation, half = np.sqrt(finite.log_variance), finite.log_variance / 2
    cost = finite.share_cost * np.exp(deviation * normal - half)
    expected = np.maximum(2.0 - cost, 0.0).mean(axis=0)
    assert finite.expected_saving(2.0) == pytest.approx(expected, abs=0.01)
    assert seconds.expected_saving(2.0)[5] == 0.0


def test_some_configurations_keep_what_is_known_of_them() -> None:
    seconds, rows = _seconds(), np.array([4, 1, 1])
    some = seconds.at(rows)
    for name in ("hoped_s", "log_latency", "log_variance", "paid", "share_cost"):
        assert getattr(some, name).tolist() == getattr(seconds, name)[rows].tolist()


def test_what_is_under_way_will_have_paid_for_all_that_share_its_first_operators() -> None:
    graph = chain(2, 3)
    space = ConfigurationSpace(graph)
    one = Infrastructure(name="one", tiers=(Tier(name="t"),))
    query = Query(pipeline=graph.name, slo=Slo(accuracy=0.5, latency_s=1.0))
    context = fitted(query, graph, one)
    knobs = indices_of(space, list(range(space.size)))
    model = SecondsModel(context, placements(graph, one), knobs, 10)
    row = space.number(space.parse({"o0": {"k": 1}, "o1": {"k": 2}}))
    before = np.full((space.size, 2), 3)
    before[row] = 0
    paid = model.paid_once(before, row, 4)
    assert paid.tolist() == [[3, 3], [3, 3], [3, 3], [4, 3], [4, 3], [4, 4]]
    assert before[row].tolist() == [0, 0]
