"""Plans of pipelines that rent some operators and call others, against trying everything."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.endpoints import RateLimits
from circinus.pipelines.model.latency import request_seconds
from circinus.pipelines.model.plan import cost_usd_per_hour
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.restrictions import Choice, Restrictions, Stays
from circinus.pipelines.model.slo import HoldsFor, LatencyStatistic, Slo, SloState
from circinus.planner.answers.explaining import explained
from circinus.planner.answers.known import Known, answer
from circinus.planner.models.ahead import MOST_EXAMPLES
from circinus.planner.search.intervals import cheaper, usd_per_request
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.search.measuring import Bench, measured_as
from circinus.planner.search.result import PlanningOutcome, PlanningResult
from circinus.planner.strategy.cmbo import Cmbo
from circinus.planner.strategy.in_order import exhaustive_search
from circinus.planner.strategy.multi_fidelity import MultiFidelity
from circinus.planner.strategy.protocol import Ending, Measured, SearchSetting, StrategyFactory
from circinus.profiler.stopping import TTest
from tests.oracles.called_problems import (
    GRAPH,
    SPACE,
    CallingEvaluator,
    cheapest_usd_per_1000,
    cheapest_usd_per_hour,
    infrastructure,
)

CERTAIN = SearchSettings(strategy=exhaustive_search, margin_confidence=None, most_plans=50)
PLENTY = PlanningLimits(profiling_s=1e6, response_s=None)


def searched(
    seed: int,
    slo: Slo,
    *,
    rate: float | None = None,
    limits: dict[str, RateLimits] | None = None,
    settings: SearchSettings = CERTAIN,
    restrictions: Restrictions | None = None,
) -> tuple[PlanningResult, CallingEvaluator]:
    where = infrastructure(np.random.default_rng(seed), limits)
    evaluator = CallingEvaluator(seed, where)
    query = Query(
        pipeline="ask",
        slo=slo,
        request_rate_per_s=rate,
        limits=PLENTY,
        seed=seed,
        restrictions=restrictions or Restrictions(),
    )
    return search(query, where, evaluator, TTest(), settings=settings), evaluator


def accurate(evaluator: CallingEvaluator, slo: Slo) -> list[int]:
    return [n for n in range(SPACE.size) if evaluator.accuracy(n) >= slo.accuracy]


def test_what_nobody_offers_is_refused_with_operator_endpoint_and_tiers() -> None:
    where = infrastructure(np.random.default_rng(0))
    tiers = tuple(t for t in where.tiers if t.name != "far")
    links = tuple(link for link in where.links if "far" not in link.between)
    lacking = replace(where, tiers=tiers, links=links)
    query = Query(pipeline="ask", slo=Slo(accuracy=0.5, latency_s=10.0))
    message = (
        r"operator read\.calls must be endpoints of one remote tier that it may be on, which are: "
        r"near \(small, judge\), got \['large'\]"
    )
    with pytest.raises(InvalidInput, match=message):
        search(query, lacking, CallingEvaluator(0, lacking), TTest())


@pytest.mark.parametrize(
    ("restrictions", "message"),
    [
        (
            Restrictions(tiers={"check": Choice(never=("near",))}),
            r"operator check\.calls must be .*far \(large\), got \['judge'\]",
        ),
        (Restrictions(stays_on_device=Stays.EVERYTHING), r"operator check\.calls must be .* none"),
        (
            Restrictions(tiers={"read": Choice(only=("near", "far"))}),
            r"restrictions\.tiers\.read must leave a tier that has machines",
        ),
    ],
)
def test_restrictions_that_leave_some_settings_no_tier_are_refused(
    restrictions: Restrictions, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        searched(0, Slo(accuracy=0.5, latency_s=10.0), restrictions=restrictions)


def test_restrictions_that_leave_every_setting_a_tier_hold_in_every_plan() -> None:
    restrictions = Restrictions(
        tiers={"read": Choice(only=("near", "cloud"))},
        knobs={"read": {"model": Choice(never=("large",))}},
    )
    result, _ = searched(1, Slo(accuracy=0.4, latency_s=50.0), restrictions=restrictions)
    assert result.plans
    assert {plan.deployment.placement["read"] for plan in result.plans} <= {"near", "cloud"}


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 9999), st.sampled_from([0.5, 1.0, 2.0, 20.0]))
def test_the_cheapest_plan_for_requests_one_by_one_is_that_of_trying_everything(
    seed: int, latency_s: float
) -> None:
    slo = Slo(accuracy=0.6, latency_s=latency_s)
    result, evaluator = searched(seed, slo)
    least = min(
        (
            cheapest_usd_per_1000(evaluator.where, evaluator.work(n), n, latency_s)
            for n in accurate(evaluator, slo)
        ),
        default=np.inf,
    )
    if np.isinf(least):
        assert not result.plans
        assert result.outcome is PlanningOutcome.INFEASIBLE
        return
    assert result.plans[0].cost_usd_per_1000_requests == pytest.approx(least)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 9999), st.floats(0.2, 12.0), st.sampled_from([None, 60, 200]))
def test_the_cheapest_plan_for_a_rate_is_that_of_trying_everything(
    seed: int, rate: float, per_minute: int | None
) -> None:
    slo = Slo(accuracy=0.5, latency_s=1000.0)
    limits = {"small": RateLimits(requests_per_minute=per_minute, concurrent=3)}
    result, evaluator = searched(seed, slo, rate=rate, limits=limits)
    least = min(
        (
            cheapest_usd_per_hour(evaluator.where, evaluator.work(n), n, rate)
            for n in accurate(evaluator, slo)
        ),
        default=np.inf,
    )
    if np.isinf(least):
        assert not result.plans
        return
    best = result.plans[0]
    assert best.cost_usd_per_hour == pytest.approx(least)
    assert best.cost_usd_per_1000_requests == pytest.approx(least / (3.6 * rate))


def test_the_cheapest_plan_near_what_machines_bear_is_that_of_trying_everything() -> None:
    slo, rate = Slo(accuracy=0.5, latency_s=1000.0), 11.0
    result, evaluator = searched(9685, slo, rate=rate, limits={"small": RateLimits(concurrent=3)})
    least = min(
        cheapest_usd_per_hour(evaluator.where, evaluator.work(n), n, rate)
        for n in accurate(evaluator, slo)
    )
    assert result.plans[0].cost_usd_per_hour == pytest.approx(least)  # of ten inputs: $347


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 999), st.sampled_from([None, 1.0]), st.floats(0.5, 8.0))
def test_every_plan_has_callers_on_remote_tiers_and_costs_what_its_parts_do(
    seed: int, rate: float | None, most_usd: float
) -> None:
    slo = Slo(accuracy=0.5, latency_s=5.0, cost_usd_per_1000_requests=most_usd)
    result, evaluator = searched(seed, slo, rate=rate)
    for plan in result.plans:
        where, on = evaluator.where, plan.deployment.placement
        for operator in GRAPH.operators:
            called = operator.called(plan.configuration.of(operator.name))
            tier = where.tier(on[operator.name])
            assert {c.endpoint for c in called} <= {e.name for e in tier.endpoints}
            assert tier.remote == bool(called)
        assert not {item.tier for item in plan.demand} & plan.deployment.remote
        machines = cost_usd_per_hour(plan.demand, where)
        assert plan.machines_usd_per_hour == pytest.approx(machines)
        work = evaluator.work(SPACE.number(plan.configuration))
        assert plan.calls is not None
        assert work.used is not None
        usd = float(work.used[:, -1].sum(axis=0).mean())
        assert plan.calls.usd_per_request.value == pytest.approx(usd)
        assert sum(u.usd for u in plan.calls.per_request.values()) == pytest.approx(usd)
        pace = rate or 1 / plan.latency_s.value  # the mean is what the SLO bounds
        assert plan.calls_usd_per_hour == pytest.approx(3600 * pace * usd)
        each = 1000 * (machines / (3600 * pace) + usd)
        assert plan.cost_usd_per_1000_requests == pytest.approx(each)
        assert each <= most_usd * (1 + 1e-9)


@pytest.mark.parametrize("strategy", [MultiFidelity, Cmbo])
@pytest.mark.parametrize("rate", [None, 0.5])
def test_every_strategy_finds_the_cheapest_of_few_configurations(
    strategy: StrategyFactory, rate: float | None
) -> None:
    slo = Slo(accuracy=0.5, latency_s=20.0)
    sought = SearchSettings(strategy=strategy, margin_confidence=None, patience=50)
    found, _ = searched(3, slo, rate=rate, settings=sought)
    all_of_them, _ = searched(3, slo, rate=rate)
    best, least = found.plans[0], all_of_them.plans[0]
    assert best.cost_usd_per_1000_requests == pytest.approx(least.cost_usd_per_1000_requests)


def called_only(limits: RateLimits, rate: float | None) -> PlanningResult:
    """Search with nothing but the small model to read with."""
    return searched(
        2,
        Slo(accuracy=0.0, latency_s=1000.0),
        rate=rate,
        limits={"small": limits},
        restrictions=Restrictions(knobs={"read": {"model": Choice(only=("small",))}}),
    )[0]


def test_a_limit_on_calls_lets_through_seven_tenths_of_it() -> None:
    # One call a request: 60 a minute are 1 request per second, of which 0.7 are planned for.
    limits = RateLimits(requests_per_minute=60)
    assert called_only(limits, rate=0.7).plans
    result = called_only(limits, rate=0.701)
    assert not result.plans
    assert result.shortfall is not None
    assert result.shortfall.sentence.endswith(
        "Endpoint small lets 1 requests per second through, at its limit on requests per minute "
        "of 60; planned for are at most 70% of that, asked 0.701."
    )


def test_limits_bind_nobody_who_asks_one_after_the_other() -> None:
    assert called_only(RateLimits(requests_per_minute=1), rate=None).plans


def test_a_throughput_may_use_all_of_a_limit() -> None:
    def at(rate: float) -> PlanningResult:
        slo = Slo(accuracy=0.0, latency_s=1000.0, throughput_per_s=rate)
        knobs = {"read": {"model": Choice(only=("small",))}}
        limits = {"small": RateLimits(requests_per_minute=60)}
        return searched(2, slo, limits=limits, restrictions=Restrictions(knobs=knobs))[0]

    plan = at(1.0).plans[0]
    assert plan.throughput_per_s.value == pytest.approx(1.0)
    assert plan.states(Slo(accuracy=0.0, latency_s=1e3, throughput_per_s=1.0))["throughput"]
    result = at(1.01)
    assert not result.plans
    assert result.shortfall is not None
    assert result.shortfall.relaxations["throughput"] == pytest.approx(1.0)


def test_a_bound_that_nothing_meets_is_told_with_what_would_be_enough() -> None:
    slo = Slo(accuracy=0.5, latency_s=20.0)
    cheapest = searched(3, slo)[0].plans[0].cost_usd_per_1000_requests
    for factor, enough in ((1.001, True), (0.999, False)):
        bounded = replace(slo, cost_usd_per_1000_requests=factor * cheapest)
        result, _ = searched(3, bounded)
        assert bool(result.plans) == enough
        if not enough:
            assert result.shortfall is not None
            assert result.shortfall.binding == ("cost_per_1000",)
            assert result.shortfall.relaxations["cost_per_1000"] == pytest.approx(cheapest)
            assert "per 1,000 requests" in result.shortfall.sentence


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 999), st.sampled_from([None, 1.0]), st.floats(0.2, 6.0))
def test_with_a_margin_what_is_announced_keeps_the_bound_at_its_upper_end(
    seed: int, rate: float | None, most_usd: float
) -> None:
    slo = Slo(accuracy=0.5, latency_s=5.0, cost_usd_per_1000_requests=most_usd)
    careful = SearchSettings(strategy=exhaustive_search)
    result, _ = searched(seed, slo, rate=rate, settings=careful)
    for plan in result.plans:
        assert plan.states(slo)["cost_per_1000"] is SloState.MET


def test_where_a_request_waits_for_an_endpoint_no_speed_or_share_changes_that() -> None:
    slo = Slo(accuracy=0.0, latency_s=1000.0, latency_statistic=LatencyStatistic.MEAN)
    result, evaluator = searched(2, slo)
    plan = next(p for p in result.plans if p.configuration.of("read")["model"] != "own")
    where, on = evaluator.where, plan.deployment.placement
    seconds = evaluator.work(SPACE.number(plan.configuration)).operator_s.mean(axis=1)
    rented = where.tier(on["search"])
    busy = seconds[0] / (rented.speed_factor * plan.deployment.allocation["search"])
    stops = [where.origin or "", *on.values()]
    moved = sum(
        where.route(a, b).delay_s + where.route(a, b).s_per_byte * 1000 for a, b in pairwise(stops)
    )
    assert plan.latency_s.value == pytest.approx(busy + seconds[1] + seconds[2] + moved)


def test_alternatives_of_a_caller_are_told_apart() -> None:
    where = infrastructure(np.random.default_rng(2))
    evaluator = CallingEvaluator(2, where)
    profiles = [evaluator.measure(SPACE.configuration(n), 20) for n in range(SPACE.size)]
    query = Query(pipeline="ask", slo=Slo(accuracy=0.0, latency_s=1000.0), limits=PLENTY)
    known = Known(graph=GRAPH, profiles=profiles, population=20, trusted={})
    found = answer(query, where, known, exhaustive_search, TTest(), margin_confidence=None)
    plan = next(p for p in found.plans if p.configuration.of("read")["model"] == "small")
    told = explained(plan, found, known)
    by = {(a.operator, a.tier): a.because for a in told.alternatives}
    assert by["read", "far"] == "it calls small, not all of which are there"
    assert by["read", "cloud"] == "it calls small, not all of which are there"
    assert by["search", "near"] == "the tier has no machine"
    parts = {part.operator: part.usd_per_request for part in told.operators}
    assert plan.calls is not None
    assert parts["search"] == 0.0
    assert sum(parts.values()) == pytest.approx(plan.calls.usd_per_request.value)
    hourly = sum(part.cost_usd_per_hour for part in told.operators)
    assert hourly == pytest.approx(plan.cost_usd_per_hour)


def measured_of_reading(model: str) -> tuple[SearchSetting, Measured]:
    """A search's setting at a rate of 1, and one configuration measured on 10 of 20 inputs."""
    where = infrastructure(np.random.default_rng(2))
    slo = Slo(accuracy=0.0, latency_s=1000.0)
    query = Query(pipeline="ask", slo=slo, request_rate_per_s=1.0)
    setting = SearchSetting.of(query, GRAPH, where, 20)
    number = next(
        n for n in range(SPACE.size) if SPACE.configuration(n).of("read")["model"] == model
    )
    profile = CallingEvaluator(2, where).measure(SPACE.configuration(number), 10)
    bench = Bench(setting=setting, rule=None)
    return setting, measured_as(bench, number, profile, Ending.PARTIAL, 1.0)


