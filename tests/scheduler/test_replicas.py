"""Replicas follow the rate, on what the schedule leaves free."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.policies.improvement import Effort
from circinus.scheduler.policies.registry import Greedy, Ranking
from circinus.scheduler.policies.rental import Rental
from circinus.scheduler.problem import (
    Assignment,
    Candidate,
    Problem,
    Schedule,
    Slice,
    rented_usd_per_hour,
    validate,
)
from circinus.scheduler.rolling.replicas import (
    FollowedLoad,
    ReplicaSettings,
    followed,
    granted,
    load_for,
    wanted_extras,
)
from circinus.studies.scheduling.problems import Recipe, problem_of
from tests.scheduler.problems import (
    TWENTIETHS,
    candidate,
    cloud,
    least_rent,
    plan,
    problems,
    quarters,
)

SETTINGS = ReplicaSettings(noticeable=1.25, up_s=3.0, down_s=60.0)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("most", 1.25, "most must be > 1.25, got 1.25"),
        ("noticeable", 0.99, "noticeable must be >= 1, got 0.99"),
        ("up_s", -1.0, "up_s must be finite and >= 0, got -1.0"),
        ("down_s", float("nan"), "down_s must be finite and >= 0, got nan"),
    ],
)
def test_settings_out_of_range_are_refused(field: str, value: float, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        ReplicaSettings(**{field: value})


# --- How much is wanted --------------------------------------------------------------


def play(*seen: tuple[float, float], start: FollowedLoad | None = None) -> list[float]:
    """The loads in force after looks: (moment, load seen)."""
    load, found = start or FollowedLoad(), []
    for now, x in seen:
        load = load.followed(x, now, SETTINGS)
        found.append(load.in_force)
    return found


def test_a_short_peak_changes_nothing() -> None:
    assert play((0, 2.0), (2.9, 2.0), (3.0, 1.0), (4.0, 2.0), (6.9, 2.0)) == [1.0] * 5


def test_what_is_not_noticeable_changes_nothing() -> None:
    assert play(*((t, 1.25) for t in range(100))) == [1.0] * 100


def test_a_rate_that_doubles_is_followed_within_fifteen_seconds() -> None:
    # Over ten seconds, seen once a second: 1.1, 1.2, ... 2.0.
    ramp = [(float(t), min(1 + t / 10, 2.0)) for t in range(1, 15)]
    found = play(*ramp)
    assert [wanted_extras(1, x) for x in found].index(1) < 7
    assert wanted_extras(4, found[-1]) == 4


def test_less_is_followed_after_a_minute_and_to_the_most_of_its_last_fifty_seconds() -> None:
    high = FollowedLoad(in_force=3.0)
    assert play((0, 2.5), (10.1, 2.0), (59.9, 1.5), (60.0, 1.5), start=high) == [3.0] * 3 + [2.0]
    assert play((0, 1.0), (30.0, 3.0), (31.0, 1.0), (89.9, 1.0), start=high) == [3.0] * 4
    assert play((0, 1.0), (30.0, 3.0), (31.0, 1.0), (90.0, 1.0), start=high) == [3.0] * 3 + [1.0]
    assert play((0, 1.0), (60.0, 0.0), start=high) == [3.0, 1.0]


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_burst_is_followed_up_in_seconds_and_down_in_one_step_a_minute_after_it(
    noise: float,
) -> None:
    # Three times the rate for 15 s, then none. The rate is over ten seconds, seen four times a
    # second: it rises to 3 within ten seconds of the beginning, and falls within ten of the end.
    def seen(t: float) -> float:
        burst_s = min(t, 15.0) - max(t - 10.0, 0.0)
        wobble = noise if int(4 * t) % 8 < 4 else 0.0
        return 3.0 * max(burst_s, 0.0) / 10.0 - wobble

    looks = [k / 4 for k in range(1, 600)]
    found = [wanted_extras(1, load) for load in play(*((t, seen(t)) for t in looks))]
    steps = zip(looks, [0, *found], found, strict=False)
    changes = [(t, n) for t, before, n in steps if n != before]
    assert [n for _, n in changes] == [2, 0]
    assert changes[0][0] < 8.5  # noticed at 4.5 s, and 3 s of it
    assert 74.0 <= changes[1][0] <= 76.0


def test_who_is_not_seen_is_forgotten() -> None:
    before = {"x": FollowedLoad(in_force=2.0), "y": FollowedLoad(in_force=2.0)}
    found = followed(before, {"y": 2.0, "z": 1.0}, 0.0, SETTINGS)
    assert {query: load.in_force for query, load in found.items()} == {"y": 2.0, "z": 1.0}


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0, 10)), max_size=30))
def test_the_load_in_force_is_one_that_was_seen_within_its_bounds(
    looks: list[tuple[float, float]],
) -> None:
    now, load = 0.0, FollowedLoad()
    for pause_s, x in looks:
        now += pause_s
        load = load.followed(x, now, SETTINGS)
        assert load.in_force in {1.0, SETTINGS.most, *(x for _, x in looks)}
        assert 1 <= load.in_force <= SETTINGS.most


@pytest.mark.parametrize(
    ("replicas", "load", "extras"),
    [(1, 1.0, 0), (1, 1.09, 0), (1, 1.3, 1), (1, 2.05, 1), (3, 2.0, 3), (4, 1.5, 2), (2, 0.1, 0)],
)
def test_replicas_are_in_proportion_to_the_load(replicas: int, load: float, extras: int) -> None:
    assert wanted_extras(replicas, load) == extras


# --- What is granted -----------------------------------------------------------------


def scheduled(*candidates: Candidate, machines: int = 2, **others: object) -> Problem:
    return Problem(tiers=(cloud(machines),), candidates=candidates, **others)  # type: ignore[arg-type]


def grant(
    problem: Problem,
    loads: dict[str, float],
    before: dict[str, Assignment] | None = None,
    usd: dict[str, float] | None = None,
) -> dict[str, list[int]]:
    """The machines of extras by query, under the greedy policy's schedule."""
    schedule = Greedy().schedule(problem)
    found = granted(problem, schedule.assignments, loads, before or {}, usd or {})
    return {query: [s.machine for s in extra.machines] for query, extra in found.items()}


