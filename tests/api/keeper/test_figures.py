"""Figures of several dispatchers add up to those of one that had seen all requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.api.keeper.all_dispatchers import AllDispatchers
from circinus.api.keeper.figures import (
    Counts,
    QueryFigures,
    ToldAnswers,
    figures_from,
    figures_to_json,
    lately_of,
    queues_of,
    seen_of,
)
from circinus.api.keeper.process import _OF_DEPLOYMENTS
from circinus.deploy.runtime.dispatcher import RECENT, Taken
from circinus.deploy.runtime.hearing import Came, Took, latest
from circinus.deploy.runtime.observed import AnswersSeen, SeenRequests, TierLoad
from circinus.deploy.runtime.orchestrator import Recent
from circinus.deploy.runtime.tier_queue import QueueFigures
from circinus.deploy.runtime.traffic import Traffic, added
from circinus.pipelines.errors import InvalidInput

NOW = 4000.0
HAPPENINGS = st.lists(
    st.tuples(
        st.integers(0, 2),  # dispatcher
        st.floats(0, NOW),
        st.sampled_from(["answered", "late", "turned_away", "failed"]),
        st.floats(1e-5, 50.0),
    ),
    max_size=60,
)
COUNTS = st.integers(0, 1000)


def noted(traffic: Traffic, at: float, what: str, latency_s: float) -> None:
    traffic.arrived(at)
    if what == "turned_away":
        traffic.turned_away(at)
    elif what == "failed":
        traffic.failed(at)
    else:
        traffic.answered(at, latency_s, in_time=what == "answered")


@given(HAPPENINGS)
def test_what_requests_got_lately_is_as_if_one_had_served_all(
    happenings: Sequence[tuple[int, float, str, float]],
) -> None:
    alone, several = Traffic(0.0), [Traffic(0.0) for _ in range(3)]
    for dispatcher, at, what, latency_s in sorted(happenings, key=lambda each: each[1]):
        noted(alone, at, what, latency_s)
        noted(several[dispatcher], at, what, latency_s)
    assert lately_of([each.counts(NOW) for each in several]) == alone.lately(NOW)
    assert sum(each.arrivals_per_s(NOW) for each in several) == pytest.approx(
        alone.arrivals_per_s(NOW)
    )


def test_one_dispatcher_alone_is_told_as_it_is() -> None:
    traffic = Traffic(0.0)
    noted(traffic, 3990.0, "answered", 0.2)
    assert lately_of([traffic.counts(NOW)]) == traffic.lately(NOW)


@given(st.lists(st.tuples(COUNTS, COUNTS, st.floats(0, 10)), min_size=1, max_size=4))
def test_queues_add_up_and_what_is_at_work_for_one_is_so_for_all(
    told: Sequence[tuple[int, int, float]],
) -> None:
    queues = [
        {"edge": QueueFigures(waiting=w, answered=a, observed_over_predicted=r, busy=("x",))}
        for w, a, r in told
    ]
    together = queues_of(queues)["edge"]
    assert together.waiting == sum(w for w, _, _ in told)
    assert together.answered == sum(a for _, a, _ in told)
    assert together.busy == ("x",)
    answered = [(a, r) for _, a, r in told]
    weighed = sum(a * r for a, r in answered)
    if len(told) > 1:
        mean = weighed / together.answered if together.answered else 1.0
        assert together.observed_over_predicted == pytest.approx(mean)


def test_a_tier_that_the_first_does_not_know_is_left_aside() -> None:
    assert queues_of([{"edge": QueueFigures()}, {"cloud": QueueFigures(waiting=3)}]) == {
        "edge": QueueFigures()
    }


def taken(*latencies: float) -> tuple[Taken, ...]:
    return tuple(Taken(each, {"edge": each}, 0.0) for each in latencies)


def figures(answered: int, *latencies: float, plan_id: str = "p") -> QueryFigures:
    traffic = Traffic(0.0)
    return QueryFigures(
        plan_id=plan_id,
        arrivals_per_s=0.0,
        answered=answered,
        failed=0,
        taken=taken(*latencies),
        queues={"edge": QueueFigures(busy=("a",), late_s=0.5)},
        spans=traffic.counts(NOW),
    )


def test_the_latest_answers_of_several_dispatchers_are_one_list_and_queues_add_up() -> None:
    spans = Traffic(0.0).counts(NOW)
    own = SeenRequests(
        plan_id="p",
        since_s=50.0,
        arrivals_per_s=2.0,
        lately=added([spans[0]]).lately(),
        answers=seen([(9.0, 0.1), (1.0, 0.2)]),
        tiers={"edge": TierLoad(waiting=1, places=4, workers=2)},
    )
    queue = QueueFigures(busy=("a",), waiting=3)
    other = replace(figures(3), arrivals_per_s=5.0, queues={"edge": queue})
    found = seen_of(own, spans, [other], [seen([(5.0, 0.3), (0.5, 0.4)])])
    assert found.answers.ago_s.tolist() == [9.0, 5.0, 1.0, 0.5]  # the oldest first
    assert found.answers.latency_s.tolist() == [0.1, 0.3, 0.2, 0.4]
    assert found.arrivals_per_s == 7.0
    assert found.tiers == {"edge": TierLoad(waiting=4, places=4, workers=2)}  # they share those
    assert (found.plan_id, found.since_s) == ("p", 50.0)
    assert seen_of(own, spans, [], []).answers.latency_s.tolist() == [0.1, 0.2]


def seen(answers: Sequence[tuple[float, float]]) -> AnswersSeen:
    ago_s, latency_s = np.array(answers).T
    return AnswersSeen(ago_s=ago_s, latency_s=latency_s, usd=np.zeros(len(ago_s)))


def test_what_a_service_may_ask_of_a_deployer_can_be_asked_of_all_dispatchers() -> None:
    assert [name for name in _OF_DEPLOYMENTS if not hasattr(AllDispatchers, name)] == []


def test_counts_say_what_is_new_and_all_of_another_plan_is() -> None:
    before = figures(3)
    assert Counts(5, 4, 2).since(before, "p") == Counts(2, 4, 2)
    assert Counts(1, 0, 0).since(before, "p") == Counts(0, 0, 0)  # another process by that name
    assert Counts(5, 4, 2).since(before, "other") == Counts(5, 4, 2)
    assert Counts(5, 4, 2).since(None, "p") == Counts(5, 4, 2)


@given(st.lists(st.integers(), max_size=9), st.integers(0, 20))
def test_the_latest_are_the_last_of_what_is_kept(kept: list[int], count: int) -> None:
    assert list(latest(deque(kept), count)) == (kept[-count:] if count else [])


def test_a_journal_has_the_latest_in_the_order_in_which_they_are_told_and_only_grows() -> None:
    journal = ToldAnswers("p")
    journal.add_own(Recent(plan_id="p", answered=2, taken=taken(1.0, 2.0)))
    journal.add(taken(3.0), 1)
    journal.add_own(Recent(plan_id="p", answered=3, taken=taken(1.0, 2.0, 4.0)))
    assert journal.recent() == Recent(plan_id="p", answered=4, taken=taken(1.0, 2.0, 3.0, 4.0))
    journal.add(taken(*map(float, range(RECENT + 5))), RECENT + 50)
    assert journal.answered == RECENT + 54
    assert [each.latency_s for each in journal.taken] == [float(i) for i in range(5, RECENT + 5)]


def test_figures_are_read_back_as_they_were_written() -> None:
    came, took = (Came(0.5, 3.0, 1),), (Took("edge", "wait", 3.0, "small", 0.2),)
    plain = figures(5, 1.0, 2.0)
    told = {"q": replace(plain, came=came, came_count=7, took=took, took_count=9)}
    assert figures_from(figures_to_json(told)) == told


@pytest.mark.parametrize("document", [b"[]", b"{", b'{"q": {"plan_id": "p"}}'])
def test_what_are_no_figures_is_refused(document: bytes) -> None:
    with pytest.raises(InvalidInput):
        figures_from(document)
