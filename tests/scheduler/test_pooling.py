"""Queries on chosen mixes of machine types: exactly these, or as before and what is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.tiers import MachineType, Tier
from circinus.scheduler.ilp import Ilp
from circinus.scheduler.policies.improvement import Effort
from circinus.scheduler.policies.priced import Migration, Priced
from circinus.scheduler.policies.registry import FcfsScheduling, Greedy
from circinus.scheduler.problem import (
    Assignment,
    Candidate,
    Problem,
    Schedule,
    SchedulingPolicy,
    Slice,
    validate,
)
from circinus.scheduler.rolling.ageing import Ageing
from circinus.scheduler.rolling.pooling import (
    NO_POOL,
    ChosenPool,
    InvalidPool,
    NoRoom,
    has_pool,
    pooled,
    require_pool,
)
from circinus.scheduler.rolling.scheduler import Events, RollingSchedule, Times, Upkeep
from tests.scheduler.problems import candidate, plan


def edge(small: int = 3, large: int = 2) -> Tier:
    """Machines 0 to small - 1 are small, then come the large ones."""
    return Tier(
        name="edge",
        types=(
            MachineType(name="small", machines=small, price_usd_per_hour=1.0),
            MachineType(name="large", machines=large, price_usd_per_hour=4.0, speed_factor=3.0),
        ),
    )


DEVICE = Tier(name="device", dedicated=True)
CLOUD = Tier(name="cloud", machines=2, price_usd_per_hour=2.0)


def mix(**counts: int) -> ChosenPool:
    return ChosenPool(slices={"edge": counts})


def q(name: str = "q", share: float = 0.5, replicas: int = 1, weight: float = 1.0) -> Candidate:
    items = [("device", 0.5), *[("edge", share)] * replicas]
    return candidate(name, plan("p", *items), weight=weight)


def rolling(
    *candidates: Candidate,
    tiers: tuple[Tier, ...] = (DEVICE, edge(), CLOUD),
    policy: SchedulingPolicy | None = None,
    pools: dict[str, ChosenPool] | None = None,
    running: dict[str, Assignment] | None = None,
    quotas: dict[str, float] | None = None,
    ageing: Ageing | None = None,
) -> RollingSchedule:
    problem = Problem(
        tiers=tiers, candidates=candidates, running=running or {}, quotas=quotas or {}
    )
    upkeep = Upkeep(policy=policy or Greedy(), ageing=ageing or Ageing(), every_s=5.0)
    return RollingSchedule(problem, Times(), upkeep, 0.0, pools)


def edges(live: RollingSchedule, query: str = "q") -> list[int]:
    """The numbers of the machines of edge that a query has."""
    machines = live.last.schedule.by_query[query].machines
    return sorted(s.machine for s in machines if s.tier == "edge")


# --- What is refused ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slices", "rule"),
    [
        ({"edge": {"small": -1}}, "pool.edge/small must be from 0 to 1000, got -1"),
        ({"edge": {"small": 1001}}, "pool.edge/small must be from 0 to 1000, got 1001"),
        ({"edge": {"small": 0}}, "pool.edge must have at least one slice, got {'small': 0}"),
        ({"edge": {}}, "pool.edge must have at least one slice, got {}"),
    ],
)
def test_counts_out_of_range_are_refused(slices: dict[str, dict[str, int]], rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        ChosenPool(slices=slices)


@pytest.mark.parametrize(
    ("pool", "rule"),
    [
        (NO_POOL, "pool must name at least one TIER/TYPE, got 'none'"),
        (ChosenPool(slices={"fog": {"small": 1}}), "pool.tier must be among device, edge, cloud"),
        (ChosenPool(slices={"device": {"x": 1}}), "pool.tier must be shared"),
        (ChosenPool(slices={"cloud": {"x": 1}}), "pool.tier must have machine types, got 'cloud'"),
        (mix(huge=1), "pool.edge must be among small, large, got 'huge'"),
    ],
)
def test_a_pool_names_types_of_shared_tiers(pool: ChosenPool, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        require_pool(pool, (DEVICE, edge(), CLOUD))


def test_a_pool_within_the_bounds_is_fine() -> None:
    require_pool(mix(small=1000, large=0), (DEVICE, edge(), CLOUD))


def no_room(
    pool: ChosenPool, *others: Assignment, tenant: str = "", quotas: dict[str, float] | None = None
) -> str:
    mine = replace(q(), tenant=tenant)
    at = Assignment(
        query_id="q", plan_id="p", machines=(Slice("device", 0, 0.5), Slice("edge", 0, 0.5))
    )
    problem = Problem(
        tiers=(DEVICE, edge(), CLOUD), candidates=(mine, *map(_of, others)), quotas=quotas or {}
    )
    found = pooled(problem, (at, *others), mine, pool)
    assert isinstance(found, NoRoom | InvalidPool)
    return found.why


def _of(at: Assignment) -> Candidate:
    return candidate(at.query_id, plan("p", *((s.tier, s.share) for s in at.machines)))


def test_too_few_machines_are_told_by_type() -> None:
    """Three small machines hold six halves, two large ones four."""
    assert no_room(mix(small=7, large=6)) == (
        "1 of 7 slices of 0.5 find no room on edge/small and "
        "2 of 6 slices of 0.5 find no room on edge/large"
    )
    other = Assignment(query_id="o", plan_id="p", machines=(Slice("edge", 4, 0.6),))
    assert no_room(mix(large=4), other) == "2 of 4 slices of 0.5 find no room on edge/large"


def test_a_quota_counts_all_that_the_tenant_holds() -> None:
    """A fifth of five machines is one: two halves, not three."""
    quotas = {"t": 0.2}
    assert no_room(mix(small=3), tenant="t", quotas=quotas) == (
        "tenant t may hold 1 machines of edge, and would hold 1.5"
    )


def test_a_pool_above_what_the_query_may_cost_is_told() -> None:
    """Two halves of small and one of large are 1 + 2 USD/h; the device is free."""
    dear = ChosenPool(slices={"edge": {"small": 2, "large": 1}}, most_usd_per_hour=2.99)
    assert no_room(dear) == "it costs 3 USD/h, and the query may cost 2.99"


def test_a_plan_that_does_not_use_the_tier_can_have_no_pool_there() -> None:
    assert no_room(ChosenPool(slices={"cloud": {"x": 1}})) == "plan p does not use tier cloud"
    assert no_room(mix(huge=1)) == "tier edge has no machine type huge"


# --- What it does ---------------------------------------------------------------------


def test_a_query_gets_exactly_its_pool_and_keeps_what_of_it_it_has() -> None:
    live = rolling(q())
    assert edges(live) == [0]
    step = live.change(Events(pools={"q": mix(small=3, large=1)}), 1.0)
    assert edges(live) == [0, 0, 1, 3]
    assert step.pools == {"q": mix(small=3, large=1)}
    assert (step.no_room, step.invalid, step.displaced) == ({}, {}, ())
    at = step.schedule.by_query["q"]
    assert [s.tier for s in at.machines] == ["device", "edge", "edge", "edge", "edge"]
    assert step.schedule.utilisation["edge"] == pytest.approx(2 / 5)
    assert validate(live.problem(), step.schedule) == ()


def test_a_pool_may_be_less_than_the_plan_has() -> None:
    live = rolling(q(replicas=3))
    live.change(Events(pools={"q": mix(large=1)}), 1.0)
    assert edges(live) == [3]


def test_what_does_not_fit_changes_nothing_until_it_fits() -> None:
    live = rolling(q())
    step = live.change(Events(pools={"q": mix(large=5)}), 1.0)
    assert edges(live) == [0]
    assert step.no_room == {"q": "1 of 5 slices of 0.5 find no room on edge/large"}
    step = live.change(Events(machines={"edge/large": 3}), 2.0)
    assert edges(live) == [3, 3, 4, 4, 5]
    assert step.no_room == {}


def test_nobody_makes_way_for_a_pool_and_nobody_takes_its_place() -> None:
    live = rolling(q(share=1.0), q("o", share=1.0), tiers=(DEVICE, edge(2, 1), CLOUD))
    step = live.change(Events(pools={"q": mix(small=2)}), 1.0)
    assert step.no_room == {"q": "1 of 2 slices of 1 find no room on edge/small"}
    live.change(Events(leaving=("o",)), 2.0)
    assert edges(live) == [0, 1]
    # Neither weight nor priority takes it, in a small step or a whole schedule.
    first = replace(q("first", share=1.0, weight=99.0), priority=9)
    second = replace(q("second", share=1.0, weight=99.0), priority=9)
    step = live.change(Events(arriving=(first, second)), 3.0)
    assert edges(live) == [0, 1]
    assert set(step.schedule.waiting) == {"second"}


def test_who_waits_behind_a_pool_does_not_keep_others_waiting() -> None:
    """`big` is overdue and never fits beside the pool; `late`, overdue after it, does."""
    ageing = Ageing(limit_s=10.0, turn_s=0.0)
    live = rolling(
        q(share=1.0),
        tiers=(DEVICE, edge(2, 1), CLOUD),
        ageing=ageing,
        pools={"q": mix(small=2)},
    )
    assert edges(live) == [0, 1]
    big = q("big", share=1.0, replicas=2)
    now, late = q("now", share=1.0), q("late", share=1.0)
    live.change(Events(arriving=(now,)), 1.0)
    live.change(Events(arriving=(big,)), 2.0)
    live.change(Events(arriving=(late,)), 3.0)
    assert {"now", "q"} == live.last.schedule.by_query.keys()
    assert live.due(20.0)
    step = live.change(Events(), 20.0)
    assert step.schedule.by_query.keys() == {"q", "late"}
    assert edges(live) == [0, 1]


def test_without_its_pool_a_query_is_served_by_its_plan_again() -> None:
    live = rolling(q(replicas=2), pools={"q": mix(small=1, large=3)})
    assert edges(live) == [0, 3, 3, 4]
    step = live.change(Events(pools={}), 1.0)
    # Slices that it has stay; the plan's own may be on any type.
    assert edges(live) == [0, 3]
    assert (step.pools, step.displaced) == ({}, ())
    assert live.problem().candidates[0] == q(replicas=2)


def test_a_pool_takes_the_place_of_one_slice_only() -> None:
    """A replan brings a plan of two slices of edge, as large as the one that there was."""
    live = rolling(q(), pools={"q": mix(large=3)})
    assert edges(live) == [3, 3, 4]
    option = replace(plan("again", ("edge", 0.5), ("edge", 0.5)), divided=frozenset({"edge"}))
    step = live.change(Events(leaving=("q",), arriving=(candidate("q", option),)), 1.0)
    assert len(edges(live)) == 2
    assert step.pools == {}
    assert step.invalid == {"q": "plan again has several slices of tier edge"}


def test_a_smaller_pool_that_is_dropped_may_leave_no_room_for_the_plan() -> None:
    live = rolling(q(share=1.0, replicas=2), tiers=(DEVICE, edge(1, 1), CLOUD))
    live.change(Events(pools={"q": mix(small=1)}), 1.0)
    live.change(Events(arriving=(q("o", share=1.0),)), 2.0)
    step = live.change(Events(pools={}), 3.0)
    assert "q" in step.schedule.waiting
    assert edges(live, "o") == [1]


def test_another_pool_takes_the_place_of_the_old_one_or_the_old_one_stays() -> None:
    live = rolling(q(), pools={"q": mix(small=2)})
    live.change(Events(pools={"q": mix(small=1, large=1)}), 1.0)
    assert edges(live) == [0, 3]
    step = live.change(Events(pools={"q": mix(large=9)}), 2.0)
    assert edges(live) == [0, 3]
    assert step.pools == {"q": mix(small=1, large=1)}
    assert step.no_room == {"q": "5 of 9 slices of 0.5 find no room on edge/large"}


def test_a_pool_whose_machines_go_is_served_by_the_plan_until_they_are_back() -> None:
    live = rolling(q(), pools={"q": mix(small=1, large=3)})
    step = live.change(Events(machines={"edge/large": 1}), 1.0)
    assert edges(live) == [0]
    assert step.no_room == {"q": "1 of 3 slices of 0.5 find no room on edge/large"}
    assert step.pools == {}
    step = live.change(Events(machines={"edge/large": 2}), 2.0)
    assert edges(live) == [0, 3, 3, 4]
    assert step.pools == {"q": mix(small=1, large=3)}


def test_machines_that_get_other_numbers_are_the_pool_still() -> None:
    live = rolling(q(), pools={"q": mix(large=2)})
    assert edges(live) == [3, 3]
    step = live.change(Events(machines={"edge/small": 5}), 1.0)
    assert edges(live) == [5, 5]
    assert (step.displaced, step.pools) == ((), {"q": mix(large=2)})


def test_a_plan_that_does_not_use_the_tier_ends_the_pool() -> None:
    live = rolling(q(), pools={"q": mix(large=2)})
    other = candidate("q", plan("new", ("cloud", 0.5)))
    step = live.change(Events(leaving=("q",), arriving=(other,)), 1.0)
    assert step.invalid == {"q": "plan new does not use tier edge"}
    assert step.pools == {}
    assert live.change(Events(arriving=(q("x"),)), 2.0).invalid == {}


def test_other_plans_on_the_tier_get_the_pool_again() -> None:
    live = rolling(q(), pools={"q": mix(large=2)})
    step = live.change(Events(leaving=("q",), arriving=(q(share=0.25),)), 1.0)
    assert edges(live) == [3, 3]
    assert step.schedule.by_query["q"].machines[1].share == 0.25


def test_a_query_that_waits_has_no_pool() -> None:
    live = rolling(q(), tiers=(DEVICE, edge(0, 0), CLOUD), pools={"q": mix(large=2)})
    assert live.last.no_room == {"q": "the query is not served"}


def test_a_restart_goes_on_with_the_pools_that_queries_have() -> None:
    live = rolling(q(), q("o"), pools={"q": mix(large=2)})
    running = live.last.schedule.by_query
    again = rolling(q(), q("o"), pools={"q": mix(large=2)}, running=running)
    assert again.last.schedule.by_query == running
    assert again.last.pools == {"q": mix(large=2)}
    assert again.last.displaced == ()


def test_a_restart_on_other_tiers_ends_a_pool() -> None:
    live = rolling(q(), pools={"q": mix(large=2)})
    running = live.last.schedule.by_query
    other = candidate("q", plan("p", ("cloud", 0.5)))
    again = rolling(other, tiers=(CLOUD,), pools={"q": mix(large=2)}, running=running)
    assert again.last.invalid == {"q": "plan p does not use tier edge"}
    assert again.last.schedule.by_query.keys() == {"q"}


def test_a_quota_that_shrank_over_a_restart_ends_the_pool_and_not_the_query() -> None:
    """Of two and a half machines that a tenant may have, three halves are one and a half."""
    mine = replace(q(), tenant="t")
    live = rolling(mine, pools={"q": mix(large=3)}, quotas={"t": 0.5})
    assert edges(live) == [3, 3, 4]
    running = live.last.schedule.by_query
    again = rolling(mine, pools={"q": mix(large=3)}, running=running, quotas={"t": 0.2})
    assert len(edges(again)) == 1
    assert "tenant t may hold 1" in again.last.no_room["q"]


# --- Whatever the policy does ---------------------------------------------------------

POLICIES: dict[str, SchedulingPolicy] = {
    "greedy": Greedy(),
    "fcfs": FcfsScheduling(),
    "priced": Priced(effort=Effort(steps=50), clock=ManualClock()),
    "moving": Priced(effort=Effort(steps=50), clock=ManualClock(), migration=Migration(price=0.0)),
    "ilp": Ilp(),
}


@pytest.mark.parametrize("name", POLICIES)
def test_policies_that_move_others_leave_pools_where_they_are(name: str) -> None:
    pools = {"q": mix(small=1, large=3)}
    live = rolling(q(), policy=POLICIES[name], tiers=(DEVICE, edge()), pools=pools)
    mine = edges(live)
    assert mine == [0, 3, 3, 4]
    live.change(Events(arriving=tuple(q(f"o{i}", share=0.3) for i in range(4))), 1.0)
    # Every arrival is a tenth of the live queries or more: the whole policy is asked.
    for i in range(3):
        step = live.change(Events(arriving=(q(f"x{i}", share=0.9, weight=50.0),)), 2.0 + i)
        assert step.whole
        assert edges(live) == mine
        assert validate(live.problem(), step.schedule) == ()


class FailingWith:
    """A policy that fails with a query once it is told to."""

    small_steps: ClassVar[bool] = False
    name = ""

    def schedule(self, problem: Problem) -> Schedule:
        if self.name in {c.query_id for c in problem.candidates}:
            raise ValueError("not this one")
        return Greedy().schedule(problem)


def test_a_query_that_is_set_aside_gives_its_pool_up() -> None:
    policy = FailingWith()
    live = rolling(q(), policy=policy, pools={"q": mix(large=4)})
    assert edges(live) == [3, 3, 4, 4]
    policy.name = "q"
    step = live.change(Events(arriving=(q("o", share=1.0), q("x", share=1.0))), 1.0)
    assert step.schedule.aside == ("q",)
    assert (step.pools, step.no_room) == ({}, {})
    assert live.change(Events(leaving=("q",), pools={}), 2.0).schedule.aside == ()


changes = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, 5), st.integers(1, 20)),
        st.tuples(st.just("leave"), st.integers(0, 5), st.just(0)),
        st.tuples(st.sampled_from(["edge/small", "edge/large"]), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("pool"), st.integers(0, 5), st.integers(0, 15)),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(changes=changes, name=st.sampled_from(["greedy", "priced", "moving"]), quota=st.booleans())
def test_pools_are_had_whole_or_not_at_all(
    changes: list[tuple[str, int, int]], name: str, quota: bool
) -> None:
    """Nothing is above capacity or quota, nobody is lost, and who stays bound does not move."""
    live = rolling(policy=POLICIES[name], quotas={"t": 0.4} if quota else None)
    plain: dict[str, Candidate] = {}
    pools: dict[str, ChosenPool] = {}
    before: dict[str, Assignment] = {}
    for now, (what, i, n) in enumerate(changes):
        query = f"q{i}"
        if what == "arrive" and query not in plain:
            plain[query] = replace(
                q(query, share=n / 20, replicas=1 + i % 2), tenant="t", priority=i % 3
            )
            events = Events(arriving=(plain[query],))
        elif what == "leave" and query in plain:
            del plain[query]
            pools.pop(query, None)
            events = Events(leaving=(query,), pools=dict(pools))
        elif what == "pool" and query in plain:
            pools.pop(query, None)
            if n:
                pools[query] = mix(small=n % 4, large=n // 4)
            events = Events(pools=dict(pools))
        elif "/" in what:
            events, before = Events(machines={what: i}), {}
        else:
            continue
        step = live.change(events, float(now))
        problem, served = live.problem(), step.schedule.by_query
        assert validate(problem, step.schedule) == ()
        assert served.keys() | step.schedule.waiting.keys() == plain.keys()
        assert step.pools.keys() | step.no_room.keys() >= pools.keys()
        for held, pool in step.pools.items():
            assert has_pool(problem.tiers, plain[held], served[held], pool)
            if held in before and what != "pool":
                assert served[held] == before[held]
        for other in served.keys() - step.pools.keys():
            assert has_pool(problem.tiers, plain[other], served[other], NO_POOL)
        before = {held: served[held] for held in step.pools}