def small(name: str, weight: float = 1.0) -> Candidate:
    return candidate(name, plan("p", ("cloud", 0.5)), weight=weight)


def test_a_full_tier_has_no_room_for_extras() -> None:
    full = scheduled(candidate("x", plan("p", ("cloud", 1.0))), small("y"), small("z"))
    assert grant(full, {"x": 2.0, "y": 2.0, "z": 2.0}) == {}


def test_a_quota_holds_with_extras() -> None:
    mine = replace(small("x"), tenant="t")
    assert grant(scheduled(mine, quotas={"t": 0.5}), {"x": 4.0}) == {"x": [0]}
    assert grant(scheduled(mine, quotas={"t": 0.25}), {"x": 4.0}) == {}
    assert grant(scheduled(mine), {"x": 4.0}) == {"x": [0, 1, 1]}


def test_an_objective_on_cost_holds_with_extras() -> None:
    tiers = (Tier(name="cloud", machines=3, price_usd_per_hour=2.0),)
    dear = Problem(tiers=tiers, candidates=(small("x"),))  # an extra costs 1
    assert grant(dear, {"x": 4.0}, usd={"x": 0.99}) == {}
    assert grant(dear, {"x": 4.0}, usd={"x": 2.0}) == {"x": [0, 1]}


def test_more_weight_comes_first() -> None:
    problem = scheduled(small("x"), small("y", weight=2.0), machines=2)
    assert sum(map(len, grant(problem, {"x": 3.0, "y": 3.0}).values())) == 2
    assert grant(problem, {"x": 3.0, "y": 3.0}).keys() == {"y"}


