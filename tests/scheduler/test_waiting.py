from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings

from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.waiting import shortages, why_waiting
from circinus.scheduler.policies.registry import Greedy
from circinus.scheduler.problem import Candidate, Problem, Schedule, Slice
from tests.scheduler.problems import candidate, cloud, occupied, plan, problems

TIERS = (Tier(name="device", machines=1, dedicated=True), Tier(name="edge", machines=0), cloud(2))


def why(*plans: tuple[str, tuple[tuple[str, float], ...]], used: float = 0.0) -> str:
    others = [Slice("cloud", machine, used) for machine in range(2)] if used else []
    query = candidate("a", *(plan(name, *items) for name, items in plans))
    return why_waiting(query, occupied(TIERS, *others), TIERS)


def test_it_says_which_tier_lacks_how_much_for_the_least_demanding_plan() -> None:
    assert why(("big", (("cloud", 0.9),)), ("small", (("cloud", 0.4),)), used=0.75) == (
        "Its least demanding plan small needs 0.4 of one machine of cloud, but the most free on "
        "one there is 0.25: 0.15 is missing. What would let it in: 0.15 coming free on the "
        "emptiest machine of cloud (or 1 more machine of cloud)."
    )


def test_replicas_that_find_no_room_ask_for_machines() -> None:
    # three of 0.6, each needs a machine; two are there
    assert why(("p", (("cloud", 0.6),) * 5)) == (
        "Its only plan p needs 3 times 0.6 of one machine of cloud, but the most free on one "
        "there is 0.4: 0.2 is missing. What would let it in: 3 more machines of cloud."
    )


def test_small_replicas_share_the_machines_asked_for() -> None:
    text = why(("p", (("cloud", 0.3),) * 10), used=0.8)
    assert "needs 10 times 0.3" in text
    assert text.endswith("What would let it in: 4 more machines of cloud.")


def test_a_tier_without_machines_is_named() -> None:
    assert why(("p", (("edge", 0.05),))) == (
        "Its only plan p needs 0.05 of one machine of edge, which has no machines. "
        "What would let it in: 1 more machine of edge."
    )


def test_two_tiers_that_lack_are_both_named() -> None:
    text = why(("p", (("edge", 0.5), ("cloud", 0.5))), used=0.6)
    assert "of one machine of edge" in text
    assert "0.1 coming free on the emptiest machine of cloud" in text


def test_an_item_larger_than_a_machine_gets_no_promise_of_more_machines() -> None:
    assert why(("p", (("cloud", 1.5),))).endswith(
        "What would let it in: a plan that fits one machine of cloud."
    )


def test_a_device_that_is_too_small_gets_no_promise_of_more_machines() -> None:
    text = why(("p", (("device", 0.7), ("device", 0.7))))
    assert "the most free on one of the query's own is 0.3: 0.4 is missing" in text
    assert text.endswith("What would let it in: a plan that fits one machine of device.")


def test_a_plan_that_could_fit_is_told_before_one_that_never_will() -> None:
    text = why(("never", (("device", 2.0),)), ("could", (("cloud", 0.5),)), used=0.6)
    assert "plan could needs" in text


def machines_asked_for(problem: Problem, waiting: Candidate, schedule: Schedule) -> Counter[str]:
    """Tier -> machines that the shortage of the query's first plan asks for; empty: hopeless."""
    room = occupied(problem.tiers, *(s for a in schedule.assignments for s in a.machines))
    lacks = shortages(waiting.plans[0], room, {tier.name: tier for tier in problem.tiers})
    assert lacks, "a waiting query lacks something"
    asked = {lack.tier.name: lack.machines for lack in lacks}
    if any(machines is None for machines in asked.values()):
        return Counter()
    return Counter({tier: machines or 0 for tier, machines in asked.items()})


@settings(deadline=None)
@given(problem=problems())
def test_the_machines_asked_for_do_let_the_query_in(problem: Problem) -> None:
    schedule = Greedy().schedule(problem)
    for waiting in problem.candidates:
        if waiting.query_id not in schedule.waiting:
            continue
        asked = machines_asked_for(problem, waiting, schedule)
        if not asked:
            continue
        larger = replace(
            problem,
            tiers=tuple(replace(t, machines=t.machines + asked[t.name]) for t in problem.tiers),
            candidates=tuple(
                c for c in problem.candidates if c == waiting or c.query_id in schedule.by_query
            ),
            running=schedule.by_query,
        )
        assert waiting.query_id in Greedy().schedule(larger).by_query


def test_where_machines_and_quota_are_in_the_way_both_are_told() -> None:
    queries = (
        candidate("a", plan("p", ("cloud", 1.0))),
        candidate("b", plan("p", ("cloud", 0.8))),
    )
    problem = Problem(
        tiers=(cloud(1),),
        candidates=tuple(replace(q, tenant=t) for q, t in zip(queries, ("", "acme"), strict=True)),
        running=Greedy().schedule(Problem(tiers=(cloud(1),), candidates=queries[:1])).by_query,
        quotas={"acme": 0.5},
    )
    assert Greedy().schedule(problem).waiting["b"] == (
        "Its only plan p needs 0.8 of one machine of cloud, but the most free on one there is 0: "
        "0.8 is missing. What would let it in: 0.8 coming free on the emptiest machine of cloud "
        "(or 1 more machine of cloud). Besides: Its plan p needs 0.8 machines of cloud, but "
        "tenant acme may hold 0.5 and would hold 0.3 more. What would let it in: more machines of "
        "cloud, or a larger quota."
    )
