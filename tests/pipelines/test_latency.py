from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.latency import (
    Composition,
    TierSums,
    Work,
    busy_seconds,
    compose,
    deployment_arrays,
    request_seconds,
    stretch_of,
)
from circinus.pipelines.model.operators import OperatorSpec, Scaling
from circinus.pipelines.model.plan import DemandItem, Deployment, cost_usd_per_hour
from circinus.pipelines.model.tiers import Tier
from tests.pipelines.strategies import graphs, infrastructures, works


def _brute_force(
    graph: PipelineGraph, infra: Infrastructure, work: Work, tiers: list[int], shares: list[float]
) -> np.ndarray:
    """The longest of all paths from the input to an operator, each added up on its own."""

    def neighbours(o: int) -> list[int]:
        """Those before it in its slice, which it does not wait for."""
        before = [e for e in range(o) if tiers[e] == tiers[o] and e not in graph.lineages[o]]
        return [] if infra.tiers[tiers[o]].remote else before

    def paths(o: int) -> list[list[int]]:
        parents = graph.parents[o]
        found = [[*path, o] for p in (*parents, *neighbours(o)) for path in paths(p)]
        return found if parents else [*found, [o]]

    def transfer(a: int, b: int, size: float) -> float:
        route = infra.routes[a][b]
        return route.delay_s + size * route.s_per_byte

    def seconds(path: list[int], n: int) -> float:
        origin = infra.position(infra.origin or "")
        total = transfer(origin, tiers[path[0]], work.input_bytes[n])
        for a, b in pairwise(path):
            if a in graph.parents[b]:
                total += transfer(tiers[a], tiers[b], work.output_bytes[a, n])
        for o in path:
            tier = infra.tiers[tiers[o]]
            joins = any(graph.parents[e] == graph.parents[o] for e in neighbours(o))
            outside = [p for p in graph.parents[o] if tiers[p] != tiers[o]]
            if not joins and (outside or not graph.parents[o]):
                handed = [
                    work.output_bytes[p, n] for p in graph.parents[o] if tiers[p] != tiers[o]
                ]
                handed = handed if graph.parents[o] else [work.input_bytes[n]]
                called = tier.call_s + tier.call_s_per_byte * sum(handed)
                total += called / tier.speed_factor / shares[o] + tier.call_delay_s
            stretch = float(stretch_of(graph.operators[o], np.array([shares[o]]))[0])
            waited_s = 0.0 if work.waited_s is None else work.waited_s[o, n]
            if graph.operators[o].scaling is Scaling.BATCHED or tier.share_steps is not None:
                waited_s = 0.0
            computed_s = work.operator_s[o, n] - waited_s
            total += waited_s + computed_s * stretch / tier.speed_factor
        return total

    everything = [path for o in range(len(graph.operators)) for path in paths(o)]
    return np.array([max(seconds(p, n) for p in everything) for n in range(len(work.input_bytes))])


@given(data=st.data(), graph=graphs(most=6, batched=True), infra=infrastructures())
def test_composition_equals_brute_force_over_all_paths(
    data: st.DataObject, graph: PipelineGraph, infra: Infrastructure
) -> None:
    operators = len(graph.operators)
    work = data.draw(works(operators))
    waiting = np.array(
        data.draw(st.lists(st.floats(0, 1), min_size=operators, max_size=operators))
    )
    work = replace(work, waited_s=work.operator_s * waiting[:, None])
    tier = st.integers(0, len(infra.tiers) - 1)
    rows = [data.draw(st.lists(tier, min_size=operators, max_size=operators)) for _ in range(2)]
    share = st.integers(1, 20).map(lambda i: i / 20)
    shares = [data.draw(st.lists(share, min_size=operators, max_size=operators)) for _ in rows]

    composed = compose(graph, infra, work, np.array(rows), np.array(shares))

    expected = [
        _brute_force(graph, infra, work, row, part) for row, part in zip(rows, shares, strict=True)
    ]
    np.testing.assert_allclose(composed, expected, rtol=1e-9)


