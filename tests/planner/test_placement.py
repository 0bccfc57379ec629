from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.latency import Work, request_seconds
from circinus.pipelines.model.operators import OperatorSpec, Scaling
from circinus.pipelines.model.plan import Deployment, Plan
from circinus.pipelines.model.query import PlanningContext, Query
from circinus.pipelines.model.slo import LatencyStatistic, Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.deployment.pareto import diverse, undominated
from circinus.planner.deployment.placement import placements
from circinus.planner.search.plans import feasible_plans
from circinus.planner.strategy.protocol import Measured, SearchSetting
from circinus.planner.strategy.space import (
    candidates,
    encode,
    indices_of,
    neighbours,
    numbers_of,
    spread,
)
from tests.oracles.brute_force import cheapest_cost
from tests.oracles.measured import measured_of
from tests.oracles.synthetic import chain

THREE = PRESETS["three-tier"]


def _without_machines(*names: str) -> Infrastructure:
    tiers = tuple(replace(t, machines=0 if t.name in names else 2) for t in THREE.tiers)
    return replace(THREE, tiers=tiers)


def test_an_infrastructure_without_machines_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one machine"):
        placements(chain(2), _without_machines("device", "mec", "cloud"))


def test_too_many_placements_even_upwards_are_refused() -> None:
    # Upwards: (10 + 2 choose 2) = 66.
    with pytest.raises(InvalidInput, match="at most 65 placements"):
        placements(chain(*[2] * 10), THREE, most=65)


def test_all_placements_when_they_are_few() -> None:
    assert len(placements(chain(2, 2), THREE)) == 9


def test_data_never_goes_back_down_when_they_are_many() -> None:
    found = placements(chain(*[2] * 10), THREE, most=66)
    assert len(found) == 66
    assert (np.diff(found.tiers, axis=1) >= 0).all()


def test_tiers_without_machines_are_not_used() -> None:
    assert set(placements(chain(2, 2), _without_machines("mec")).tiers.ravel()) == {0, 2}


def test_operators_that_run_at_once_share_the_machine() -> None:
    wide = PipelineGraph(name="wide", operators=tuple(OperatorSpec(name=n) for n in "abc"))
    found = placements(wide, PRESETS["one-tier"])
    assert found.widths.tolist() == [[3]]
    assert found.full_steps.tolist() == [[6]]  # 3 x 0.3 fits, 3 x 0.35 does not


def test_more_operators_at_once_than_share_steps_fit_no_machine() -> None:
    names = [f"o{i}" for i in range(21)]
    wide = PipelineGraph(name="wide", operators=tuple(OperatorSpec(name=n) for n in names))
    with pytest.raises(InvalidInput, match="at most 20 operators at once"):
        placements(wide, PRESETS["one-tier"])


_TABLES = st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=30)


@given(_TABLES)
def test_the_front_is_what_comparing_all_pairs_leaves(rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows, dtype=float)
    front = set(undominated(table).tolist())
    for i, row in enumerate(table):
        beaten = ((table <= row).all(axis=1) & (table < row).any(axis=1)).any()
        earlier = (table[:i] == row).all(axis=1).any()
        assert (i in front) == (not beaten and not earlier)


@given(_TABLES, st.integers(3, 8))
def test_a_bounded_set_keeps_the_extremes(rows: list[tuple[int, int, int]], most: int) -> None:
    table = np.array(rows, dtype=float)
    kept = diverse(table, most, extremes=3)
    assert len(kept) == min(most, len(table))
    assert len(set(kept.tolist())) == len(kept)
    assert (table[kept].min(axis=0) == table.min(axis=0)).all()


def test_a_small_space_is_taken_whole_in_order() -> None:
    space = ConfigurationSpace(chain(2, 3))
    pool = candidates(space, np.random.default_rng(0))
    assert pool.whole
    assert pool.numbers == tuple(range(6))
    assert pool.encoded.shape == (6, 5)
    assert (pool.encoded.sum(axis=1) == 2).all()


def test_a_pipeline_without_knobs_has_one_configuration_and_no_columns() -> None:
    pool = candidates(ConfigurationSpace(chain(0, 0)), np.random.default_rng(0))
    assert pool.numbers == (0,)
    assert pool.encoded.shape == (1, 0)


def test_a_knob_without_choice_has_no_column() -> None:
    assert encode(ConfigurationSpace(chain(1, 2)), [0, 1]).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("knobs", [10, 25])  # 10^25 does not fit 64 bits
def test_a_huge_space_is_sampled_with_exact_numbers(knobs: int) -> None:
    space = ConfigurationSpace(chain(*[10] * knobs))
    pool = candidates(space, np.random.default_rng(0), limit=50)
    assert not pool.whole
    assert len(set(pool.numbers)) == len(pool.numbers) <= 50
    assert all(0 <= number < space.size for number in pool.numbers)
    rows = indices_of(space, pool.numbers)
    assert numbers_of(space, rows) == list(pool.numbers)
    assert [space.number(space.configuration(n)) for n in pool.numbers] == list(pool.numbers)


