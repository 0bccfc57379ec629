"""Routes in simulation, with the paper's units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from circinus.scheduler.routing.routers import (
    OFTEN_S,
    POLLED_S,
    EvenRouter,
    RegimeRouter,
    Router,
    StaticRouter,
)
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


def test_whoever_polls_every_five_seconds_switches_within_five() -> None:
    often = RegimeRouter(route=ROUTE, method=RouteMethod.PUBLISHED, polls_s=OFTEN_S)
    assert 0 <= run_of(LOST, often).switch_s <= OFTEN_S


def test_static_weights_wait_for_what_is_gone() -> None:
    run = run_of(LOST, StaticRouter(route=ROUTE))
    assert 200.0 < run.switch_s <= 600.0  # until it is there again, or not wanted for the demand
    assert run.late > run.requests / 10


def test_round_robin_pays_for_units_that_nobody_needs() -> None:
    even = run_of(QUIET, EvenRouter(route=ROUTE))
    assert even.served == even.requests
    assert even.usd > 1.3 * run_of(QUIET, RegimeRouter(route=ROUTE)).usd
