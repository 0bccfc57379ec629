"""What a recorder is told of a run adds up to the run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.routing.regimes import Regime
from circinus.scheduler.routing.routers import RegimeRouter, Router, StaticRouter
from circinus.scheduler.routing.series import RouteRecorder, RouteSeries
from circinus.scheduler.routing.simulated import (
    CapacityChange,
    RoutedRun,
    RouteScenario,
    simulated,
)
from circinus.scheduler.routing.units import EndpointRoute
from circinus.studies.routing.study import UNITS

TENTH = tuple(replace(unit, most_per_s=unit.most_per_s / 10) for unit in UNITS)
ROUTE = EndpointRoute(name="sd21", demand_per_s=30.0, latency_s=1.0, units=TENTH)
LOST = RouteScenario(
    name="lost",
    route=ROUTE,
    cycle_s=240.0,
    starts_s=5.0,
    changes=(
        CapacityChange(at_s=100.0, unit="inf2", available=0),
        CapacityChange(at_s=260.0, unit="inf2", available=None),
    ),
)
GONE = replace(LOST, changes=LOST.changes[:1])  # and never back


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
    nothing = tuple(replace(unit, available=0) for unit in TENTH)
    empty = replace(LOST, route=replace(ROUTE, units=nothing), changes=())
    run, series = watched(empty, StaticRouter(route=empty.route), 10.0)
    assert run.served == 0
    np.testing.assert_array_equal(series.lost, series.arrivals)
    assert series.lost.sum() == run.requests


@pytest.mark.parametrize("bucket_s", [0.7, 10.0, 1e4])  # not whole, many, one
@pytest.mark.parametrize("router", [RegimeRouter, StaticRouter])
@pytest.mark.parametrize("scenario", [LOST, GONE])
def test_a_series_adds_up_to_the_run(
    scenario: RouteScenario, router: type[RegimeRouter | StaticRouter], bucket_s: float
) -> None:
    run, series = watched(scenario, router(route=ROUTE), bucket_s)
    assert series.arrivals.sum() == run.requests
    assert series.served.sum() == run.served
    assert series.late.sum() == run.late
    assert series.lost.sum() == run.requests - run.served
    assert series.usd.sum() == pytest.approx(run.usd)
    assert np.nanmax(series.busy) <= 1 + 1e-9


def test_what_is_recorded_changes_nothing() -> None:
    plain = simulated(LOST, RegimeRouter(route=ROUTE), np.random.default_rng(0))
    assert watched(LOST, RegimeRouter(route=ROUTE), 10.0)[0] == plain


def test_regimes_are_told_when_they_change_and_why() -> None:
    _, series = watched(LOST, RegimeRouter(route=ROUTE), 10.0)
    first, failed, back = series.regimes
    assert (first.at_s, first.regime) == (0.0, Regime.COST)
    assert (failed.at_s, failed.regime) == (100.0, Regime.CAPACITY)
    assert failed.why.startswith("cannot be had: inf2 (0 of ")
    # Demand is low from 230 s on: another unit is wanted, and that can be had.
    assert (back.at_s, back.regime) == (260.0, Regime.COST)
    assert back.why == "all that is wanted could be had for 30 s"


def test_a_unit_that_is_lost_serves_nothing_until_it_is_back() -> None:
    _, series = watched(LOST, RegimeRouter(route=ROUTE), 10.0)
    inf2 = series.units.index("inf2")
    assert series.served[inf2, 3:10].min() > 0  # before, for the lowest demand, trn1 is cheaper
    assert series.served[inf2, 11:26].sum() == series.running[inf2, 11:26].sum() == 0
    assert series.served[inf2, 30:40].min() > 0
    assert series.served[series.units.index("trn1"), 12:20].min() > 0  # instead