def test_neighbours_differ_in_exactly_one_knob() -> None:
    space = ConfigurationSpace(chain(2, 3, 1))
    near = neighbours(space, 4)
    here = indices_of(space, [4])[0]
    assert len(near) == 3
    assert ((indices_of(space, near) != here).sum(axis=1) == 1).all()


def test_the_spread_set_shares_no_value_while_it_can() -> None:
    pool = candidates(ConfigurationSpace(chain(3, 3, 3)), np.random.default_rng(0))
    picks = spread(pool, 3, np.random.default_rng(1))
    # Three values per knob: three rows can differ in every knob.
    assert (pool.encoded[picks].sum(axis=0) == 1).all()


def test_the_spread_set_is_the_whole_space_when_that_is_smaller() -> None:
    pool = candidates(ConfigurationSpace(chain(2)), np.random.default_rng(0))
    assert sorted(spread(pool, 5, np.random.default_rng(1))) == [0, 1]


@st.composite
def _graphs(draw: st.DrawFn) -> PipelineGraph:
    operators = []
    for i in range(draw(st.integers(1, 3))):
        after = tuple(f"o{p}" for p in range(i) if draw(st.booleans()))
        batched = draw(st.booleans())
        operators.append(
            OperatorSpec(
                name=f"o{i}",
                after=after,
                scaling=Scaling.BATCHED if batched else Scaling.PROPORTIONAL,
                batch_latency={1: 1.0, 4: 1.5, 16: 3.0} if batched else {},
            )
        )
    return PipelineGraph(name="random", operators=tuple(operators))


@st.composite
def _infrastructures(draw: st.DrawFn) -> Infrastructure:
    count = draw(st.integers(1, 2))
    tiers = tuple(
        Tier(
            name=f"t{i}",
            machines=draw(st.integers(1, 3)),
            price_usd_per_hour=draw(st.sampled_from([0.0, 0.5, 3.0])),
            speed_factor=draw(st.sampled_from([0.2, 1.0])),
            dedicated=draw(st.booleans()),
        )
        for i in range(count)
    )
    link = Link(between=("t0", "t1"), bandwidth_bytes_per_s=1e4, delay_s=0.01)
    return Infrastructure(name="random", tiers=tiers, links=(link,) if count == 2 else ())


def _context(
    graph: PipelineGraph,
    infrastructure: Infrastructure,
    latency_s: float,
    statistic: LatencyStatistic,
    rate: float | None = None,
) -> PlanningContext:
    slo = Slo(accuracy=0.5, latency_s=latency_s, latency_statistic=statistic)
    query = Query(pipeline=graph.name, slo=slo, request_rate_per_s=rate)
    return PlanningContext(graph=graph, infrastructure=infrastructure, query=query)


def _measured(graph: PipelineGraph, seed: int) -> Measured:
    rng = np.random.default_rng(seed)
    o, n = len(graph.operators), 5
    scores = rng.random(n)
    work = Work(
        operator_s=rng.uniform(0.01, 0.1, (o, n)),
        output_bytes=rng.uniform(0, 500, (o, n)),
        input_bytes=rng.uniform(0, 500, n),
    )
    return measured_of(graph, work, scores)


def _plans(context: PlanningContext, measured: Measured, most: int = 1000) -> tuple[Plan, ...]:
    setting = SearchSetting(
        space=ConfigurationSpace(context.graph),
        context=context,
        placements=placements(context.graph, context.infrastructure),
        population=5,
    )
    return feasible_plans(setting, measured, most=most)


def _latency(context: PlanningContext, measured: Measured, deployment: Deployment) -> float:
    seconds = request_seconds(context.graph, context.infrastructure, measured.work, deployment)
    return float(context.statistic.of(seconds))


_STATISTICS = st.sampled_from([LatencyStatistic.MEAN, LatencyStatistic.P90])


@settings(max_examples=25, deadline=None)
@given(_graphs(), _infrastructures(), st.floats(0.05, 2), _STATISTICS, st.integers(0, 99))
def test_plans_meet_the_slo_and_are_as_tight_as_they_can_be(
    graph: PipelineGraph,
    infrastructure: Infrastructure,
    latency_s: float,
    statistic: LatencyStatistic,
    seed: int,
) -> None:
    context = _context(graph, infrastructure, latency_s, statistic)
    measured = _measured(graph, seed)
    for plan in _plans(context, measured):
        deployment = plan.deployment
        assert _latency(context, measured, deployment) == plan.latency_s.value <= latency_s
        assert all(0 < item.share <= 1 for item in plan.demand)
        for tier in deployment.tiers:
            kind = infrastructure.tier(tier)
            lower = {
                o: round(share - 0.05 * (deployment.placement[o] == tier), 9)
                for o, share in deployment.allocation.items()
            }
            if (kind.dedicated and kind.price_usd_per_hour == 0) or min(lower.values()) <= 0:
                continue
            assert _latency(context, measured, replace(deployment, allocation=lower)) > latency_s


