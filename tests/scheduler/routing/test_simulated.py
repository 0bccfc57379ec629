"""Routes in simulation, with the paper's units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.routing.regimes import Regime
from circinus.scheduler.routing.routers import (
    POLLED_S,
    EvenRouter,
    RegimeRouter,
    Router,
    StaticRouter,
)
from circinus.scheduler.routing.series import RouteRecorder, RouteSeries
from circinus.scheduler.routing.simulated import (
    CapacityChange,
    RoutedRun,
    RouteScenario,
    simulated,
)
from circinus.scheduler.routing.traffic import RouteMethod, cheapest_counts
from circinus.scheduler.routing.units import EndpointRoute
from circinus.studies.routing.study import UNITS

# A tenth of the paper's throughput, and half an hour for a day: a unit starts in less than a
# minute of that day.
TENTH = tuple(replace(unit, most_per_s=unit.most_per_s / 10) for unit in UNITS)
ROUTE = EndpointRoute(name="sd21", demand_per_s=30.0, latency_s=1.0, units=TENTH)
QUIET = RouteScenario(name="quiet", route=ROUTE, cycle_s=1800.0, cycles=1, starts_s=1.0)
LOST = replace(
    QUIET,
    name="lost",
    changes=(
        CapacityChange(at_s=700.0, unit="inf2", available=0),
        CapacityChange(at_s=1300.0, unit="inf2", available=None),
    ),
)


def run_of(scenario: RouteScenario, router: Router, seed: int = 0) -> RoutedRun:
    """Return what comes of it with a seed."""
    return simulated(scenario, router, np.random.default_rng(seed))


def test_the_same_seed_gives_the_same_run() -> None:
    short = replace(QUIET, cycle_s=100.0)
    runs = [run_of(short, RegimeRouter(route=ROUTE), 3) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0] != run_of(short, RegimeRouter(route=ROUTE), 4)


def test_where_demand_fits_cost_mode_costs_what_the_program_says() -> None:
    run = run_of(QUIET, RegimeRouter(route=ROUTE))
    moments = np.arange(0.0, QUIET.ends_s, 10.0)
    price = {unit.name: unit.price_usd_per_hour for unit in UNITS}
    least = 0.0
    for at_s in moments.tolist():
        wanted = replace(ROUTE, demand_per_s=1.25 * QUIET.demand_per_s(at_s))
        numbers = cheapest_counts(wanted)
        assert numbers is not None
        least += sum(price[name] * number for name, number in numbers.items()) / 360
    assert run.usd == pytest.approx(least, rel=0.02)
    assert run.served == run.requests
    assert run.late == 0


@pytest.mark.parametrize("seed", range(3))
def test_no_request_is_lost_across_a_failover_and_back(seed: int) -> None:
    router = RegimeRouter(route=ROUTE)
    run = run_of(LOST, router, seed)
    assert run.served == run.requests
    assert run.switch_s == 0.0  # at the event
    assert router.state.failovers == 1
    assert router.state.regime.value == "cost"  # back after it


def test_whoever_polls_sends_requests_to_what_is_gone_until_it_looks() -> None:
    polled = RegimeRouter(route=ROUTE, method=RouteMethod.PUBLISHED, polls_s=POLLED_S)
    assert run_of(LOST, polled).switch_s == pytest.approx(200.0)  # it looks at 900 s


def test_static_weights_wait_for_what_is_gone() -> None:
    run = run_of(LOST, StaticRouter(route=ROUTE))
    assert 200.0 < run.switch_s <= 600.0  # until it is there again, or not wanted for the demand
    assert run.late > run.requests / 10


def test_round_robin_pays_for_units_that_nobody_needs() -> None:
    even = run_of(QUIET, EvenRouter(route=ROUTE))
    assert even.served == even.requests
    assert even.usd > 1.3 * run_of(QUIET, RegimeRouter(route=ROUTE)).usd


SERIES_TENTH = tuple(replace(unit, most_per_s=unit.most_per_s / 10) for unit in UNITS)
SERIES_ROUTE = EndpointRoute(name="sd21", demand_per_s=30.0, latency_s=1.0, units=SERIES_TENTH)
SERIES_LOST = RouteScenario(
    name="lost",
    route=SERIES_ROUTE,
    cycle_s=240.0,
    starts_s=5.0,
    changes=(
        CapacityChange(at_s=100.0, unit="inf2", available=0),
        CapacityChange(at_s=260.0, unit="inf2", available=None),
    ),
)
GONE = replace(SERIES_LOST, changes=SERIES_LOST.changes[:1])  # and never back


def watched(
    scenario: RouteScenario, router: Router, bucket_s: float
) -> tuple[RoutedRun, RouteSeries]:
    """Return what comes of it and its series."""
    recorder = RouteRecorder(
        units=tuple(unit.name for unit in scenario.route.units),
        bucket_s=bucket_s,
        lasts_s=scenario.lasts_s,
        late_s=scenario.late_s,
    )
    return simulated(scenario, router, np.random.default_rng(0), recorder), recorder.series()


@pytest.mark.parametrize(
    ("bucket_s", "lasts_s", "message"),
    [
        (0.0, 60.0, "bucket_s must be finite and > 0"),
        (10.0, 0.0, "lasts_s must be finite and > 0"),
    ],
)
def test_time_without_buckets_is_refused(bucket_s: float, lasts_s: float, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        RouteRecorder(units=("a",), bucket_s=bucket_s, lasts_s=lasts_s, late_s=1.0)


def test_a_run_in_which_nothing_happens_has_a_series_all_the_same() -> None:
    recorder = RouteRecorder(units=("a", "b"), bucket_s=10.0, lasts_s=20.0, late_s=1.0)
    series = recorder.series()
    assert series.served.shape == series.busy.shape == (2, series.arrivals.size)
    assert series.arrivals.sum() == series.usd.sum() == 0.0
    assert np.isnan(series.p95_s).all()
    assert np.isnan(series.busy).all()
    assert series.regimes == ()


def test_requests_that_are_never_served_are_lost_when_they_came() -> None:
    nothing = tuple(replace(unit, available=0) for unit in SERIES_TENTH)
    empty = replace(SERIES_LOST, route=replace(SERIES_ROUTE, units=nothing), changes=())
    run, series = watched(empty, StaticRouter(route=empty.route), 10.0)
    assert run.served == 0
    np.testing.assert_array_equal(series.lost, series.arrivals)
    assert series.lost.sum() == run.requests


@pytest.mark.parametrize("bucket_s", [0.7, 10.0, 1e4])  # not whole, many, one
@pytest.mark.parametrize("router", [RegimeRouter, StaticRouter])
@pytest.mark.parametrize("scenario", [SERIES_LOST, GONE])
def test_a_series_adds_up_to_the_run(
    scenario: RouteScenario, router: type[RegimeRouter | StaticRouter], bucket_s: float
) -> None:
    run, series = watched(scenario, router(route=SERIES_ROUTE), bucket_s)
    assert series.arrivals.sum() == run.requests
    assert series.served.sum() == run.served
    assert series.late.sum() == run.late
    assert series.lost.sum() == run.requests - run.served
    assert series.usd.sum() == pytest.approx(run.usd)
    assert np.nanmax(series.busy) <= 1 + 1e-9


def test_what_is_recorded_changes_nothing() -> None:
    plain = simulated(SERIES_LOST, RegimeRouter(route=SERIES_ROUTE), np.random.default_rng(0))
    assert watched(SERIES_LOST, RegimeRouter(route=SERIES_ROUTE), 10.0)[0] == plain


def test_regimes_are_told_when_they_change_and_why() -> None:
    _, series = watched(SERIES_LOST, RegimeRouter(route=SERIES_ROUTE), 10.0)
    first, failed, back = series.regimes
    assert (first.at_s, first.regime) == (0.0, Regime.COST)
    assert (failed.at_s, failed.regime) == (100.0, Regime.CAPACITY)
    assert failed.why.startswith("cannot be had: inf2 (0 of ")
    # Demand is low from 230 s on: another unit is wanted, and that can be had.
    assert (back.at_s, back.regime) == (260.0, Regime.COST)
    assert back.why == "all that is wanted could be had for 30 s"


def test_a_unit_that_is_lost_serves_nothing_until_it_is_back() -> None:
    _, series = watched(SERIES_LOST, RegimeRouter(route=SERIES_ROUTE), 10.0)
    inf2 = series.units.index("inf2")
    assert series.served[inf2, 3:10].min() > 0  # before, for the lowest demand, trn1 is cheaper
    assert series.served[inf2, 11:26].sum() == series.running[inf2, 11:26].sum() == 0
    assert series.served[inf2, 30:40].min() > 0
    assert series.served[series.units.index("trn1"), 12:20].min() > 0  # instead