def test_bounds_leave_room_for_calls_at_the_upper_end_of_their_interval() -> None:
    setting, measured = measured_of_reading("small")
    usd = usd_per_request(measured, 20, 0.99)
    assert usd.low < usd.value < usd.high
    for bound, left in ((1000 * usd.high, 0.0), (1000 * usd.high + 0.5, 0.5)):
        slo = replace(setting.slo, cost_usd_per_1000_requests=bound)
        found = cheaper(setting, slo, measured, 1.0, 0.99)
        assert found is not None
        assert found.cost_usd_per_1000_requests == pytest.approx(1000 * usd.value + left)
    too_little = replace(setting.slo, cost_usd_per_1000_requests=999.9 * usd.high)
    assert cheaper(setting, too_little, measured, 1.0, 0.99) is None
    assert cheaper(setting, too_little, measured, 1.0, None) is too_little
    hour = replace(setting.slo, cost_usd_per_hour=3600 * usd.high + 2.0)
    found = cheaper(setting, hour, measured, 1.0, 0.99)
    assert found is not None
    assert found.cost_usd_per_hour == pytest.approx(3600 * usd.value + 2.0)
    too_little = replace(setting.slo, cost_usd_per_hour=3599.9 * usd.high)
    assert cheaper(setting, too_little, measured, 1.0, 0.99) is None


