"""Every object that was added is looked at, by one worker at a time, and failures come apart."""

from __future__ import annotations

from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.api.operator.controller import WorkQueue
from circinus.pipelines.backoff import Backoff
from circinus.pipelines.clock import ManualClock, SystemClock

AGAIN = Backoff(first_s=1.0, longest_s=4.0)


def test_nothing_is_due_before_its_time() -> None:
    clock = ManualClock()
    queue = WorkQueue(clock=clock)
    queue.add("a")
    assert queue.ready() == "a"
    queue.done("a", 10.0)
    clock.sleep(9.9)
    assert queue.ready() is None
    clock.sleep(0.1)
    assert queue.ready() == "a"


def test_what_is_in_hand_is_given_to_nobody_else_and_once_more_afterwards() -> None:
    queue = WorkQueue(clock=ManualClock())
    queue.add("a")
    assert queue.ready() == "a"
    queue.add("a")  # changed meanwhile
    queue.add("b")
    assert (queue.ready(), queue.ready()) == ("b", None)
    queue.done("a", None)
    assert queue.ready() == "a"


def test_each_failure_in_a_row_waits_twice_as_long_up_to_the_longest() -> None:
    clock = ManualClock()
    queue = WorkQueue(clock=clock)
    queue.add("a")
    assert queue.ready() == "a"
    waited = []
    for _ in range(5):
        begun = clock.now()
        queue.done("a", AGAIN)
        while queue.ready() is None:
            clock.sleep(0.5)
        waited.append(clock.now() - begun)
    assert waited == [1.0, 2.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize("news", [True, False])
def test_news_are_looked_at_now_and_begin_the_pauses_anew(news: bool) -> None:
    clock = ManualClock()
    queue = WorkQueue(clock=clock)
    queue.add("a")
    for _ in range(3):
        while queue.ready() is None:
            clock.sleep(1.0)
        queue.done("a", AGAIN)
    if news:
        queue.add("a")
        assert queue.ready() == "a"
        queue.done("a", AGAIN)
        clock.sleep(1.0)
        assert queue.ready() == "a"
    else:
        clock.sleep(3.9)
        assert queue.ready() is None


def test_closing_lets_those_go_who_wait() -> None:
    queue, found = WorkQueue(clock=SystemClock()), list[str | None]()
    threads = [Thread(target=lambda: found.append(queue.take())) for _ in range(3)]
    for thread in threads:
        thread.start()
    queue.close()
    for thread in threads:
        thread.join(10)
    assert found == [None] * 3


def test_who_waits_for_a_later_one_gets_one_that_is_added_for_now() -> None:
    queue, found = WorkQueue(clock=SystemClock()), list[str | None]()
    queue.add("later")
    assert queue.take() == "later"
    queue.done("later", 3600.0)
    thread = Thread(target=lambda: found.append(queue.take()))
    thread.start()
    queue.add("now")
    thread.join(10)
    assert found == ["now"]
    queue.close()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "take", "done", "fail", "wait"]), st.sampled_from("abc")
        ),
        max_size=60,
    )
)
def test_whatever_was_added_is_taken_after_it_was_added(steps: list[tuple[str, str]]) -> None:
    clock = ManualClock()
    queue, held, owed = WorkQueue(clock=clock), set[str](), set[str]()
    for step, key in steps:
        if step == "add":
            queue.add(key)
            owed.add(key)
        elif step == "take":
            if (taken := queue.ready()) is not None:
                assert taken not in held
                held.add(taken)
                owed.discard(taken)
        elif step == "wait":
            clock.sleep(1.0)
        elif key in held:
            held.discard(key)
            queue.done(key, AGAIN if step == "fail" else None)
    for key in held:
        queue.done(key, None)
    while (taken := queue.ready()) is not None:
        owed.discard(taken)
        queue.done(taken, None)
    assert owed == set()
