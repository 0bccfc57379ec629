"""Which mix of machine types a query should have: from what is known of it to the answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from circinus.api.bootstrap import choosing
from circinus.api.bootstrap.choosing import PoolChooser
from circinus.api.schemas.pools import ChoosePoolBody, ChooseQueryPoolBody, LatencyInput
from circinus.api.store.records import Conflict, NotFound
from circinus.api.store.store import Store
from circinus.api.use_cases.query_pools import HEADROOM, question_of, require_choosable
from circinus.deploy.profiling.isolated import ChildFailed
from circinus.deploy.runtime.learning import ObservedWorkload, TypeSeconds
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput, Unavailable
from circinus.pipelines.model.plan import DemandItem
from tests.api.fakes import FakeDeployer, add_planned, plan
from tests.api.loops import Loops, loops
from tests.api.test_pooling import UNLIKE, parts

PLAN = plan(share=1.0)  # 0.2 s on the slowest type, of speed 0.5; the large one has speed 2
ASKED = ChooseQueryPoolBody(requests=200)


@pytest.fixture
def watched(store: Store, deployer: FakeDeployer) -> Loops:
    return loops(store, deployer, ManualClock(1000.0), infrastructure=UNLIKE)


def served(watched: Loops, store: Store, **spec: object) -> None:
    add_planned(store, "q-1", PLAN, at=0.0, **spec)
    asyncio.run(watched.tick())


def demand(**learnt: TypeSeconds) -> ObservedWorkload:
    """100 requests of two sizes, a quarter of them large."""
    return ObservedWorkload(
        plan_id=PLAN.id,
        sizes=np.array([1.0, 4.0]),
        classes=np.repeat([0, 1], [75, 25]),
        rate_per_s=5.0,
        seconds={"cloud": learnt},
        elsewhere_s={"cloud": 0.1},
    )


def seconds(small: float, large: float) -> TypeSeconds:
    return TypeSeconds(mean_s=np.array([small, large]), std_s=np.zeros(2))


# --- What cannot be asked ---------------------------------------------------------------


def test_a_query_must_exist_and_be_served(watched: Loops, store: Store) -> None:
    with pytest.raises(NotFound, match="query must exist"):
        question_of(parts(watched), "q-9", ASKED, None)
    add_planned(store, "q-1", PLAN)
    with pytest.raises(Conflict, match="phase must be deploying or serving, got waiting"):
        question_of(parts(watched), "q-1", ASKED, None)


def test_the_tier_must_have_types_and_be_used(watched: Loops, store: Store) -> None:
    served(watched, store)
    for tier in ("edge", "fog"):
        with pytest.raises(InvalidInput, match=r"tier must be one with .* types .*: cloud, got"):
            question_of(parts(watched), "q-1", ASKED.model_copy(update={"tier": tier}), None)


def test_a_query_on_alike_machines_has_no_mix(watched: Loops, store: Store) -> None:
    on_edge = replace(PLAN, demand=(DemandItem("edge", 0.5),))
    add_planned(store, "q-1", on_edge)
    asyncio.run(watched.tick())
    with pytest.raises(InvalidInput, match="tier must be one with machine types"):
        question_of(parts(watched), "q-1", ASKED, None)


def test_without_requests_a_rate_or_a_budget_must_be_told(watched: Loops, store: Store) -> None:
    served(watched, store)
    with pytest.raises(InvalidInput, match="rate_per_s must be given, or budget_usd_per_hour"):
        question_of(parts(watched), "q-1", ASKED, None)


def test_without_a_deadline_one_must_be_told(watched: Loops, store: Store) -> None:
    served(watched, store, slo={"accuracy": 0.5, "throughput_per_s": 1.0})
    with pytest.raises(InvalidInput, match="qos_ms must be given: the query has no deadline"):
        question_of(parts(watched), "q-1", ASKED, demand())


def test_what_cannot_be_paid_is_answered_without_simulating(watched: Loops, store: Store) -> None:
    served(watched, store)
    asked = ASKED.model_copy(update={"budget_usd_per_hour": 0.4})
    question = question_of(parts(watched), "q-1", asked, demand())
    assert question.body is None
    answer = question.answered(None)
    assert answer.slices is None
    assert answer.choice.reason == "a slice costs 0.5 USD/h at least, and 0.4 may be spent"


def test_what_takes_its_deadline_elsewhere_has_no_pool(watched: Loops, store: Store) -> None:
    served(watched, store)
    late = replace(demand(), elsewhere_s={"cloud": 1.5})
    question = question_of(parts(watched), "q-1", ASKED, late)
    assert question.why_not == "answers spend 0.5 s beyond their deadline elsewhere than on cloud"


def test_where_all_machines_are_taken_there_is_no_room(watched: Loops, store: Store) -> None:
    served(watched, store)
    for number in range(2, 6):  # of five machines
        add_planned(store, f"q-{number}", PLAN)
    asyncio.run(watched.tick())
    question = question_of(parts(watched), "q-1", ASKED, demand())
    assert sum(each.room for each in question.types) == 1  # its own


# --- What is asked ----------------------------------------------------------------------


def test_what_is_not_known_follows_from_speeds_and_the_plan(watched: Loops, store: Store) -> None:
    served(watched, store, request_rate_per_s=3.0)
    question = question_of(parts(watched), "q-1", ASKED, None)
    told = {each.type: (each.mean_ms, each.known, each.room) for each in question.types}
    assert {kind: mean for kind, (mean, *_) in told.items()} == pytest.approx(
        {"small": 200.0, "large": 50.0}
    )
    assert {kind: rest for kind, (_, *rest) in told.items()} == {
        "small": ["by speed", 3],
        "large": ["by speed", 2],
    }
    assert (question.sample, question.rate_per_s) == (0, 3.0)
    assert question.qos_s == pytest.approx(1.0)  # all that the plan foresees is on the tier
    assert question.body is not None
    assert question.body.most == {"small": 3, "large": 2}
    assert question.body.budget_usd_per_hour == pytest.approx(3 * 0.5 + 2 * 2.0)


def test_what_was_learnt_counts_and_the_others_follow_from_it(
    watched: Loops, store: Store
) -> None:
    served(watched, store, request_rate_per_s=3.0)
    question = question_of(parts(watched), "q-1", ASKED, demand(small=seconds(0.2, 0.8)))
    assert {each.type: each.known for each in question.types} == {
        "small": "learnt",
        "large": "by speed",
    }
    means = [(each.mean_ms, each.slowest_ms) for each in question.types]
    assert means == [pytest.approx((350.0, 800.0)), pytest.approx((87.5, 200.0))]
    assert question.rate_per_s == pytest.approx((HEADROOM + 0.1) * 5.0)  # as came, not as planned
    assert question.qos_s == pytest.approx(0.9)
    assert question.body is not None
    assert question.body.mix == [1] * 75 + [2] * 25


def test_what_an_earlier_plan_met_says_nothing(watched: Loops, store: Store) -> None:
    served(watched, store, request_rate_per_s=3.0)
    other = replace(demand(small=seconds(9.0, 9.0)), plan_id="p-other")
    assert question_of(parts(watched), "q-1", ASKED, other).sample == 0


def test_the_objective_on_cost_bounds_the_budget(watched: Loops, store: Store) -> None:
    slo = {"accuracy": 0.5, "latency_s": 1.0, "cost_usd_per_hour": 2.2}
    served(watched, store, slo=slo)
    for asked, most in ((9.0, 2.2), (1.7, 1.7)):
        body = ASKED.model_copy(update={"budget_usd_per_hour": asked})
        question = question_of(parts(watched), "q-1", body, demand())
        assert question.body is not None
        assert question.body.budget_usd_per_hour == pytest.approx(most)
        assert question.body.rate_per_s is None  # the largest for it


def test_machines_of_others_are_no_room(watched: Loops, store: Store) -> None:
    served(watched, store)
    add_planned(store, "q-2", PLAN)
    asyncio.run(watched.tick())
    question = question_of(parts(watched), "q-1", ASKED, demand())
    assert sum(each.room for each in question.types) == 4


# --- What is answered: chosen in a process of its own -----------------------------------


def chosen(body: ChoosePoolBody, limit_s: float = 60.0) -> object:
    return asyncio.run(PoolChooser(limit_s).choose(body))


def body_of(**fields: object) -> ChoosePoolBody:
    rows = [
        LatencyInput(type=kind, batch=batch, mean_ms=factor * batch)
        for kind, factor in (("g4dn.xlarge", 1.0), ("r5n.large", 2.0))
        for batch in (100, 400)
    ]
    told = {"latencies": rows, "qos_ms": 1200.0, "mix": [100, 100, 400], "requests": 300}
    return ChoosePoolBody.model_validate(told | fields)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({}, "budget_usd_per_hour must be given, or rate_per_s"),
        ({"rate_per_s": 1.0, "types": ["p9"]}, "types must be among g4dn.xlarge, r5n.large"),
        ({"rate_per_s": 1.0, "most": {"p9": 1}}, "most must be among g4dn.xlarge, r5n.large"),
        ({"rate_per_s": 1.0, "mix": [401]}, r"batch must be in \[1, 400\]"),
    ],
)
def test_what_makes_no_sense_starts_no_process(fields: dict[str, object], rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        require_choosable(body_of(**fields))


def test_latencies_are_told_once_of_every_pair_with_known_prices() -> None:
    body = body_of(rate_per_s=1.0)
    for rows, rule in (
        ([*body.latencies, body.latencies[0]], "latencies must not repeat"),
        (body.latencies[1:], "must have every type at every batch"),
        ([LatencyInput(type="own", batch=400, mean_ms=1.0)], "prices must have every type"),
    ):
        with pytest.raises(InvalidInput, match=rule):
            require_choosable(body.model_copy(update={"latencies": rows}))


def test_what_is_wrong_only_in_the_process_is_told_as_it_is_there() -> None:
    with pytest.raises(InvalidInput, match="budget must pay an instance"):
        chosen(body_of(budget_usd_per_hour=0.01))


def test_a_choice_that_takes_too_long_is_ended() -> None:
    with pytest.raises(InvalidInput, match=r"must be few enough to choose within 0\.2 s"):
        chosen(body_of(rate_per_s=1.0, requests=20_000), limit_s=0.2)


def test_a_query_gets_the_cheapest_mix_that_is_in_time(watched: Loops, store: Store) -> None:
    """Large requests, one in four, are in time on the large type alone."""
    served(watched, store)
    known = demand(small=seconds(0.2, 1.0), large=seconds(0.05, 0.25))
    body = ASKED.model_copy(update={"rate_per_s": 4.0})
    question = question_of(parts(watched), "q-1", body, known)
    assert question.body is not None
    answer = question.answered(asyncio.run(PoolChooser().choose(question.body)))
    assert answer.slices == {"cloud": {"large": 1}}
    assert answer.choice.chosen is not None
    assert answer.choice.chosen.price_usd_per_hour == 2.0
    more = ASKED.model_copy(update={"rate_per_s": 300.0})  # what no machines here can
    question = question_of(parts(watched), "q-1", more, known)
    assert question.body is not None
    answer = question.answered(asyncio.run(PoolChooser().choose(question.body)))
    assert answer.slices == {"cloud": {"small": 3, "large": 2}}  # so, the largest rate
    assert "the largest rate" in answer.choice.reason


def test_a_process_that_ends_without_an_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*_: object) -> None:
        raise ChildFailed("its process ended with exit code -9")

    monkeypatch.setattr(choosing, "run_copy", ended)
    with pytest.raises(Unavailable, match="choosing a pool ended without an answer"):
        chosen(body_of(rate_per_s=1.0))
