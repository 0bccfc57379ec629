"""The limits of a search: seconds of machines, dollars of machines and calls together."""

from __future__ import annotations

from math import inf

import pytest

from circinus.pipelines.model.endpoints import Endpoint
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.query import PlanningLimits
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.budget import Budget

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
