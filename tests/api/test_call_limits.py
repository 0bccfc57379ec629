"""Queries share what endpoints let through; what is stored, run and shown has machines alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf

import pytest

from circinus.api.phases import QueryPhase
from circinus.api.schemas.schedule import PreviewBody
from circinus.api.store.store import Store
from circinus.api.use_cases.capacity import demand_on_limits, endpoint_limits, shared_tiers
from circinus.api.use_cases.scheduling import live_problem, preview
from circinus.api.use_cases.views import schedule_view
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.endpoints import Endpoint, RateLimits, Usage
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.plan import Plan, PlanCalls
from circinus.pipelines.model.slo import Estimate, Slo
from circinus.pipelines.model.tiers import Tier
from tests.api.fakes import FakeDeployer, add_planned, plan
from tests.api.loops import Loops, loops

SMALL = Endpoint(
    name="small", limits=RateLimits(requests_per_minute=100, tokens_per_minute=30_000)
)
SLO = Slo(accuracy=0.5, latency_s=1.0)
LAB = Infrastructure(
    name="lab",
    tiers=(Tier(name="cloud", machines=4), Tier(name="api", endpoints=(SMALL,))),
    links=(Link(between=("cloud", "api"), bandwidth_bytes_per_s=1e6),),
)


def calling(calls: float, tokens: float, rate: float | None = 1.0, usd: float = 0.0) -> Plan:
    """Return a plan on a quarter of a machine that makes so many calls a request."""
    cost = Estimate(value=usd, low=usd, high=usd, confidence=0.95, inputs=9)
    used = Usage(calls=calls, input_tokens=tokens / 2, output_tokens=tokens / 2, usd=usd)
    per_hour = 3600 * (rate or 0.0) * usd
    return replace(
        plan(share=0.25),
        calls=PlanCalls(usd_per_request=cost, per_request={"small": used}, most_per_s=inf),
        calls_usd_per_hour=per_hour,
        cost_usd_per_hour=0.25 + per_hour,
        requests_per_s=rate,
    )


@pytest.fixture
def watched(store: Store, deployer: FakeDeployer) -> Loops:
    return loops(store, deployer, ManualClock(1000.0), infrastructure=LAB)


def test_a_plan_that_calls_what_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"calls must be among \(none\), got 'small'"):
        demand_on_limits(calling(1, 1), Infrastructure(name="x", tiers=(Tier(name="cloud"),)), SLO)


def test_a_plan_needs_its_part_of_each_limit_at_its_rate() -> None:
    # 0.35 calls and 70 tokens a request, 2 a second: 42 calls and 8,400 tokens a minute, of 70
    # and 21,000 that rates may need
    found = demand_on_limits(calling(0.35, 70, rate=2.0), LAB, SLO)
    assert [share for _, share in found] == pytest.approx([0.6, 0.4])
    batch = replace(SLO, throughput_per_s=2.0)  # may need all
    found = demand_on_limits(calling(0.35, 70, rate=2.0), LAB, batch)
    assert [share for _, share in found] == pytest.approx([0.42, 0.28])
    assert demand_on_limits(calling(0.35, 70, rate=None), LAB, SLO) == ()  # one by one
    assert demand_on_limits(plan(), LAB, SLO) == ()


def test_tiers_that_stand_for_limits_are_called_like_no_tier() -> None:
    taken = Infrastructure(
        name="x",
        tiers=(Tier(name="call-limit-0"), Tier(name="api", endpoints=(SMALL,))),
        links=(Link(between=("call-limit-0", "api"), bandwidth_bytes_per_s=1e6),),
    )
    names = [tier.name for tier in shared_tiers(taken)]
    assert len(set(names)) == len(names) == 4
    assert [(e.kind, e.per_minute) for e in endpoint_limits(taken)] == [
        ("requests", 100),
        ("tokens", 30_000),
    ]


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (calling(0.7, 1), "100 requests per minute of endpoint small"),  # 42 a minute each, of 70
        (calling(0.1, 210), "30000 tokens per minute of endpoint small"),  # 12,600 each, of 21,000
    ],
)
def test_queries_that_exceed_a_limit_together_are_not_all_admitted(
    store: Store, deployer: FakeDeployer, watched: Loops, one: Plan, told: str
) -> None:
    add_planned(store, "q-1", one)
    add_planned(store, "q-2", one)
    asyncio.run(watched.tick())
    assert [*deployer.desired] == ["q-1"]
    waiting = store.query("q-2")
    assert waiting.phase is QueryPhase.WAITING
    assert told in (waiting.message or "")
    held = watched.in_force.read()[1].schedule
    assert {piece.tier for a in held.assignments for piece in a.machines} == {"cloud"}


def test_a_query_that_leaves_gives_back_its_part_of_a_limit(
    store: Store, deployer: FakeDeployer, watched: Loops
) -> None:
    add_planned(store, "q-1", calling(0.7, 1))
    add_planned(store, "q-2", calling(0.7, 1))
    asyncio.run(watched.tick())
    store.move("q-1", QueryPhase.RETIRED, at=1001.0)
    asyncio.run(watched.tick())
    assert "q-2" in deployer.desired


def test_another_start_finds_everybody_where_they_were(
    store: Store, deployer: FakeDeployer, watched: Loops
) -> None:
    add_planned(store, "q-1", calling(0.5, 1))
    add_planned(store, "q-2", calling(0.5, 1))
    asyncio.run(watched.tick())
    before = watched.in_force.read()[1].schedule.by_query
    again = loops(store, deployer, ManualClock(1001.0), infrastructure=LAB)
    asyncio.run(again.tick())
    assert again.in_force.read()[1].schedule.by_query == before
    assert store.schedules.displaced(limit=9) == ()
    problem = live_problem(again.rescheduler.parts)
    assert [len(at.machines) for at in problem.running.values()] == [3, 3]  # with both limits


def test_the_schedule_tells_what_is_needed_of_limits_and_what_calls_cost(
    store: Store, watched: Loops
) -> None:
    add_planned(store, "q-1", calling(0.35, 70, usd=0.001))
    asyncio.run(watched.tick())
    parts = watched.rescheduler.parts
    found, how_good = preview(parts, PreviewBody())
    view = schedule_view(found, parts.capacity.now(), how_good)
    assert [(e.endpoint, e.kind) for e in view.endpoints] == [
        ("small", "requests"),
        ("small", "tokens"),
    ]
    assert [e.used for e in view.endpoints] == pytest.approx([0.3, 0.2])
    [served] = view.assignments
    assert [at.tier for at in served.machines] == ["cloud"]
    assert served.cost_usd_per_hour == pytest.approx(3.6)  # 3600 x 0.001; machines are free here
    assert [use.tier for use in view.tiers] == ["cloud"]
