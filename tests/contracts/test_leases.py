"""Leases of rate limits: the contract, in memory and in every kind of database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from circinus.api.store.calls import StoreLeases
from circinus.pipelines.clock import ManualClock, SystemClock
from circinus.pipelines.model.endpoints import RateLimits
from circinus.profiler.leases import (
    NO_ALLOWANCE,
    Allowance,
    EndedCalls,
    LeaseReply,
    LeaseReport,
    Leases,
    LeaseTimes,
    MemoryLeases,
)
from tests.contracts.databases import URLS, opened
from tests.profiler.limited_calls import DrawnCall, Schedule, most_at_once, most_in_a_window

TEN = RateLimits(requests_per_minute=10)
TIMES = LeaseTimes()


@pytest.fixture
def clock() -> ManualClock:
    # A moment of these years: the figures are of the size that they really have.
    return ManualClock(seconds=1_800_000_000.0)


@pytest.fixture(params=[None, *URLS], ids=lambda url_in: getattr(url_in, "__name__", "memory"))
def leases(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Leases]:
    if request.param is None:
        yield MemoryLeases(clock)
        return
    engine = opened(request.param(tmp_path))
    yield StoreLeases(engine, clock=clock)
    engine.dispose()


def report(
    holder: str,
    needs: float = 0.0,
    *,
    wants: float | None = None,
    held: float = 0.0,
    ended: tuple[EndedCalls, ...] = (),
    waited_s: float = 0.0,
    endpoint: str = "gpt",
    limits: RateLimits = TEN,
) -> LeaseReport:
    return LeaseReport(
        endpoint=endpoint,
        limits=limits,
        holder=holder,
        held=Allowance(held),
        ended=ended,
        needs=Allowance(needs),
        wants=Allowance(needs if wants is None else wants),
        waited_s=waited_s,
    )


def granted(reply: LeaseReply) -> float:
    return reply.granted.requests


def test_who_asks_for_nothing_gets_nothing(leases: Leases) -> None:
    assert leases.exchange(report("a")) == LeaseReply(
        granted=NO_ALLOWANCE, wait_s=0.0, good_s=TIMES.lapse_s, contended=False
    )


def test_no_more_is_granted_than_the_limit(leases: Leases) -> None:
    assert granted(leases.exchange(report("a", 1, wants=8))) == 8
    assert granted(leases.exchange(report("b", 1, wants=8))) == 2
    refused = leases.exchange(report("c", 1))
    assert (granted(refused), refused.wait_s) == (0.0, TIMES.look_s)


def test_endpoints_do_not_count_together(leases: Leases) -> None:
    assert granted(leases.exchange(report("a", 10))) == 10
    assert granted(leases.exchange(report("a", 10, endpoint="claude"))) == 10


def test_what_is_given_back_unused_is_had_by_others_at_once(leases: Leases) -> None:
    leases.exchange(report("a", 10))
    leases.exchange(report("a", held=4))
    assert granted(leases.exchange(report("b", 1, wants=9))) == 6


def test_what_was_used_is_had_again_a_window_after_it_ended(
    leases: Leases, clock: ManualClock
) -> None:
    leases.exchange(report("a", 10))
    clock.sleep(5.0)
    leases.exchange(report("a", ended=(EndedCalls(2.0, 10, 0),)))  # it ended at 3.0
    refused = leases.exchange(report("b", 1))
    assert (granted(refused), refused.wait_s) == (0.0, TIMES.lapse_s / 2)
    clock.sleep(57.9)
    refused = leases.exchange(report("b", 1))
    assert granted(refused) == 0
    assert 0.1 <= refused.wait_s <= 0.1 + TIMES.grain_s
    clock.sleep(refused.wait_s)
    assert granted(leases.exchange(report("b", 1))) == 1


def test_a_holder_that_fell_silent_counts_until_its_window_is_over(
    leases: Leases, clock: ManualClock
) -> None:
    leases.exchange(report("a", 10))
    clock.sleep(TIMES.lapse_s + TIMES.window_s - 1.0)
    assert granted(leases.exchange(report("b", 1))) == 0
    clock.sleep(1.0)
    assert granted(leases.exchange(report("b", 1))) == 1


def test_a_holder_that_is_heard_of_counts_on(leases: Leases, clock: ManualClock) -> None:
    leases.exchange(report("a", 10))
    for _ in range(10):
        clock.sleep(TIMES.lapse_s)
        leases.exchange(report("a", held=10))
    assert granted(leases.exchange(report("b", 1))) == 0


def test_slots_of_a_holder_that_fell_silent_are_had_at_once(
    leases: Leases, clock: ManualClock
) -> None:
    one = Allowance(slots=1.0)

    def asks(holder: str) -> LeaseReport:
        return LeaseReport(
            endpoint="gpt",
            limits=RateLimits(concurrent=1),
            holder=holder,
            held=NO_ALLOWANCE,
            needs=one,
            wants=one,
        )

    assert leases.exchange(asks("a")).granted == one
    clock.sleep(TIMES.lapse_s - 1.0)
    assert leases.exchange(asks("b")).granted == NO_ALLOWANCE
    clock.sleep(1.0)
    assert leases.exchange(asks("b")).granted == one


def test_who_waited_longest_is_next_and_gathers_what_it_needs(
    leases: Leases, clock: ManualClock
) -> None:
    leases.exchange(report("a", 8))
    first = leases.exchange(report("large", 9, waited_s=3.0))
    assert (granted(first), first.contended) == (2.0, False)
    small = leases.exchange(report("small", 1, waited_s=2.0))
    assert (granted(small), small.contended) == (0.0, True)
    leases.exchange(report("a"))  # gives all back
    assert granted(leases.exchange(report("small", 1, waited_s=2.0))) == 1  # 10 - 9 are left
    assert granted(leases.exchange(report("large", 9, waited_s=3.0))) == 9


def test_who_waits_and_falls_silent_holds_up_nobody_for_long(
    leases: Leases, clock: ManualClock
) -> None:
    leases.exchange(report("a", 10))
    leases.exchange(report("dead", 10, waited_s=1.0))
    leases.exchange(report("a", held=5))
    assert granted(leases.exchange(report("b", 1))) == 0
    clock.sleep(TIMES.lapse_s)
    leases.exchange(report("a", held=5))
    assert granted(leases.exchange(report("b", 1))) == 1


def test_a_report_that_is_repeated_counts_no_less(leases: Leases) -> None:
    told = report("a", ended=(EndedCalls(0.0, 3, 0),))
    leases.exchange(told)
    leases.exchange(told)
    assert granted(leases.exchange(report("b", 1, wants=10))) == 4


def test_what_ended_at_the_same_time_counts_together(leases: Leases) -> None:
    for holder in ("a", "b", "c"):
        leases.exchange(report(holder, ended=(EndedCalls(0.0, 2, 0),)))
    assert granted(leases.exchange(report("d", 1, wants=10))) == 4


def test_threads_that_ask_at_once_get_no_more_than_the_limit(leases: Leases) -> None:
    got: list[float] = []
    threads = [
        threading.Thread(
            target=lambda name=f"t{i}": got.append(granted(leases.exchange(report(name, 1))))
        )
        for i in range(16)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sum(got) == 10


@pytest.mark.parametrize(
    ("limits", "way_s"),
    [
        (RateLimits(requests_per_minute=8, concurrent=2), 0.01),
        (RateLimits(tokens_per_minute=900), 0.0),
    ],
)
def test_a_schedule_of_calls_keeps_within_the_limits(
    leases: Leases, clock: ManualClock, limits: RateLimits, way_s: float
) -> None:
    began = clock.now()
    calls = [
        DrawnCall(
            holder=i % 3,
            at=began + 2.0 * i,
            most_tokens=300,
            tokens=100,
            takes_s=0.7 * (i % 4),
            counted=0.5,
        )
        for i in range(24)
    ]
    left = Schedule(limits, leases, clock, calls, way_s=way_s, kills={2: began + 21.0}).run()
    assert sum(each.drawn.holder != 2 for each in left) == 16
    counted = [(each.counted, each.drawn) for each in left]
    if limits.requests_per_minute:
        assert most_in_a_window([(at, 1) for at, _ in counted], 60.0) <= 8
        assert most_at_once(left) <= 2
    else:
        assert most_in_a_window([(at, call.tokens) for at, call in counted], 60.0) <= 900


def test_a_database_tells_the_time_by_itself(engine: Engine) -> None:
    leases = StoreLeases(engine, times=LeaseTimes(window_s=0.3))
    assert granted(leases.exchange(report("a", 10))) == 10
    assert granted(leases.exchange(report("b", 1))) == 0
    SystemClock().sleep(0.3 + leases.times.lapse_s + 0.05)
    assert granted(leases.exchange(report("b", 1))) == 1