def test_ahead_the_dollars_of_calls_are_less_well_known() -> None:
    setting, measured = measured_of_reading("small")
    ahead, here = usd_per_request(measured, MOST_EXAMPLES), usd_per_request(measured, 20)
    assert ahead.low < here.low < here.value == ahead.value < here.high < ahead.high
    every = replace(
        measured, work=CallingEvaluator(2, setting.context.infrastructure).work(measured.number)
    )
    exact = usd_per_request(every, 20)
    assert exact.low == exact.value == exact.high


def test_for_future_inputs_only_what_is_shown_to_keep_the_bound_is_announced() -> None:
    slo = Slo(accuracy=0.0, latency_s=1000.0, holds_for=HoldsFor.FUTURE)
    careful = SearchSettings(strategy=exhaustive_search)
    free, _ = searched(2, slo, rate=1.0, settings=careful)
    assert free.plans
    known = [plan.cost_per_1000(ahead=True) for plan in free.plans]
    bound = min(one.high for one in known)
    for most, enough in ((1.05 * bound, True), (min(one.low for one in known), False)):
        bounded = replace(slo, cost_usd_per_1000_requests=most)
        plans = searched(2, bounded, rate=1.0, settings=careful)[0].plans
        assert bool(plans) == enough
        for plan in plans:
            assert set(plan.states(bounded).values()) == {SloState.MET}


