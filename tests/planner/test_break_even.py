"""At which request rate machines become cheaper than calls; the oracle is the closed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.plan import Plan
from circinus.planner.answers.break_even import break_even
from tests.planner.price_tables import PriceTable


def drawn(seed: int) -> PriceTable:
    """Return a price table where one machine pays off before it is full."""
    rng = np.random.default_rng(seed)
    per_s, price = rng.uniform(0.5, 20), rng.uniform(0.1, 8)
    at = rng.uniform(0.05, 0.95) * per_s
    return PriceTable(
        machine_usd_per_hour=price,
        per_machine_per_s=per_s,
        usd_per_request=price / (3600 * at),
        spread=rng.uniform(1.0, 1.3),
    )


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (0.0, 1.0, "rate must be finite and > 0, got 0.0"),
        (1.0, inf, "rate must be finite and > 0, got inf"),
        (2.0, 1.0, "rate must be LOW:HIGH with LOW < HIGH, got '2:1'"),
        (1.0, 1.0, "rate must be LOW:HIGH with LOW < HIGH, got '1:1'"),
    ],
)
def test_rates_that_are_no_range_are_refused(low: float, high: float, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        break_even(lambda rate: [], low, high)


@pytest.mark.parametrize("seed", range(10))
def test_the_rate_equals_the_closed_form_on_drawn_price_tables(seed: int) -> None:
    table = drawn(seed)
    expected = table.closed_form
    assert expected is not None
    found = break_even(table.plans, expected / 50, expected * 200)
    assert found.rate == pytest.approx(expected, rel=1e-9)
    assert found.for_good == pytest.approx(table.for_good, rel=1e-5)
    # Calls as dear as they may be are machines over more an hour, and the other way about.
    assert found.rate_low == pytest.approx(expected / table.spread, rel=1e-9)
    late = expected * table.spread
    if late <= table.per_machine_per_s:
        assert found.rate_high == pytest.approx(late, rel=1e-9)
    else:
        assert found.rate_high is None  # then a machine never pays off


def test_no_machine_ever_pays_off_where_a_full_one_costs_more_than_its_calls() -> None:
    table = PriceTable(machine_usd_per_hour=4.0, per_machine_per_s=1.0, usd_per_request=0.001)
    assert table.closed_form is None  # 1.11 a second, and it answers 1
    found = break_even(table.plans, 0.01, 20)
    assert (found.rate, found.rate_low, found.rate_high, found.for_good) == (None,) * 4
    assert found.calling is not None
    assert found.calling.calls is not None


def test_calls_win_again_where_a_further_machine_stands_nearly_empty() -> None:
    # pays off at 0.8/s; the second comes at 1/s and pays off at 1.6, the fifth at 4, when four
    # are full: from there on machines stay cheaper
    table = PriceTable(machine_usd_per_hour=2.88, per_machine_per_s=1.0, usd_per_request=0.001)
    found = break_even(table.plans, 0.1, 100)
    assert found.rate == pytest.approx(0.8)
    assert found.for_good == pytest.approx(3.2, rel=1e-5)
    short = break_even(table.plans, 0.1, 1.1)
    assert short.rate == pytest.approx(0.8)
    assert short.for_good is None  # at 1.1/s calls are cheaper


def test_machines_are_needed_where_endpoints_let_no_more_through() -> None:
    table = PriceTable(
        machine_usd_per_hour=50.0,
        per_machine_per_s=5.0,
        usd_per_request=0.001,
        most_per_s=1.7,
    )
    found = break_even(table.plans, 0.1, 10)
    assert found.rate == pytest.approx(1.7, rel=1e-5)


def test_seconds_that_may_be_longer_make_the_interval_wider() -> None:
    # 0.8/s pays off on one machine of 1/s; twice as slow it answers 0.5/s: then never
    table = PriceTable(
        machine_usd_per_hour=2.88, per_machine_per_s=1.0, usd_per_request=0.001, slower=2.0
    )
    found = break_even(table.plans, 0.1, 100)
    assert found.rate == pytest.approx(0.8)
    assert found.rate_low == pytest.approx(0.8)
    assert found.rate_high is None


@pytest.mark.parametrize("only", ["machine", "endpoint", "nothing"])
def test_where_there_is_one_kind_of_plan_only_nothing_changes(only: str) -> None:
    table = PriceTable(machine_usd_per_hour=1.0, per_machine_per_s=5.0, usd_per_request=0.001)

    def plans(rate: float) -> Sequence[Plan]:
        wanted = {"machine": False, "endpoint": True}.get(only)
        return [p for p in table.plans(rate) if (p.calls is not None) is wanted]

    found = break_even(plans, 0.1, 10)
    expected = 0.1 if only == "machine" else None  # from the least rate on
    assert (found.rate, found.for_good) == (expected, expected)


def _scanned(wins: Callable[[float], bool], low: float, high: float, looks: int) -> float | None:
    rates = np.geomspace(low, high, looks)
    return next((float(r) for r in rates if wins(float(r))), None)


@settings(max_examples=80, deadline=None)
@given(
    price=st.floats(0.1, 10),
    per_s=st.floats(0.2, 10),
    at=st.floats(0.1, 3),
    machines=st.integers(1, 6),
    most=st.one_of(st.just(inf), st.floats(0.1, 20)),
)
def test_no_rate_is_missed_that_a_fine_scan_finds(
    price: float, per_s: float, at: float, machines: int, most: float
) -> None:
    table = PriceTable(
        machine_usd_per_hour=price,
        per_machine_per_s=per_s,
        usd_per_request=price / (3600 * at * per_s),
        machines=machines,
        most_per_s=most,
    )

    def machines_win(rate: float) -> bool:
        rented, called = inf, inf
        for each in table.plans(rate):
            usd = 0.0 if each.calls is None else 3600 * rate * each.calls.usd_per_request.value
            if each.calls is None:
                rented = min(rented, each.cost_usd_per_hour)
            else:
                called = min(called, usd)
        return rented < inf and rented <= called

    low, high = per_s / 20, per_s * 8
    found = break_even(table.plans, low, high).rate
    scanned = _scanned(machines_win, low, high, 500)
    if scanned is not None:
        assert found is not None
        assert found <= scanned * (1 + 2e-6)
    if found is not None:
        assert machines_win(found * (1 + 1e-9))
