"""Traffic weights against the paper's table 2 and cases worked out by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.routing.traffic import (
    adjusted_per_s,
    all_counts,
    capacity_weights,
    carried_weights,
    cheapest_counts,
    cost_weights,
    least_usd_per_hour,
    mean_latency_s,
    supply_per_s,
)
from circinus.scheduler.routing.units import DeploymentUnit, EndpointRoute
from circinus.studies.routing.study import UNITS

ROUTE = EndpointRoute(name="sd21", demand_per_s=300.0, latency_s=1.0, units=UNITS)
CHEAP, DEAR = (
    DeploymentUnit(
        name=name,
        model="m",
        hardware=name,
        framework="f",
        price_usd_per_hour=price,
        most_per_s=most,
        latency_s=latency,
    )
    for name, price, most, latency in (("cheap", 1.0, 10.0, 0.5), ("dear", 4.0, 30.0, 0.1))
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "no name!"}, "unit.name must"),
        ({"price_usd_per_hour": 0.0}, "unit cheap.price_usd_per_hour must be finite and > 0"),
        ({"most_per_s": -1.0}, "unit cheap.most_per_s must be finite and > 0"),
        ({"latency_s": 0.0}, "unit cheap.latency_s must be finite and > 0"),
        ({"available": -1}, "unit cheap.available must be >= 0"),
    ],
)
def test_a_unit_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        replace(CHEAP, **change)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"units": ()}, "route.units must have at least one"),
        ({"units": (CHEAP, CHEAP)}, "name of a unit"),
        ({"demand_per_s": -1.0}, "route.demand_per_s must be"),
        ({"latency_s": 0.0}, "route.latency_s must be"),
    ],
)
def test_a_route_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        replace(ROUTE, **change)  # type: ignore[arg-type]  # wrong on purpose


def test_the_adjusted_throughputs_are_those_of_table_2() -> None:
    adjusted = adjusted_per_s(UNITS)
    assert {name: round(value, 1) for name, value in adjusted.items()} == {
        "inf2": 89.2,
        "trn1": 89.2,
        "g5-triton": 89.2,
        "g6-triton": 61.0,
        "g5-cuda": 60.0,
    }


def test_weights_of_cost_mode_as_published_are_by_the_inverse_of_the_price() -> None:
    assert cost_weights((CHEAP, DEAR)) == {"cheap": 0.8, "dear": 0.2}  # 1 and 1/4, over 5/4
    published = cost_weights(UNITS)
    assert sum(published.values()) == pytest.approx(1.0)
    assert published["inf2"] == pytest.approx(0.24915, abs=1e-5)  # 1.31891 / 5.29369


def test_weights_of_capacity_mode_as_published_are_equal_over_what_can_be_had() -> None:
    available = dict.fromkeys((unit.name for unit in UNITS), 2) | {"inf2": 0}
    assert capacity_weights(UNITS, available) == dict.fromkeys(
        ("trn1", "g5-triton", "g6-triton", "g5-cuda"), 0.25
    )


def test_where_nothing_can_be_had_nothing_gets_traffic() -> None:
    assert capacity_weights((CHEAP, DEAR), {"cheap": 0, "dear": 0}) == {}
    assert carried_weights((CHEAP, DEAR), {"cheap": 0, "dear": 0}) == {}


def test_our_weights_make_all_units_equally_busy() -> None:
    numbers = {"cheap": 3, "dear": 1}
    weights = carried_weights((CHEAP, DEAR), numbers)
    assert weights == {"cheap": 0.5, "dear": 0.5}
    assert supply_per_s((CHEAP, DEAR), numbers) == 60.0
    assert mean_latency_s((CHEAP, DEAR), weights) == pytest.approx(0.3)


def test_dollars_of_a_thousand_requests_are_price_over_throughput() -> None:
    assert DEAR.usd_per_1000 == pytest.approx(4.0 / (30.0 * 3600) * 1000)


def test_units_that_are_too_slow_are_wanted_in_no_number() -> None:
    quick = replace(ROUTE, latency_s=0.9)
    assert [unit.name for unit in quick.quick] == ["inf2", "trn1", "g5-triton"]
    numbers = cheapest_counts(quick, {"inf2": 0})
    assert numbers is not None
    assert numbers["g6-triton"] == numbers["g5-cuda"] == numbers["inf2"] == 0
    assert all_counts(quick, {"inf2": 2, "g6-triton": 5})["g6-triton"] == 0


def test_units_that_are_left_out_are_wanted_in_no_number() -> None:
    without = replace(ROUTE, left_out=frozenset({"inf2"}))
    assert "inf2" not in [unit.name for unit in without.quick]
    numbers = cheapest_counts(without)
    assert numbers is not None
    assert (numbers["inf2"], all_counts(without, {"inf2": 2})["inf2"]) == (0, 0)
    assert cheapest_counts(replace(ROUTE, left_out=frozenset(u.name for u in UNITS))) is None


def test_what_cannot_be_served_is_an_answer() -> None:
    few = dict.fromkeys((unit.name for unit in UNITS), 0) | {"inf2": 2}
    assert cheapest_counts(ROUTE, few) is None
    assert least_usd_per_hour(ROUTE, few) is None
    assert all_counts(ROUTE, few)["inf2"] == 2


def test_no_demand_wants_no_units() -> None:
    numbers = cheapest_counts(replace(ROUTE, demand_per_s=0.0))
    assert numbers is not None
    assert set(numbers.values()) == {0}


_UNIT = st.tuples(st.integers(1, 50), st.integers(1, 60), st.integers(0, 4))


@given(drawn=st.lists(_UNIT, min_size=1, max_size=4), demand=st.integers(0, 200))
def test_numbers_are_the_cheapest_of_all_that_serve_the_demand(
    drawn: list[tuple[int, int, int]], demand: int
) -> None:
    units = tuple(
        replace(CHEAP, name=f"u{i}", price_usd_per_hour=float(p), most_per_s=float(t), available=n)
        for i, (p, t, n) in enumerate(drawn)
    )
    route = EndpointRoute(name="r", demand_per_s=float(demand), latency_s=1.0, units=units)
    prices = [
        sum(count * unit.price_usd_per_hour for count, unit in zip(tried, units, strict=True))
        for tried in product(*(range(n + 1) for _, _, n in drawn))
        if sum(c * unit.most_per_s for c, unit in zip(tried, units, strict=True)) >= demand
    ]
    found, least = cheapest_counts(route), least_usd_per_hour(route)
    if not prices:
        assert found is None
        assert least is None
        return
    assert found is not None
    assert least is not None
    price = sum(found[unit.name] * unit.price_usd_per_hour for unit in units)
    assert price == pytest.approx(min(prices))
    assert supply_per_s(units, found) >= demand
    assert least <= price + 1e-6