@given(data=st.data(), operators=st.integers(1, 5), infra=infrastructures())
def test_sums_over_tiers_equal_the_composition_of_a_chain(
    data: st.DataObject, operators: int, infra: Infrastructure
) -> None:
    chain = PipelineGraph(
        name="line",
        operators=tuple(
            OperatorSpec(name=f"o{i}", after=(f"o{i - 1}",) if i else ()) for i in range(operators)
        ),
    )
    work, count = data.draw(works(operators)), len(infra.tiers)
    waiting = np.array(
        data.draw(st.lists(st.floats(0, 1), min_size=operators, max_size=operators))
    )
    work = replace(work, waited_s=work.operator_s * waiting[:, None])
    tier = st.integers(0, count - 1)
    spots = [data.draw(st.lists(tier, min_size=operators, max_size=operators)) for _ in range(2)]
    share = st.integers(1, 20).map(lambda i: i / 20)
    shares = np.array([data.draw(st.lists(share, min_size=count, max_size=count)) for _ in spots])
    placement = np.array(spots)
    composed = Composition.of(chain, infra, work, placement)
    sums = TierSums.of(composed, placement, count)
    assert sums is not None
    of_operators = np.take_along_axis(shares, placement, axis=1)
    np.testing.assert_allclose(
        sums.seconds(np.arange(2), shares), composed.seconds(of_operators), rtol=1e-9, atol=1e-12
    )


def test_there_are_no_sums_over_tiers_where_operators_wait_for_others_or_take_batches() -> None:
    fork = ("a", ()), ("b", ("a",)), ("c", ("a",))
    branches = PipelineGraph(
        name="fork", operators=tuple(OperatorSpec(name=n, after=after) for n, after in fork)
    )
    batched = replace(CHAIN.operators[0], scaling=Scaling.BATCHED, batch_latency={1: 1.0, 4: 2.0})
    for graph in (branches, replace(CHAIN, operators=(batched, CHAIN.operators[1]))):
        count = len(graph.operators)
        work = Work(
            operator_s=np.ones((count, 1)),
            output_bytes=np.ones((count, 1)),
            input_bytes=np.ones(1),
        )
        placement = np.zeros((1, count), dtype=np.int64)
        assert TierSums.of(Composition.of(graph, TWO, work, placement), placement, 2) is None


CHAIN = PipelineGraph(
    name="g", operators=(OperatorSpec(name="a"), OperatorSpec(name="b", after=("a",)))
)
TWO = Infrastructure(
    name="two",
    tiers=(
        Tier(name="device", speed_factor=0.5, dedicated=True),
        Tier(name="cloud", price_usd_per_hour=2.0),
    ),
    links=(Link(between=("device", "cloud"), bandwidth_bytes_per_s=1000, delay_s=0.1),),
)
WORK = Work(
    operator_s=np.array([[0.1], [0.2]]),
    output_bytes=np.array([[500.0], [1.0]]),
    input_bytes=np.array([2000.0]),
)


def _deployed(a: str, b: str, share: float = 1.0) -> Deployment:
    return Deployment(
        placement={"a": a, "b": b}, allocation={"a": share, "b": share}, replicas={"a": 1, "b": 1}
    )


def test_a_split_chain_pays_for_the_link_between() -> None:
    # a on the device: 0.1 / 0.5; link: 0.1 + 500 / 1000; b in the cloud: 0.2
    assert request_seconds(CHAIN, TWO, WORK, _deployed("device", "cloud"))[0] == pytest.approx(1.0)


def test_the_input_travels_from_the_origin() -> None:
    # link: 0.1 + 2000 / 1000; 0.1 + 0.2 in the cloud
    assert request_seconds(CHAIN, TWO, WORK, _deployed("cloud", "cloud"))[0] == pytest.approx(2.4)


def test_half_a_machine_takes_twice_as_long() -> None:
    # (0.1 + 0.2) / 0.5 speed / 0.5 share
    halved = request_seconds(CHAIN, TWO, WORK, _deployed("device", "device", 0.5))
    assert halved[0] == pytest.approx(1.2)


def test_a_batched_operator_shares_by_its_curve_and_then_in_proportion() -> None:
    operator = OperatorSpec(name="llm", scaling=Scaling.BATCHED, batch_latency={1: 1.0, 4: 1.6})

    stretch = stretch_of(operator, np.array([1.0, 0.4, 0.25, 0.125]))

    # 2.5 requests: 1 + 0.6 * 1.5 / 3; beyond four the curve's last point grows in proportion
    np.testing.assert_allclose(stretch, [1.0, 1.3, 1.6, 3.2])


def test_an_operator_that_is_not_placed_is_named() -> None:
    lonely = Deployment(placement={"a": "cloud"}, allocation={"a": 1.0}, replicas={"a": 1})
    with pytest.raises(InvalidInput, match="must place every operator, missing is, got 'b'"):
        request_seconds(CHAIN, TWO, WORK, lonely)


@pytest.mark.parametrize("share", [0.0, 1.05, float("nan"), -0.5])
def test_a_share_outside_its_bounds_is_refused(share: float) -> None:
    with pytest.raises(InvalidInput, match=r"allocation of a must be in \(0, 1\]"):
        _deployed("cloud", "cloud", share)


