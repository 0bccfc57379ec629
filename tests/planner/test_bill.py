from __future__ import annotations

import re
from math import inf

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.endpoints import Endpoint
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.profile import Profile
from circinus.pipelines.model.query import PlanningLimits
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.bill import Cost, Forecast, Tally
from circinus.planner.search.budget import Budget
from tests.oracles.synthetic import chain

GRAPH = chain(2, 2)  # o0 before o1, two values each
SPACE = ConfigurationSpace(GRAPH)


def profile(
    configuration: Configuration, *, runs: int = 0, saved_runs: int = 0, saved_s: float = 0.0
) -> Profile:
    return Profile(
        configuration=configuration,
        inputs=np.arange(1),
        score=np.ones(1),
        operator_s=np.ones((2, 1)),
        output_bytes=np.ones((2, 1)),
        input_bytes=np.ones(1),
        runs=runs,
        saved_runs=saved_runs,
        saved_s=saved_s,
    )


@pytest.mark.parametrize("field", ["runs", "seconds", "usd"])
def test_a_negative_cost_is_refused(field: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"cost.{field} must be ")):
        Cost(**{field: -1})  # type: ignore[arg-type]  # one of the numbers


def test_a_forecast_whose_ends_are_swapped_is_refused() -> None:
    one, two = Cost(seconds=1.0), Cost(seconds=2.0)
    with pytest.raises(InvalidInput, match="must have low <= expected <= high"):
        Forecast(low=two, expected=one, high=two, confidence=0.9, source="here")


def test_dollars_are_seconds_at_the_price_of_an_hour() -> None:
    assert Cost.of(10, 1800.0, 2.0) == Cost(runs=10, seconds=1800.0, usd=1.0)


def test_what_is_known_of_a_configuration_is_counted_once() -> None:
    tally = Tally(GRAPH, population=10, price_usd_per_hour=3600.0)
    first, second = SPACE.configuration(0), SPACE.configuration(1)
    tally.pay(profile(first, runs=2))
    tally.pay(profile(first, runs=6))
    tally.pay(profile(second, runs=3, saved_runs=3, saved_s=0.5))
    bill = tally.bill(4.0, None)
    assert bill.paid == Cost(runs=9, seconds=4.0, usd=4.0)
    assert bill.cache == Cost(runs=3, seconds=0.5, usd=0.5)
    assert bill.early_stopping == Cost()


def test_stopping_early_saves_what_each_lineage_would_still_have_run() -> None:
    tally = Tally(GRAPH, population=10, price_usd_per_hour=0.0)
    # o0=0, o1=0 on 4 inputs, then o0=0, o1=1 on 7: o0 met 7 of 10 inputs, o1 4 and 7.
    tally.end_early(SPACE.configuration(0), np.array([[1.0] * 4, [2.0] * 4]))
    tally.end_early(SPACE.configuration(1), np.array([[1.0] * 7, [5.0] * 7]))
    # Not run: 3 of o0, 6 and 3 of o1; seconds 3 * 1 + 6 * 2 + 3 * 5.
    saved = tally.bill(0.0, None).early_stopping
    assert saved.runs == 12
    assert saved.seconds == pytest.approx(30.0)


def test_a_configuration_that_met_every_input_saved_nothing() -> None:
    tally = Tally(GRAPH, population=3, price_usd_per_hour=0.0)
    tally.end_early(SPACE.configuration(0), np.ones((2, 1)))
    tally.end_early(SPACE.configuration(0), np.ones((2, 3)))
    saved = tally.bill(0.0, None).early_stopping
    assert saved.runs == 0
    assert saved.seconds == pytest.approx(0.0)


def test_what_was_run_after_all_leaves_no_rest_of_rounding() -> None:
    tally = Tally(GRAPH, population=10, price_usd_per_hour=3600.0)
    configurations = [SPACE.configuration(number) for number in (0, 3)]
    for n in (3, 10):  # three inputs first, then all
        for each, seconds in zip(configurations, (0.1, 0.7), strict=True):
            tally.end_early(each, np.full((2, n), seconds))
    assert tally.bill(1.0, None).early_stopping == Cost()