def test_a_plan_on_two_tiers_gets_extras_on_both_in_turn() -> None:
    tiers = (Tier(name="edge", machines=3), Tier(name="cloud", machines=3))
    both = candidate("x", plan("p", ("edge", 1.0), ("cloud", 1.0)))
    problem = Problem(tiers=tiers, candidates=(both,))
    schedule = Greedy().schedule(problem)
    found = granted(problem, schedule.assignments, {"x": 2.0}, {}, {})
    assert {s.tier for s in found["x"].machines} == {"edge", "cloud"}


def test_machines_of_the_query_itself_have_no_extras() -> None:
    device = Tier(name="device", machines=4, dedicated=True)
    own = candidate("x", plan("p", ("device", 0.5)))
    assert grant(Problem(tiers=(device,), candidates=(own,)), {"x": 3.0}) == {}


def test_extras_stay_where_they_are_unless_a_query_needs_the_room() -> None:
    extra = Assignment(query_id="x", plan_id="p", machines=(Slice("cloud", 1, 0.5),))
    assert grant(scheduled(small("x")), {"x": 2.0}, {"x": extra}) == {"x": [1]}
    other = replace(extra, plan_id="q")  # of a plan that is not served any more
    assert grant(scheduled(small("x")), {"x": 2.0}, {"x": other}) == {"x": [0]}
    taken = scheduled(small("x"), candidate("y", plan("p", ("cloud", 1.0))))
    assert grant(taken, {"x": 2.0}, {"x": extra}) == {"x": [0]}


@given(problems(shares=TWENTIETHS), st.data())
def test_extras_are_within_machines_and_quotas_and_as_large_as_the_others(
    problem: Problem, data: st.DataObject
) -> None:
    tenants = [
        replace(c, tenant=data.draw(st.sampled_from(["", "t"]))) for c in problem.candidates
    ]
    quotas = {"t": data.draw(st.floats(0, 1))}
    asked = replace(problem, candidates=tuple(tenants), quotas=quotas)
    schedule = Greedy().schedule(asked)
    queries = list(schedule.by_query)
    loads = {q: data.draw(st.floats(1, 5)) for q in queries}
    found = granted(asked, schedule.assignments, loads, {}, {})
    # Validity of machines and quotas, were the extras queries of their own.
    own = {c.query_id: c for c in asked.candidates}
    extras = {f"{q} extra": extra for q, extra in found.items()}
    more = tuple(
        replace(own[extra.query_id], query_id=name, plans=(plan("p", *_items(extra)),))
        for name, extra in extras.items()
    )
    whole = replace(asked, candidates=(*asked.candidates, *more))
    assigned = (
        *schedule.assignments,
        *(replace(e, query_id=name, plan_id="p") for name, e in extras.items()),
    )
    wrong = validate(
        whole, Schedule(assignments=assigned, waiting=schedule.waiting, utilisation={})
    )
    assert [words for words in wrong if "utilisation" not in words] == []
    for query, extra in found.items():
        mine = {(s.tier, s.share) for s in schedule.by_query[query].machines}
        assert {(s.tier, s.share) for s in extra.machines} <= mine
    # With what was granted, the same is granted again.
    assert granted(asked, schedule.assignments, loads, found, {}) == found


def _items(extra: Assignment) -> list[tuple[str, float]]:
    return [(s.tier, s.share) for s in extra.machines]


@given(own=st.integers(1, 50), wanted=st.integers(1, 1000))
def test_a_number_of_replicas_is_the_load_that_wants_exactly_so_many(
    own: int, wanted: int
) -> None:
    load = load_for(wanted, own)
    assert own + wanted_extras(own, load) == max(wanted, own)


SMALL = Rental(effort=Effort(steps=300, idle_steps=300, time_limit_s=60.0))


def rent(problem: Problem, schedule: Schedule) -> float:
    return rented_usd_per_hour(problem.tiers, schedule.assignments)


