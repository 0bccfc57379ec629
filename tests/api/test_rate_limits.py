"""Planning and serving, in processes of their own, keep within the same limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from circinus.api.bootstrap.calls import rate_gate
from circinus.api.store.calls import StoreLeases
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import Stopped
from circinus.pipelines.model.endpoints import Endpoint, RateLimits, Usage
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.tiers import Tier
from circinus.profiler.rate_gate import AsyncRateGate, RateAdmission
from tests.contracts.databases import opened, sqlite_file

LIMITS = RateLimits(requests_per_minute=2)
ONE = {"gpt": Usage(calls=1.0)}


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = sqlite_file(tmp_path)
    opened(made).dispose()
    return made


@pytest.fixture
def infrastructure() -> Infrastructure:
    device = Tier(name="device", machines=1, price_usd_per_hour=0.0)
    hosted = Tier(
        name="hosted",
        machines=0,
        price_usd_per_hour=0.0,
        endpoints=(Endpoint(name="gpt", limits=LIMITS), Endpoint(name="llama")),
    )
    link = Link(between=("device", "hosted"), bandwidth_bytes_per_s=1e6)
    return Infrastructure(name="test", tiers=(device, hosted), links=(link,), origin="device")


def test_what_two_planning_processes_call_counts_together(
    url: str, infrastructure: Infrastructure
) -> None:
    with rate_gate(infrastructure, url) as one, rate_gate(infrastructure, url) as other:
        for gate in (one, other):
            gate.settle(gate.admit("reader", ONE), ONE)
        other.stop_when(lambda: True)
        with pytest.raises(Stopped):
            other.admit("reader", ONE)
        other.admit("reader", {"llama": Usage(calls=1.0)})


def test_without_a_database_a_process_counts_its_own(infrastructure: Infrastructure) -> None:
    with rate_gate(infrastructure, None) as one, rate_gate(infrastructure, None) as other:
        for gate in (one, other, one, other):
            gate.settle(gate.admit("reader", ONE), ONE)
        one.stop_when(lambda: True)
        with pytest.raises(Stopped):
            one.admit("reader", ONE)


def test_what_is_planned_and_what_is_served_count_together(
    url: str, infrastructure: Infrastructure
) -> None:
    async def serve() -> None:
        engine = opened(url)
        admission = RateAdmission({"gpt": LIMITS}, StoreLeases(engine), SystemClock(), "serving")
        async with AsyncRateGate(admission) as gate:
            leave = await gate.admit("reader", ONE)
            gate.settle(leave, ONE)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(gate.admit("reader", ONE), timeout=0.5)
        engine.dispose()

    with rate_gate(infrastructure, url) as planning:
        planning.settle(planning.admit("reader", ONE), ONE)
        planning.beat()
        asyncio.run(serve())