def test_neighbours_on_a_tier_have_one_share() -> None:
    with pytest.raises(InvalidInput, match="must equal those of a, its neighbour on cloud"):
        Deployment(
            placement={"a": "cloud", "b": "cloud"},
            allocation={"a": 0.5, "b": 0.6},
            replicas={"a": 1, "b": 1},
        )


def test_a_chain_asks_for_one_slice_and_each_replica_for_another() -> None:
    one = _deployed("cloud", "cloud", 0.5)
    copies = Deployment(
        placement=one.placement, allocation=one.allocation, replicas={"a": 3, "b": 3}
    )

    assert one.demand(CHAIN) == (DemandItem("cloud", 0.5),)
    assert copies.demand(CHAIN) == (DemandItem("cloud", 0.5),) * 3
    assert cost_usd_per_hour(copies.demand(CHAIN), TWO) == pytest.approx(3.0)


def test_branches_that_run_at_once_ask_for_a_share_each() -> None:
    fork = PipelineGraph(
        name="g",
        operators=(
            OperatorSpec(name="s"),
            OperatorSpec(name="l", after=("s",)),
            OperatorSpec(name="r", after=("s",)),
        ),
    )
    names = ["s", "l", "r"]
    deployment = Deployment(
        placement=dict.fromkeys(names, "cloud"),
        allocation=dict.fromkeys(names, 0.4),
        replicas=dict.fromkeys(names, 1),
    )

    assert deployment.demand(fork) == (DemandItem("cloud", 0.8),)


def test_a_call_costs_the_instance_where_a_request_enters_its_tier() -> None:
    device, cloud = (replace(tier, call_s=0.01) for tier in TWO.tiers)
    called = replace(TWO, tiers=(device, cloud))

    split = request_seconds(CHAIN, called, WORK, _deployed("device", "cloud", 0.5))
    together = request_seconds(CHAIN, called, WORK, _deployed("device", "device", 0.5))

    # a: (0.1 + 0.01) / 0.5 / 0.5; link: 0.6; b: (0.2 + 0.01) / 0.5
    assert split[0] == pytest.approx(0.44 + 0.6 + 0.42)
    # (0.1 + 0.01 + 0.2) / 0.5 / 0.5: b is called within the instance
    assert together[0] == pytest.approx(1.24)


def test_what_a_call_waits_on_its_way_is_added_once_and_keeps_nothing_busy() -> None:
    device, cloud = (replace(tier, call_delay_s=0.01) for tier in TWO.tiers)
    waits = replace(TWO, tiers=(device, cloud))
    here, apart = _deployed("device", "device", 0.5), _deployed("device", "cloud", 0.5)

    for deployment, calls in ((here, 1), (apart, 2)):
        longer = request_seconds(CHAIN, waits, WORK, deployment)
        bare = request_seconds(CHAIN, TWO, WORK, deployment)
        np.testing.assert_allclose(longer - bare, 0.01 * calls)
    placed = deployment_arrays(CHAIN, waits, apart)
    busy, without = (busy_seconds(CHAIN, each, WORK, *placed) for each in (waits, TWO))
    np.testing.assert_array_equal(busy, without)


def test_no_share_and_no_speed_stretches_what_an_operator_waits() -> None:
    waits = replace(WORK, waited_s=np.array([[0.1], [0.15]]))
    # a only waits; b computes 0.05 / 0.5 speed / 0.1 share
    here = request_seconds(CHAIN, TWO, waits, _deployed("device", "device", 0.1))
    assert here[0] == pytest.approx(0.1 + 0.15 + 1.0)


def _fork(waited_s: float, share: float) -> float:
    names = ["left", "right"]
    graph = PipelineGraph(name="g", operators=tuple(OperatorSpec(name=each) for each in names))
    work = Work(
        operator_s=np.array([[0.04], [0.01]]),
        output_bytes=np.zeros((2, 1)),
        input_bytes=np.zeros(1),
        waited_s=np.array([[0.04], [0.01]]) * waited_s,
    )
    deployment = Deployment(
        placement=dict.fromkeys(names, "t"),
        allocation=dict.fromkeys(names, share),
        replicas=dict.fromkeys(names, 1),
    )
    one = Infrastructure(name="one", tiers=(Tier(name="t"),))
    return float(request_seconds(graph, one, work, deployment)[0])


def test_branches_that_compute_take_turns_in_the_slice_of_both() -> None:
    assert _fork(waited_s=0.0, share=0.1) == pytest.approx((0.04 + 0.01) / 0.2)


def test_branches_that_wait_take_turns_in_the_slice_of_both() -> None:
    assert _fork(waited_s=1.0, share=0.1) == pytest.approx(0.04 + 0.01)