def test_without_machines_everybody_waits_and_nothing_is_paid() -> None:
    problem = Problem(tiers=(cloud(0),), candidates=(candidate("a", plan("p", ("cloud", 0.5))),))
    schedule = SMALL.schedule(problem)
    assert list(schedule.waiting) == ["a"]
    assert rent(problem, schedule) == 0.0


def test_when_machines_do_not_reach_those_who_fit_are_served() -> None:
    queries = tuple(candidate(f"q{i}", plan("p", ("cloud", 0.75))) for i in range(3))
    schedule = SMALL.schedule(Problem(tiers=(cloud(2),), candidates=queries))
    assert (len(schedule.assignments), len(schedule.waiting)) == (2, 1)


def test_a_machine_that_is_dear_by_share_may_be_cheaper_for_all() -> None:
    # by shares the edge is cheaper (0.75 x 1 < 0.25 x 3.9), but one cloud machine holds all four
    both = (plan("e", ("edge", 0.75), cost=0.75), plan("c", ("cloud", 0.25), cost=0.975))
    tiers = (
        Tier(name="edge", machines=4, price_usd_per_hour=1.0),
        Tier(name="cloud", machines=4, price_usd_per_hour=3.9),
    )
    problem = Problem(tiers=tiers, candidates=tuple(candidate(f"q{i}", *both) for i in range(4)))
    assert rent(problem, Greedy(ranking=Ranking.MONEY).schedule(problem)) == pytest.approx(4.0)
    assert rent(problem, SMALL.schedule(problem)) == pytest.approx(3.9)


def test_own_devices_cost_nothing() -> None:
    device = Tier(name="device", machines=1, dedicated=True, price_usd_per_hour=9.0)
    alone, shared = plan("d", ("device", 1.0)), plan("c", ("cloud", 0.1))
    tiers = (device, replace(cloud(1), price_usd_per_hour=1.0))
    problem = Problem(tiers=tiers, candidates=(candidate("a", alone, shared),))
    assert rent(problem, SMALL.schedule(problem)) == 0.0


def test_what_runs_is_not_moved_to_save_money() -> None:
    tiers = (
        Tier(name="edge", machines=2, price_usd_per_hour=1.0),
        Tier(name="cloud", machines=2, price_usd_per_hour=9.0),
    )
    both = (plan("e", ("edge", 0.5)), plan("c", ("cloud", 0.5)))
    dear = candidate("old", plan("c", ("cloud", 0.5)))
    before = SMALL.schedule(Problem(tiers=tiers, candidates=(dear,)))
    problem = Problem(
        tiers=tiers,
        candidates=(candidate("old", *both), candidate("new", *both)),
        running=before.by_query,
    )
    schedule = SMALL.schedule(problem)
    assert schedule.by_query["old"] == before.by_query["old"]
    assert rent(problem, schedule) == 9.0  # the machine that is paid for anyway has room


@given(data=st.data(), tiers=st.integers(1, 2))
@settings(deadline=None, max_examples=60)
def test_nobody_serves_all_for_less_than_brute_force(data: st.DataObject, tiers: int) -> None:
    problem = data.draw(quarters(tiers))
    schedule = SMALL.schedule(problem)
    least = least_rent(problem)
    if not schedule.waiting:
        assert rent(problem, schedule) >= least - 1e-9
    if least == inf:
        assert schedule.waiting


def test_more_steps_never_cost_more() -> None:
    tiers = tuple(
        Tier(name=name, machines=40, price_usd_per_hour=price)
        for name, price in (("edge", 0.75), ("metro", 2.5), ("cloud", 3.7))
    )
    for seed in range(3):
        problem = problem_of(Recipe(queries=20, plans=5, tiers=tiers), seed)
        none = Rental(effort=Effort(steps=0)).schedule(problem)
        some = SMALL.schedule(problem)
        assert not some.waiting
        assert rent(problem, some) <= rent(problem, none) + 1e-9
