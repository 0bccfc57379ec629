"""Exact tightening beside brute force over every share of every tier."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.operators import OperatorSpec, Scaling
from circinus.pipelines.model.query import PlanningContext, Query
from circinus.pipelines.model.shares import Gpus, GpuSharing
from circinus.pipelines.model.slo import ANY_LATENCY_S, LatencyStatistic, Slo
from circinus.pipelines.model.tiers import MachineType, Tier
from circinus.planner.deployment.placement import Placements, placements
from circinus.planner.deployment.prediction import Prediction, meets, predict
from circinus.planner.deployment.shares import allocations, combinations, minimal, tightened

ORDERS = list(itertools.permutations(range(3)))


def _infrastructure(tiers: int, machines: int = 2) -> Infrastructure:
    return Infrastructure(
        name="priced",
        tiers=tuple(
            Tier(
                name=f"t{i}",
                machines=machines,
                price_usd_per_hour=1.0 + i,
                speed_factor=0.5 + i,
            )
            for i in range(tiers)
        ),
        links=tuple(
            Link(between=(f"t{i}", f"t{i + 1}"), bandwidth_bytes_per_s=1e5, delay_s=0.001)
            for i in range(tiers - 1)
        ),
    )


@st.composite
def _graphs(draw: st.DrawFn) -> PipelineGraph:
    operators = []
    for i in range(3):
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


def _context(
    graph: PipelineGraph, slo: Slo, rate: float | None = None, tiers: int = 3
) -> PlanningContext:
    query = Query(pipeline=graph.name, slo=slo, request_rate_per_s=rate)
    return PlanningContext(graph=graph, infrastructure=_infrastructure(tiers), query=query)


def _work(seed: int, operators: int = 3, n: int = 4) -> Work:
    rng = np.random.default_rng(seed)
    return Work(
        operator_s=rng.uniform(0.01, 0.1, (operators, n)),
        output_bytes=rng.uniform(0, 500, (operators, n)),
        input_bytes=rng.uniform(0, 500, n),
    )


def _everything(
    context: PlanningContext, spot: Placements, work: Work, used: list[int]
) -> tuple[npt.NDArray[np.int64], Prediction]:
    """Every share vector of one placement, and what it gives."""
    grids = [range(1, int(spot.full_steps[0, t]) + 1) for t in used]
    vectors = np.array(list(itertools.product(*grids)), dtype=np.int64)
    steps = np.repeat(spot.full_steps, len(vectors), axis=0)
    steps[:, used] = vectors
    many = spot.take(np.zeros(len(vectors), dtype=np.int64))
    return steps, predict(context, many, work, steps)


def _undominated(rows: list[tuple[float, ...]]) -> set[tuple[float, ...]]:
    """The rows that no other unlike row is at most as large as, everywhere."""
    array = np.array(sorted(set(rows)))
    return {
        tuple(row) for row in array.tolist() if (array <= np.array(row)).all(axis=1).sum() == 1
    }


@settings(max_examples=25, deadline=None)
@given(
    _graphs(),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
    st.floats(1.05, 4),
    st.sampled_from([LatencyStatistic.MEAN, LatencyStatistic.P90]),
    st.integers(0, 99),
)
def test_the_minimal_shares_are_exactly_those_of_brute_force(
    graph: PipelineGraph,
    tiers: list[int],
    slack: float,
    statistic: LatencyStatistic,
    seed: int,
) -> None:
    work = _work(seed)
    slo = Slo(accuracy=0.5, latency_s=1.0, latency_statistic=statistic)
    context = _context(graph, slo)
    every = placements(graph, context.infrastructure)
    spot = every.take(np.flatnonzero((every.tiers == tiers).all(axis=1)))
    full = float(predict(context, spot, work, spot.full_steps).latency_s[0])
    context = _context(
        graph, Slo(accuracy=0.5, latency_s=full * slack, latency_statistic=statistic)
    )
    used = np.flatnonzero(spot.widths[0] > 0).tolist()

    rows, found = minimal(context, spot, work, spot.widths > 0)

    steps, given_ = _everything(context, spot, work, used)
    feasible = steps[meets(context, given_)]
    wanted = _undominated([tuple(row) for row in feasible.tolist()])
    assert {tuple(row) for row in found.tolist()} == wanted
    assert len(found) == len(wanted)
    assert set(rows.tolist()) == {0}


@settings(max_examples=20, deadline=None)
@example(  # a larger step asks less, but the machines do not hold its copies
    graph=PipelineGraph(
        name="random",
        operators=(
            OperatorSpec(name="o0"),
            OperatorSpec(
                name="o1",
                after=("o0",),
                scaling=Scaling.BATCHED,
                batch_latency={1: 1.0, 4: 1.5, 16: 3.0},
            ),
            OperatorSpec(name="o2"),
        ),
    ),
    tiers=[0, 0, 0],
    rate=7.0,
    throughput=True,
    seed=12,
)
@given(
    _graphs(),
    st.lists(st.integers(0, 1), min_size=3, max_size=3),
    st.floats(0.5, 8),
    st.booleans(),
    st.integers(0, 99),
)
def test_the_least_demands_for_a_rate_are_exactly_those_of_brute_force(
    graph: PipelineGraph, tiers: list[int], rate: float, throughput: bool, seed: int
) -> None:
    work = _work(seed)
    if throughput:
        slo = Slo(accuracy=0.5, latency_s=ANY_LATENCY_S, throughput_per_s=rate)
        context = _context(graph, slo, tiers=2)
    else:
        context = _context(graph, Slo(accuracy=0.5, latency_s=0.6), rate, tiers=2)
    every = placements(graph, context.infrastructure)
    spot = every.take(np.flatnonzero((every.tiers == tiers).all(axis=1)))
    used = np.flatnonzero(spot.widths[0] > 0).tolist()

    result = combinations(context, spot, work, used)

    assert result is not None
    rows, found = result
    gives = predict(context, spot.take(rows), work, found)
    steps, given_ = _everything(context, spot, work, used)
    good = meets(context, given_)
    asked = np.round(steps * spot.widths * given_.replicas, 9)[good][:, used]
    demands = np.round(found * spot.widths * gives.replicas, 9)[:, used]
    assert {tuple(row) for row in demands.tolist()} == (
        _undominated([tuple(row) for row in asked.tolist()]) if good.any() else set()
    )
    # Of equal demand the fewest copies: nothing asks the same in fewer.
    copies = given_.replicas[good].sum(axis=1)
    for demand, replicas in zip(demands, gives.replicas, strict=True):
        same = (asked == demand).all(axis=1)
        assert replicas.sum() == copies[same].min()


def test_one_large_slice_is_preferred_to_many_small_ones() -> None:
    # Without calls 20 slices of 0.05 finish as many requests as one whole machine.
    graph = PipelineGraph(name="one", operators=(OperatorSpec(name="o"),))
    work = Work(
        operator_s=np.array([[0.1]]), output_bytes=np.zeros((1, 1)), input_bytes=np.zeros(1)
    )
    slo = Slo(accuracy=0.5, latency_s=ANY_LATENCY_S, throughput_per_s=10.0)
    context = PlanningContext(
        graph=graph,
        infrastructure=Infrastructure(
            name="i", tiers=(Tier(name="t", machines=3, price_usd_per_hour=1.0),)
        ),
        query=Query(pipeline="one", slo=slo),
    )
    found = tightened(context, placements(graph, context.infrastructure), work)
    assert found.steps.tolist() == [[20]]
    assert found.cost_usd_per_hour.tolist() == [1.0]


@pytest.mark.parametrize("order", ORDERS)
def test_what_lies_between_the_corners_is_found(order: tuple[int, ...]) -> None:
    # Two operators of 0.1 s on two tiers of one price, 0.5 s allowed: 0.1/r1 + 0.1/r2 <= 0.5.
    # The corners are (0.25, 1) and (1, 0.25); cheapest is r1 = r2 = 0.4, 0.8 machines.
    tiers = tuple(Tier(name=f"t{i}", price_usd_per_hour=1.0) for i in order[:2])
    names = [tier.name for tier in tiers]
    graph = PipelineGraph(
        name="two", operators=(OperatorSpec(name="a"), OperatorSpec(name="b", after=("a",)))
    )
    context = PlanningContext(
        graph=graph,
        infrastructure=Infrastructure(
            name="i",
            tiers=tiers,
            links=(Link(between=(names[0], names[1]), bandwidth_bytes_per_s=1e9),),
        ),
        query=Query(pipeline="two", slo=Slo(accuracy=0.5, latency_s=0.5 + 1e-9)),
    )
    work = Work(
        operator_s=np.full((2, 1), 0.1), output_bytes=np.zeros((2, 1)), input_bytes=np.zeros(1)
    )
    every = placements(graph, context.infrastructure)
    apart = every.take(np.flatnonzero(every.tiers[:, 0] != every.tiers[:, 1]))
    found = tightened(context, apart, work)
    assert found.cost_usd_per_hour.min() == pytest.approx(0.8)


def test_too_many_placements_fall_back_to_the_corners() -> None:
    graph = PipelineGraph(
        name="long",
        operators=tuple(
            OperatorSpec(name=f"o{i}", after=(f"o{i - 1}",) if i else ()) for i in range(6)
        ),
    )
    context = _context(graph, Slo(accuracy=0.5, latency_s=2.0))
    every = placements(graph, context.infrastructure)
    work = _work(0, operators=6, n=1)
    found = tightened(context, every, work)
    assert (found.latency_s <= 2.0).all()
    assert len(np.unique(found.placements.tiers, axis=0)) > 100


ALL_GPUS = (
    None,
    Gpus(kind=GpuSharing.WHOLE),
    Gpus(kind=GpuSharing.WHOLE, count=4),
    Gpus(kind=GpuSharing.WHOLE, count=10),
    Gpus(kind=GpuSharing.MPS, parts=2),
    Gpus(kind=GpuSharing.MPS, parts=10),
    Gpus(kind=GpuSharing.TIME_SLICED, parts=5),
    Gpus(kind=GpuSharing.MIG, profile="2g.20gb", count=3),
)
EVERY_STEP = tuple(range(1, 21))


def infrastructure(*gpus: Gpus | None, machines: int = 2) -> Infrastructure:
    """A device without GPUs, and a tier for each of the given."""
    names = ["device", *(f"t{i}" for i in range(len(gpus)))]
    tiers = (
        Tier(name="device", dedicated=True, speed_factor=0.5),
        *(
            Tier(name=f"t{i}", machines=machines, price_usd_per_hour=1.0 + i, gpus=each)
            for i, each in enumerate(gpus)
        ),
    )
    links = tuple(
        Link(between=pair, bandwidth_bytes_per_s=1e6, delay_s=0.001)
        for pair in itertools.pairwise(names)
    )
    return Infrastructure(name="gpus", tiers=tiers, links=links)


@st.composite
def graphs(draw: st.DrawFn) -> PipelineGraph:
    """Three operators, some of which can run at once."""
    operators = []
    for i in range(3):
        batched = draw(st.booleans())
        operators.append(
            OperatorSpec(
                name=f"o{i}",
                after=tuple(f"o{p}" for p in range(i) if draw(st.booleans())),
                scaling=Scaling.BATCHED if batched else Scaling.PROPORTIONAL,
                batch_latency={1: 1.0, 4: 1.5, 16: 3.0} if batched else {},
            )
        )
    return PipelineGraph(name="random", operators=tuple(operators))


def work_of(seed: int, operators: int = 3) -> Work:
    rng = np.random.default_rng(seed)
    return Work(
        operator_s=rng.uniform(0.01, 0.1, (operators, 2)),
        output_bytes=rng.uniform(0, 500, (operators, 2)),
        input_bytes=rng.uniform(0, 500, 2),
    )


def test_operators_at_once_that_no_place_can_divide_between_them_are_refused() -> None:
    wide = PipelineGraph(name="wide", operators=tuple(OperatorSpec(name=n) for n in "abc"))
    one = Infrastructure(
        name="one", tiers=(Tier(name="gpu", gpus=Gpus(kind=GpuSharing.MPS, parts=10)),)
    )
    # A tenth of a machine is two steps, which are not to be divided by three.
    rule = r"at most 20 operators at once on a machine, with a share that GPUs give \(gpu: 0\.1\)"
    with pytest.raises(InvalidInput, match=rule):
        placements(wide, one)


def test_where_one_tier_cannot_divide_a_place_another_one_is_taken() -> None:
    wide = PipelineGraph(name="wide", operators=tuple(OperatorSpec(name=n) for n in "abc"))
    where = infrastructure(Gpus(kind=GpuSharing.MPS, parts=10))
    found = placements(wide, where)
    assert [0, 0, 0] in found.tiers.tolist()
    assert [1, 1, 1] not in found.tiers.tolist()
    assert [0, 1, 1] in found.tiers.tolist()  # two at once have a step each


def test_all_that_a_worker_may_have_of_a_divided_gpu_is_its_part() -> None:
    one = PipelineGraph(name="one", operators=(OperatorSpec(name="o"),))
    found = placements(one, infrastructure(Gpus(kind=GpuSharing.MPS, parts=5)))
    assert found.full_steps.tolist() == [[20, 0], [0, 4]]


def test_types_bound_a_tier_to_the_shares_that_all_of_them_give() -> None:
    kinds = (
        MachineType(name="a", gpus=Gpus(kind=GpuSharing.WHOLE, count=4), price_usd_per_hour=1.0),
        MachineType(name="b", gpus=Gpus(kind=GpuSharing.WHOLE, count=2), price_usd_per_hour=1.0),
    )
    where = Infrastructure(name="types", tiers=(Tier(name="gpu", types=kinds),))
    one = PipelineGraph(name="one", operators=(OperatorSpec(name="o"),))
    slo = Slo(accuracy=0.5, latency_s=0.45)
    context = PlanningContext(
        graph=one, infrastructure=where, query=Query(pipeline="one", slo=slo)
    )
    work = Work(
        operator_s=np.array([[0.1]]), output_bytes=np.zeros((1, 1)), input_bytes=np.zeros(1)
    )
    # 0.1 s within 0.45 s needs 0.25 of a machine, which b does not give: half of it is the next.
    assert tightened(context, placements(one, where), work).steps.tolist() == [[10]]


def good_steps(where: Infrastructure, spot: Placements, tier: int) -> list[int]:
    """What each of the operators on a tier may have: their sum is a share that its GPUs give."""
    gpus, width = where.tiers[tier].gpus, int(spot.widths[0, tier])
    given = EVERY_STEP if gpus is None else gpus.steps
    return [k for k in EVERY_STEP if k * width in given]


@settings(max_examples=60, deadline=None)
@given(
    graphs(),
    st.tuples(st.sampled_from(ALL_GPUS), st.sampled_from(ALL_GPUS)),
    st.floats(1.05, 8),
    st.sampled_from([None, 2.0, 20.0]),
    st.integers(0, 99),
)
def test_the_cheapest_plan_is_that_of_brute_force_over_the_shares_given(
    graph: PipelineGraph,
    gpus: tuple[Gpus | None, Gpus | None],
    slack: float,
    rate: float | None,
    seed: int,
) -> None:
    where, work = infrastructure(*gpus, machines=4), work_of(seed)
    every = placements(graph, where)
    slo = Slo(accuracy=0.5, latency_s=1.0)
    query = Query(pipeline=graph.name, slo=slo, request_rate_per_s=rate)
    context = PlanningContext(graph=graph, infrastructure=where, query=query)
    full = predict(context, every, work, every.full_steps)
    bound = float(full.latency_s[full.fits].min(initial=1.0)) * slack
    context = replace(context, query=replace(query, slo=replace(slo, latency_s=bound)))
    found = tightened(context, every, work)
    for row in range(len(found)):
        spot = found.placements.take(np.array([row]))
        for tier in np.flatnonzero(spot.widths[0]).tolist():
            assert found.steps[row, tier] in good_steps(where, spot, tier)
    assert found.fits.all()
    # With a rate also where full shares miss the bound, and more copies of less do not.
    costs = [_cheapest(context, every.take(np.array([row])), work) for row in range(len(every))]
    least = min(costs, default=np.inf)
    assert found.cost_usd_per_hour.min(initial=np.inf) == pytest.approx(least)


def test_copies_of_less_meet_a_rate_that_whole_machines_do_not() -> None:
    two = PipelineGraph(
        name="two", operators=(OperatorSpec(name="a"), OperatorSpec(name="b", after=("a",)))
    )
    context, work = _context(two, Slo(accuracy=0.5, latency_s=0.18), 8.6, tiers=2), _work(22, 2)
    every = placements(two, context.infrastructure)
    assert not meets(context, predict(context, every, work, every.full_steps)).any()
    least = min(_cheapest(context, every.take(np.array([row])), work) for row in range(4))
    found = tightened(context, every, work).cost_usd_per_hour.min()
    assert found == pytest.approx(least)


def _cheapest(context: PlanningContext, spot: Placements, work: Work) -> float:
    """The least cost of a placement that is in time, over every vector of shares that is given."""
    where = context.infrastructure
    used = [t for t in np.flatnonzero(spot.widths[0]).tolist() if not where.tiers[t].dedicated]
    grids = [good_steps(where, spot, t) for t in used]
    vectors = np.array(list(itertools.product(*grids)), dtype=np.int64)
    steps = np.repeat(spot.full_steps, len(vectors), axis=0)
    steps[:, used] = vectors
    many = spot.take(np.zeros(len(vectors), dtype=np.int64))
    good = meets(context, predict(context, many, work, steps))
    at = allocations(context, many.take(np.flatnonzero(good)), work, steps[good])
    return float(at.cost_usd_per_hour.min(initial=np.inf))
