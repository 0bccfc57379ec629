"""Traffic goes to pods that answer, as far as they can take it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from circinus.scheduler.routing.regimes import Regime
from circinus.scheduler.routing.sharing import steered, verified_weights
from circinus.scheduler.routing.traffic import RouteMethod, RouteTraffic, cheapest_traffic
from tests.deploy.kubernetes.routes_in_a_cluster import cluster_route, unit

ROUTE = cluster_route().route  # 150 requests/s, of which a pod of either unit takes 100


def traffic(**weights: float) -> RouteTraffic:
    return RouteTraffic(regime=Regime.COST, numbers={}, weights=weights)


@pytest.mark.parametrize(
    ("ready", "weights"),
    [
        ({}, {"cheap": 1.0}),  # whatever comes up first is to be found
        ({"cheap": 0, "dear": 2}, {"dear": 1.0}),
        ({"cheap": 0, "dear": 1}, {"dear": 1.0}),
        ({"cheap": 1}, {"cheap": 1.0}),  # too little, and all that there is
        ({"cheap": 1, "dear": 1}, {"cheap": 2 / 3, "dear": 1 / 3}),  # 100 and what is left of 150
        ({"cheap": 2, "dear": 1}, {"cheap": 1.0}),
    ],
)
def test_what_is_ready_takes_what_it_can(ready: dict[str, int], weights: dict[str, float]) -> None:
    assert steered(ROUTE, traffic(cheap=1.0), ready) == pytest.approx(weights)


def test_without_demand_traffic_is_by_what_is_ready() -> None:
    idle = cluster_route(demand_per_s=0.0).route
    assert steered(idle, traffic(), {"cheap": 1, "dear": 3}) == {"cheap": 0.25, "dear": 0.75}


def test_a_unit_that_is_too_slow_gets_none_however_ready_it_is() -> None:
    slow = cluster_route(unit("cheap"), unit("slow", latency_s=5.0)).route
    assert steered(slow, traffic(cheap=1.0), {"cheap": 1, "slow": 9}) == {"cheap": 1.0}


_counts = st.fixed_dictionaries({name: st.integers(0, 9) for name in "abc"})


@given(_counts, st.floats(0.1, 2000), st.sampled_from([*RouteMethod]))
def test_nobody_gets_more_than_its_ready_pods_take_while_all_together_suffice(
    ready: dict[str, int], demand: float, method: RouteMethod
) -> None:
    units = [unit("a", 1.0, 100.0), unit("b", 1.5, 130.0), unit("c", 0.5, 40.0)]
    route = cluster_route(*units, demand_per_s=demand).route
    most = {each.name: ready[each.name] * each.most_per_s for each in units}
    assume(any(most.values()))
    wanted = cheapest_traffic(route, method)
    found = steered(route, wanted, ready)
    assert sum(found.values()) == pytest.approx(1.0)
    assert all(ready[name] > 0 for name in found)
    enough = sum(most.values()) >= demand
    for name, part in found.items():
        even = most[name] / sum(most.values())
        assert part == pytest.approx(even) if not enough else part * demand <= most[name] + 1e-6
    if all(ready[name] >= count for name, count in wanted.numbers.items()):
        assert found == pytest.approx(dict(wanted.weights))


@pytest.mark.parametrize(
    ("ready", "agree", "weights"),
    [
        ({"cheap": 2, "dear": 2}, (), {"cheap": 0.25, "dear": 0.75}),  # as before
        ({"cheap": 2}, ("dear",), {"cheap": 0.25, "dear": 0.75}),
        ({"cheap": 2, "dear": 2}, ("dear",), {"dear": 1.0}),
        ({"cheap": 2, "dear": 2}, ("cheap", "dear"), {"cheap": 1.0}),
    ],
)
def test_what_does_not_agree_gets_none_while_something_that_does_is_ready(
    ready: dict[str, int], agree: tuple[str, ...], weights: dict[str, float]
) -> None:
    before = {"cheap": 0.25, "dear": 0.75}
    assert verified_weights(ROUTE, traffic(cheap=1.0), ready, agree, before) == weights


def test_what_is_left_out_keeps_none_of_what_it_had() -> None:
    before, ready = {"cheap": 0.25, "dear": 0.75}, {"cheap": 2}
    without = replace(ROUTE, left_out=frozenset({"cheap"}))
    assert verified_weights(without, traffic(dear=1.0), ready, (), before) == {"dear": 1.0}
    assert verified_weights(without, traffic(dear=1.0), ready, (), {"cheap": 1.0}) == {}


_parts = st.fixed_dictionaries({name: st.floats(0, 1) for name in "abc"})
_some = st.sets(st.sampled_from("abc")).map(frozenset)


@given(_counts, _some, _some, _parts)
def test_traffic_of_verified_units_is_whole_or_none(
    ready: dict[str, int], agree: frozenset[str], out: frozenset[str], before: dict[str, float]
) -> None:
    route = cluster_route(*(unit(name) for name in "abc")).route
    without = replace(route, left_out=out)
    wanted = cheapest_traffic(without, RouteMethod.CARRIED)
    found = verified_weights(without, wanted, ready, agree, before)
    assert sum(found.values()) == pytest.approx(1.0 if found else 0.0)
    assert not found.keys() & out
    able = {name for name in agree - out if ready[name]}
    assert not able or found.keys() <= able