@settings(max_examples=10, deadline=None)
@given(_graphs(), _infrastructures(), st.floats(0.05, 1), _STATISTICS, st.integers(0, 99))
def test_the_cheapest_plan_is_that_of_brute_force_or_one_step_of_the_trade_away(
    graph: PipelineGraph,
    infrastructure: Infrastructure,
    latency_s: float,
    statistic: LatencyStatistic,
    seed: int,
) -> None:
    context = _context(graph, infrastructure, latency_s, statistic)
    measured = _measured(graph, seed)
    plans = _plans(context, measured)
    truth = cheapest_cost(
        graph, infrastructure, measured.work, latency_s=latency_s, statistic=statistic
    )
    assert bool(plans) == np.isfinite(truth)
    if not plans:
        return
    assert plans[0].cost_usd_per_hour >= truth - 1e-9
    if len(infrastructure.tiers) == 1:  # orders of several tiers find corners, not every trade
        assert plans[0].cost_usd_per_hour == pytest.approx(truth)


@settings(max_examples=15, deadline=None)
@given(_graphs(), _infrastructures(), st.integers(0, 99))
def test_no_plan_dominates_another(
    graph: PipelineGraph, infrastructure: Infrastructure, seed: int
) -> None:
    context = _context(graph, infrastructure, 1.0, LatencyStatistic.MEAN)
    shared = [tier.name for tier in infrastructure.tiers if not tier.dedicated]

    def objectives(plan: Plan) -> tuple[float, ...]:
        demand = [sum(s for t, s in plan.demand if t == name) for name in shared]
        return (plan.cost_usd_per_hour, *demand, plan.latency_s.value, -plan.accuracy.value)

    plans = _plans(context, _measured(graph, seed))
    for one, other in combinations(map(objectives, plans), 2):
        assert not all(a <= b for a, b in zip(one, other, strict=True))
        assert not all(a >= b for a, b in zip(one, other, strict=True))


def _one(machines: int) -> Infrastructure:
    return Infrastructure(
        name="one", tiers=(Tier(name="t", machines=machines, price_usd_per_hour=1.0),)
    )


_SINGLE = PipelineGraph(name="single", operators=(OperatorSpec(name="o"),))


def test_a_bound_met_to_the_last_bit_is_met() -> None:
    measured = _measured(_SINGLE, 0)
    exact = float(measured.work.operator_s.sum(axis=0).mean())
    context = _context(_SINGLE, _one(1), exact, LatencyStatistic.MEAN)
    assert [plan.demand[0].share for plan in _plans(context, measured)] == [1.0]
    below = _context(_SINGLE, _one(1), float(np.nextafter(exact, 0)), LatencyStatistic.MEAN)
    assert _plans(below, measured) == ()


def test_a_request_rate_adds_copies_and_their_wait() -> None:
    measured = _measured(_SINGLE, 0)
    service = float(measured.work.operator_s.mean())
    rate = 1.5 / service  # at share 1: offered load 1.5, so 3 copies (1.5 / 0.7 = 2.14)
    context = _context(_SINGLE, _one(9), 1.5 * service, LatencyStatistic.MEAN, rate)
    plans = _plans(context, measured)
    assert plans
    for plan in plans:
        assert len(plan.demand) >= 3
        alone = _latency(context, measured, plan.deployment)
        assert alone < plan.latency_s.value <= context.slo.latency_s


def test_a_request_rate_that_the_machines_cannot_hold_has_no_plan() -> None:
    measured = _measured(_SINGLE, 0)
    rate = 1.5 / float(measured.work.operator_s.mean())
    assert _plans(_context(_SINGLE, _one(2), 100.0, LatencyStatistic.MEAN, rate), measured) == ()


def test_the_number_of_plans_is_bounded_with_the_cheapest_kept() -> None:
    infrastructure = Infrastructure(
        name="two",
        tiers=(Tier(name="a", price_usd_per_hour=1), Tier(name="b", price_usd_per_hour=2)),
        links=(Link(between=("a", "b"), bandwidth_bytes_per_s=1e6),),
    )
    graph = PipelineGraph(
        name="three",
        operators=tuple(
            OperatorSpec(name=f"o{i}", after=(f"o{i - 1}",) if i else ()) for i in range(3)
        ),
    )
    context = _context(graph, infrastructure, 0.5, LatencyStatistic.MEAN)
    every = _plans(context, _measured(graph, 0))
    few = _plans(context, _measured(graph, 0), most=1)
    assert len(every) > 1 == len(few)
    assert few[0].cost_usd_per_hour == every[0].cost_usd_per_hour