def test_waits_count_for_the_time_until_the_answer_alone() -> None:
    limits = PlanningLimits(profiling_s=5.0, own_s=5.0, response_s=60.0)
    budget = Budget(limits, 1.0)

    def reached(waited_s: float, elapsed_s: float) -> str | None:
        return budget.reached(
            spent_s=1.0, waited_s=waited_s, elapsed_s=elapsed_s, configurations=0
        )

    assert reached(waited_s=40.0, elapsed_s=45.0) is None
    assert reached(waited_s=0.0, elapsed_s=45.0) == "5 s went into other work than operators"
    assert reached(waited_s=58.0, elapsed_s=60.0) == "limit response_s reached"
    assert budget.own_left_s(spent_s=1.0, waited_s=40.0, elapsed_s=45.0) == 1.0


DEAR = Tier(name="cloud", price_usd_per_hour=3.6, speed_factor=0.5)  # 0.001 USD a second


def budget(price_usd_per_hour: float = 3.6, **limits: float | None) -> Budget:
    return Budget(PlanningLimits(**{"response_s": None, **limits}), price_usd_per_hour)  # type: ignore[arg-type]  # by name


def reached(
    of: Budget, spent_s: float, calls_s: float, calls_usd: float, elapsed_s: float = 0.0
) -> str | None:
    return of.reached(
        spent_s=spent_s,
        calls_s=calls_s,
        calls_usd=calls_usd,
        elapsed_s=elapsed_s,
        configurations=0,
    )


def test_a_remote_tier_is_not_what_profiling_is_billed_as() -> None:
    remote = Tier(name="hosted", endpoints=(Endpoint(name="small"),))
    link = Link(between=("cloud", "hosted"), bandwidth_bytes_per_s=1e6)
    where = Infrastructure(name="two", tiers=(DEAR, remote), links=(link,))
    assert Budget.of(PlanningLimits(), where).price_usd_per_hour == 3.6


@pytest.mark.parametrize(
    ("spent_s", "calls_s", "ended"), [(109.9, 100.0, False), (110.0, 100.0, True), (10.0, 0, True)]
)
def test_seconds_that_an_endpoint_is_waited_for_are_none_of_a_machine(
    spent_s: float, calls_s: float, ended: bool
) -> None:
    found = reached(budget(profiling_s=10.0), spent_s, calls_s, 0.0)
    assert found == ("limit profiling_s reached" if ended else None)


@pytest.mark.parametrize(
    ("machine_s", "calls_usd", "ended"),
    [
        (999.0, 0.0, False),  # of a dollar: 0.999
        (1000.0, 0.0, True),
        (499.0, 0.5, False),
        (500.0, 0.5, True),
        (0.0, 0.999, False),
        (0.0, 1.0, True),
    ],
)
def test_dollars_of_machines_and_calls_add_up(
    machine_s: float, calls_usd: float, ended: bool
) -> None:
    found = reached(budget(profiling_s=1e6, profiling_usd=1.0), machine_s + 7, 7.0, calls_usd)
    assert found == ("limit profiling_usd reached" if ended else None)


def test_where_machines_are_free_calls_alone_use_the_dollars() -> None:
    free = budget(0.0, profiling_s=1e6, profiling_usd=1.0)
    assert reached(free, 1e5, 0.0, 0.999) is None
    assert reached(free, 1e5, 0.0, 1.0) == "limit profiling_usd reached"
    nothing = budget(0.0, profiling_s=1e6, profiling_usd=0.0)  # only what costs is out of reach
    assert reached(nothing, 1e5, 0.0, 0.0) is None
    assert reached(nothing, 1e5, 0.0, 1e-9) == "limit profiling_usd reached"


def test_what_is_left_is_the_less_of_both_limits_and_never_negative() -> None:
    both = budget(profiling_s=600.0, profiling_usd=1.0)
    assert both.profiling_s == 600.0
    assert both.left_s(machine_s=100.0, calls_usd=0.2) == pytest.approx(500.0)
    assert both.left_s(machine_s=100.0, calls_usd=0.6) == pytest.approx(300.0)
    assert both.left_s(machine_s=100.0, calls_usd=5.0) == 0.0
    assert budget(profiling_s=1e6).left_s(machine_s=1.0, calls_usd=inf) == 1e6 - 1


def test_own_time_is_neither_of_machines_nor_of_endpoints() -> None:
    own = budget(profiling_s=1e6, own_s=5.0)
    assert reached(own, 100.0, 90.0, 0.0, elapsed_s=104.9) is None
    assert reached(own, 100.0, 90.0, 0.0, elapsed_s=105.0) is not None
