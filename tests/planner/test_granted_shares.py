"""Plans on tiers with GPUs have shares that these give; brute force over all that they give."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.operators import OperatorSpec, Scaling
from circinus.pipelines.model.query import PlanningContext, Query
from circinus.pipelines.model.shares import Gpus, GpuSharing
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import MachineType, Tier
from circinus.planner.deployment.placement import Placements, placements
from circinus.planner.deployment.prediction import meets, predict
from circinus.planner.deployment.shares import allocations, tightened

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
    start = every.take(
        np.flatnonzero(meets(context, predict(context, every, work, every.full_steps)))
    )
    costs = [_cheapest(context, start.take(np.array([row])), work) for row in range(len(start))]
    least = min(costs, default=np.inf)
    assert found.cost_usd_per_hour.min(initial=np.inf) == pytest.approx(least)


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