@pytest.mark.parametrize("statistic", [LatencyStatistic.P50, LatencyStatistic.P95])
def test_one_after_the_other_requests_come_at_their_mean_whatever_the_slo_bounds(
    statistic: LatencyStatistic,
) -> None:
    result, evaluator = searched(4, Slo(accuracy=0.4, latency_s=5.0, latency_statistic=statistic))
    assert result.plans
    for plan in result.plans:
        work = evaluator.work(SPACE.number(plan.configuration))
        mean_s = float(request_seconds(GRAPH, evaluator.where, work, plan.deployment).mean())
        usd = plan.calls.usd_per_request.value if plan.calls else 0.0
        each = 1000 * (plan.machines_usd_per_hour / 3600 * mean_s + usd)
        assert plan.cost_usd_per_1000_requests == pytest.approx(each)


@pytest.mark.parametrize("strategy", [MultiFidelity, Cmbo])
def test_dollars_of_calls_end_a_search(strategy: StrategyFactory) -> None:
    where = infrastructure(np.random.default_rng(3))
    evaluator = CallingEvaluator(3, where)
    all_usd = sum(
        float(used[:, -1].sum()) for n in range(6) if (used := evaluator.work(n).used) is not None
    )
    limits = PlanningLimits(profiling_s=1e6, profiling_usd=0.3 * all_usd, response_s=None)
    query = Query(pipeline="ask", slo=Slo(accuracy=0.99, latency_s=20.0), limits=limits)
    result = search(query, where, evaluator, TTest(), settings=SearchSettings(strategy=strategy))
    assert result.stopped_because == "limit profiling_usd reached"
    each = max(
        float(used[:, -1].sum(axis=0).max())
        for n in range(6)
        if (used := evaluator.work(n).used) is not None
    )
    machines_usd = (evaluator.spent_s - evaluator.calls_s) * 6.0 / 3600  # at most, by the hour
    assert evaluator.calls_usd < 0.3 * all_usd + each
    assert evaluator.calls_usd + machines_usd >= 0.3 * all_usd
