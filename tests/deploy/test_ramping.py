"""Ramps over a real HTTP server, a worker, and targets that are as slow as they say."""

from __future__ import annotations

import asyncio
from math import nan
from pathlib import Path

import numpy as np
import pytest

from circinus.deploy.routes.endpoints import EndpointFailed
from circinus.deploy.routes.ramping import (
    Ramped,
    RampSettings,
    RampTarget,
    SentLate,
    endpoint_target,
    ramped,
    share_in_time,
    unit_target,
)
from circinus.deploy.routes.workloads import UnitWorkload
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import CircinusError, InvalidInput
from circinus.scheduler.routing.breaking_point import BreakingReason, NextRate, RampStep
from tests.deploy.ramp_server import serving
from tests.deploy.ramped_pipelines import napping
from tests.deploy.serving import launcher
from tests.deploy.test_unit_workloads import UNIT

QUICK = RampSettings(step_s=1.0, least_requests=30, most_per_s=400.0)


class _Told:
    def __init__(self) -> None:
        self.rates: list[NextRate] = []
        self.ends: list[RampStep | SentLate] = []

    def begins(self, rate: NextRate) -> None:
        self.rates.append(rate)

    def ended(self, step: RampStep | SentLate) -> None:
        self.ends.append(step)


async def found(
    target: RampTarget, settings: RampSettings = QUICK, told: _Told | None = None
) -> Ramped:
    generator = np.random.default_rng(1)
    return await ramped(target, settings, SystemClock(), generator, told or _Told())


def test_what_fails_with_one_request_is_not_ramped() -> None:
    async def run() -> None:
        async with endpoint_target("http://127.0.0.1:9/") as target:  # the discard port
            await found(target)

    with pytest.raises(EndpointFailed, match=r"http://127\.0\.0\.1:9/"):
        asyncio.run(run())


def test_an_endpoint_that_answers_with_an_error_fails() -> None:
    async def run(url: str) -> None:
        async with endpoint_target(url) as target:
            await target(0)

    with serving(0.0, status=503) as server, pytest.raises(EndpointFailed, match="answered 503"):
        asyncio.run(run(server.url))


@pytest.mark.parametrize("url", ["ftp://here/", "localhost:80", ""])
def test_a_url_of_something_else_is_refused(url: str) -> None:
    async def run() -> None:
        async with endpoint_target(url):
            pass

    with pytest.raises(InvalidInput, match="--url must be of http or https"):
        asyncio.run(run())


def test_a_sender_that_is_late_itself_counts_no_step_and_says_so() -> None:
    clock = SystemClock()

    async def hogs(number: int) -> float:
        until = clock.now() + 0.02  # of the loop that should send the next one
        while clock.now() < until:
            pass
        return nan

    told = _Told()
    settings = RampSettings(step_s=0.2, least_requests=20, most_per_s=1e6)
    result = asyncio.run(found(hogs, settings, told))

    assert result.late
    assert [each.per_s for each in result.late[-3:]] == [result.late[-1].per_s] * 3
    counted = [step.per_s for step in result.steps]
    assert all(each.per_s not in counted for each in result.late[-1:])
    assert [each for each in told.ends if isinstance(each, SentLate)] == list(result.late)


def test_requests_do_not_wait_for_each_other_and_failed_ones_are_not_served() -> None:
    at_once = most = 0

    async def shaky(number: int) -> float:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        if number > 3 and number % 2:
            raise CircinusError("on the odd ones")
        return 0.01

    settings = RampSettings(step_s=0.4, least_requests=20, most_per_s=100.0)
    result = asyncio.run(found(shaky, settings))

    assert most > 1
    assert result.failure == "on the odd ones"
    assert all(step.failed >= step.requests // 2 - 2 for step in result.steps)
    assert all(step.service_s == pytest.approx(0.01) for step in result.steps)


@pytest.mark.slow
def test_an_endpoint_breaks_where_its_server_no_longer_keeps_up() -> None:
    async def run(url: str) -> Ramped:
        async with endpoint_target(url, b"{}") as target:
            return await found(target)

    with serving(0.01) as server:
        began = SystemClock().now()
        result = asyncio.run(run(server.url))
        response_s = SystemClock().now() - began

    assert server.bodies == {b"{}"}
    assert sum(step.requests for step in result.steps) + 3 <= server.served
    point = result.point
    if point is None or result.late:  # other programs kept this machine busy
        assert result.late
        return
    assert BreakingReason.THROUGHPUT in point.reasons
    assert point.low_per_s <= point.per_s <= (point.high_per_s or 0.0)
    # It serves no more than one after the other, and at its best no less than all the while.
    assert point.low_per_s <= 1 / 0.01
    assert (point.high_per_s or 0.0) >= server.served / response_s
    assert point.per_s <= 1.05 / 0.01


@pytest.mark.slow
def test_a_worker_of_a_unit_breaks_where_it_is_busy_for_80_percent(tmp_path: Path) -> None:
    speed = 0.8
    workload = UnitWorkload(
        unit=UNIT,
        pipeline_reference="tests.deploy.ramped_pipelines:napping",
        knobs={"nap": {"seconds": 0.01}},
        speed=speed,
    )

    async def run() -> Ramped:
        inputs = [1, 2, 3]
        async with unit_target(workload, napping, inputs, launcher(tmp_path)) as target:
            return await found(target)

    result = asyncio.run(run())

    point = result.point
    there = None if point is None else point.there
    if point is None or there is None or result.late:  # other programs kept this machine busy
        assert result.late
        return
    assert there.service_s is not None
    assert there.service_s >= 0.01 / speed
    assert {BreakingReason.UTILISATION, BreakingReason.THROUGHPUT} & {*point.reasons}
    # The interval has the rate at which it is busy for 80 %; a little off is chance, of 5 %.
    assert point.low_per_s * there.service_s <= 0.9
    assert (point.high_per_s or 0.0) * there.service_s >= 0.7


def test_the_share_in_time_is_that_of_quick_requests() -> None:
    """Three of four answer at once, one in four takes longer than it may, none waits."""

    async def target(number: int) -> float:
        await asyncio.sleep(0.5 if number % 4 == 3 else 0.0)
        return nan

    generator = np.random.default_rng(1)
    share = asyncio.run(share_in_time(target, 50.0, 2.0, 0.25, SystemClock(), generator))
    assert share == pytest.approx(0.75, abs=0.05)


def test_requests_that_fail_are_not_in_time() -> None:
    async def target(number: int) -> float:
        if number >= 3:  # after those that are sent alone
            raise EndpointFailed("no")
        return nan

    generator = np.random.default_rng(1)
    assert asyncio.run(share_in_time(target, 50.0, 0.5, 1.0, SystemClock(), generator)) == 0.0
