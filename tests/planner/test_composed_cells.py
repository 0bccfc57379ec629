from itertools import product

import numpy as np
import pytest

from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.operators import Knob, OperatorSpec, Scaling
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import PlanningContext, Query
from circinus.pipelines.model.restrictions import Restrictions
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.deployment.callers import Callers
from circinus.planner.deployment.placement import placements, placements_of
from circinus.planner.deployment.prediction import predict
from circinus.planner.models.composed_cells import CellAmounts, CellComposer, prices
from tests.oracles.called_problems import GRAPH, SPACE, infrastructure
from tests.oracles.synthetic import chain

KNOBS = (Knob(name="k", values=(0, 1)),)
DIAMOND = PipelineGraph(
    name="diamond",
    operators=(
        OperatorSpec(name="a", knobs=KNOBS),
        OperatorSpec(name="b", after=("a",), knobs=KNOBS),
        OperatorSpec(
            name="c", after=("a",), scaling=Scaling.BATCHED, batch_latency={1: 1.0, 4: 2.0}
        ),
        OperatorSpec(name="d", after=("b", "c"), knobs=KNOBS),
        OperatorSpec(name="e", after=("c",)),
    ),
)
TIERS = Infrastructure(
    name="three",
    tiers=(
        Tier(name="device", speed_factor=0.5, dedicated=True),
        Tier(name="edge", price_usd_per_hour=1.5),
        Tier(name="cloud", price_usd_per_hour=4.0, speed_factor=3.0),
    ),
    links=(
        Link(between=("device", "edge"), bandwidth_bytes_per_s=1e5, delay_s=0.01),
        Link(between=("edge", "cloud"), bandwidth_bytes_per_s=1e6, delay_s=0.02),
    ),
)


def _context(graph: PipelineGraph, infrastructure: Infrastructure = TIERS) -> PlanningContext:
    query = Query(pipeline=graph.name, slo=Slo(accuracy=0.5, latency_s=2.0))
    return PlanningContext(graph=graph, infrastructure=infrastructure, query=query)


INPUT_BYTES = 2e4


def _drawn(counts: list[int]) -> tuple[list[FloatArray], list[FloatArray]]:
    """Seconds and bytes of every cell of every operator."""
    rng = np.random.default_rng(0)
    seconds = [rng.uniform(0.01, 0.3, count) for count in counts]
    return seconds, [rng.uniform(0, 1e4, count) for count in counts]


def _amounts(
    cells: tuple[list[FloatArray], list[FloatArray]], waiting: float = 0.0
) -> CellAmounts:
    seconds, sizes = cells
    return CellAmounts(seconds, [np.full(len(s), waiting) for s in seconds], sizes, INPUT_BYTES)


def _expanded(values: list[FloatArray], which: list[IndexArray]) -> FloatArray:  # (O, C)
    return np.stack([own[cell] for own, cell in zip(values, which, strict=True)])


@pytest.mark.parametrize("waiting", [0.0, 0.7])
def test_configurations_composed_by_cells_are_predicted_one_by_one(waiting: float) -> None:
    context, spots = _context(DIAMOND), placements(DIAMOND, TIERS)
    knobs = np.array(list(product(range(2), repeat=3)))  # of a, b and d
    lineages = [[0], [0, 1], [0], [0, 1, 2], [0]]
    which = [
        np.unique(knobs[:, columns], axis=0, return_inverse=True)[1].ravel()
        for columns in lineages
    ]
    cells = _drawn([int(own.max()) + 1 for own in which])
    seconds, sizes = (_expanded(of, which) for of in cells)
    amounts, slices = _amounts(cells, waiting), spots.full_steps * spots.widths
    composers = (
        CellComposer(context, which, tiers, full)
        for tiers, full in zip(spots.tiers, slices, strict=True)
    )
    found = np.stack(
        [each.compose(amounts, seconds, waiting * seconds, 1.0)[0] for each in composers]
    )
    for c in range(len(knobs)):
        work = Work(
            operator_s=seconds[:, [c]],
            output_bytes=sizes[:, [c]],
            input_bytes=np.array([INPUT_BYTES]),
            waited_s=waiting * seconds[:, [c]] if waiting else None,
        )
        expected = predict(context, spots, work, spots.full_steps).latency_s
        assert found[:, c] == pytest.approx(expected)


def test_the_cost_is_that_of_the_best_shares_of_a_chain() -> None:
    graph = chain(0, 0, 0)
    context, rng = _context(graph), np.random.default_rng(1)
    which = [np.zeros(1, dtype=np.int64)] * 3
    cells, tiers = _drawn([1, 1, 1]), np.array([1, 2, 2])
    composer = CellComposer(context, which, tiers, np.array([0, 20, 20]))
    seconds = _expanded(cells[0], which)
    waited_s = np.array([[0.0], [0.0], [0.0]])
    latency, cost = composer.compose(_amounts(cells), seconds, waited_s, 1.0)
    busy = np.array([seconds[0, 0], (seconds[1, 0] + seconds[2, 0]) / 3])
    moving, price = latency[0] - busy.sum(), np.array([1.5, 4.0])
    # Any shares, scaled until they just meet the SLO: none cost less, and some hardly more.
    shares = rng.uniform(0.01, 1, (20_000, 2))
    shares *= (busy / shares).sum(axis=1, keepdims=True) / (2.0 - moving)
    tried = shares @ price
    assert tried.min() >= cost[0] * (1 - 1e-9)
    assert tried.min() == pytest.approx(cost[0], rel=1e-4)


def test_no_share_is_bought_for_what_an_operator_waits() -> None:
    graph = chain(0, 0)
    cells, which = _drawn([1, 1]), [np.zeros(1, dtype=np.int64)] * 2
    composer = CellComposer(_context(graph), which, np.array([1, 1]), np.array([0, 20, 0]))
    seconds = _expanded(cells[0], which)
    latency, cost = composer.compose(_amounts(cells, 0.75), seconds, 0.75 * seconds, 1.0)
    computes_s = 0.25 * seconds.sum()
    # All but what computes takes what it takes: 1.5 a share, of as much as the rest of 2 s needs.
    assert cost[0] == pytest.approx(1.5 * computes_s / (2.0 - (latency[0] - computes_s)))


def test_where_moving_takes_as_long_as_the_slo_allows_there_is_no_cost() -> None:
    graph = chain(0)
    cells, which = _drawn([1]), [np.zeros(1, dtype=np.int64)]
    composer = CellComposer(_context(graph), which, np.array([2]), np.array([0, 0, 20]))
    seconds = _expanded(cells[0], which)
    amounts, waited_s = _amounts(cells), np.zeros((1, 1))
    assert np.isfinite(composer.compose(amounts, seconds, waited_s, 1.0)[1])
    assert composer.compose(amounts, seconds, waited_s, 10.0)[1] == np.inf


def test_tiers_without_price_cost_machines_where_they_are_shared() -> None:
    free = Infrastructure(
        name="free",
        tiers=(Tier(name="device", dedicated=True), Tier(name="edge")),
        links=(Link(between=("device", "edge"), bandwidth_bytes_per_s=1e9),),
    )
    assert prices(_context(DIAMOND)).tolist() == [0.0, 1.5, 4.0]
    assert prices(_context(DIAMOND, free)).tolist() == [0.0, 1.0]


def test_callers_are_composed_where_their_settings_have_them() -> None:
    """Every configuration of rented and called operators, at each of its placements."""
    where = infrastructure(np.random.default_rng(4))
    context = _context(GRAPH, where)
    callers = Callers.of(GRAPH, where, Restrictions())
    spots = placements_of(callers, GRAPH, where)
    knobs = SPACE.indices(list(range(SPACE.size)))
    which = [
        np.unique(knobs[:, columns], axis=0, return_inverse=True)[1].ravel()
        for columns in ([0], [0, 1], [0, 1])
    ]
    seconds, sizes = _drawn([2, 6, 6])
    operator_s, output_bytes = _expanded(seconds, which), _expanded(sizes, which)
    for row in range(SPACE.size):
        mine = spots.where(callers, callers.called(SPACE.configuration(row)))
        work = Work(
            operator_s=operator_s[:, [row]],
            output_bytes=output_bytes[:, [row]],
            input_bytes=np.array([INPUT_BYTES]),
        )
        true = predict(context, mine, work, mine.full_steps).latency_s
        slices = mine.full_steps * mine.widths
        for tiers, full, latency in zip(mine.tiers, slices, true, strict=True):
            # Other settings have the reader elsewhere: on `cloud`, `near` and `far`.
            reader = np.array([2, 1, 3])[knobs[:, 1]]
            firsts = np.unique(which[1], return_index=True)[1]
            moved = {1: reader[firsts], 2: np.ones(6, dtype=np.int64)}
            moved[1][which[1][row]] = tiers[1]
            composer = CellComposer(context, which, tiers, full, moved)
            assert composer.tiers_at(row).tolist() == tiers.tolist()
            waited_s = np.zeros_like(operator_s)
            found, _ = composer.compose(_amounts((seconds, sizes)), operator_s, waited_s, 1.0)
            assert found[row] == pytest.approx(latency)
