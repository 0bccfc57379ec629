"""Gates that wait for rate limits: threads, an event loop, several endpoints, ends."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

import pytest

from circinus.pipelines.clock import ManualClock, SystemClock
from circinus.pipelines.errors import InvalidInput, Stopped, Unavailable
from circinus.pipelines.model.endpoints import RateLimits, Usage
from circinus.profiler.leases import LeaseReply, LeaseReport, Leases, LeaseTimes, MemoryLeases
from circinus.profiler.rate_gate import AsyncRateGate, RateAdmission, RateGate

ONE = Usage(calls=1.0)
LIMITS = {"gpt": RateLimits(requests_per_minute=2), "claude": RateLimits(concurrent=1)}
SHORT = LeaseTimes(window_s=0.6)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def gate(
    clock: ManualClock, admission: RateAdmission | None = None, stop_at: float = 1e9
) -> RateGate:
    """Return a gate whose waiting moves the clock on."""
    return RateGate(
        admission or RateAdmission(LIMITS, MemoryLeases(clock), clock, "a"),
        stop=lambda: clock.now() >= stop_at,
        pause=lambda _, seconds: clock.sleep(seconds),
    )


def test_more_than_a_whole_limit_is_refused_and_holds_up_nobody(clock: ManualClock) -> None:
    made = gate(clock)
    with pytest.raises(InvalidInput, match=r"endpoint gpt\.limits\.requests_per_minute"):
        made.admit("reader", {"claude": ONE, "gpt": Usage(calls=3.0)})
    made.admit("reader", {"claude": ONE})
    assert clock.now() == 0


def test_who_waits_when_nothing_is_to_be_run_any_more_is_stopped_and_leaves_its_place(
    clock: ManualClock,
) -> None:
    admission = RateAdmission(LIMITS, MemoryLeases(clock), clock, "a")
    made = gate(clock, admission, stop_at=5.0)
    held = made.admit("reader", {"claude": ONE})
    with pytest.raises(Stopped, match="nothing is called any more"):
        made.admit("reader", {"claude": ONE})
    assert clock.now() == pytest.approx(5.0, abs=0.2)
    made.settle(held, {"claude": ONE})
    gate(clock, admission).admit("reader", {"claude": ONE})


def test_a_third_request_waits_until_a_window_after_the_end_of_the_first(
    clock: ManualClock,
) -> None:
    made = gate(clock)
    first, second = (made.admit("reader", {"gpt": ONE}) for _ in range(2))
    clock.sleep(7.0)
    made.settle(first, {"gpt": ONE})
    made.settle(second, {"gpt": ONE})
    made.admit("reader", {"gpt": ONE})
    assert 67.0 < clock.now() < 67.0 + LeaseTimes().grain_s + 0.01


def test_what_was_waited_for_is_known_by_limit(clock: ManualClock) -> None:
    made = gate(clock)
    for _ in range(2):
        made.settle(made.admit("reader", {"gpt": ONE}), {"gpt": ONE})
    assert made.waits.seconds == 0.0
    made.admit("reader", {"gpt": ONE})
    assert made.waits.seconds == clock.now()
    assert made.waits.by_cause["requests per minute of endpoint gpt"] == clock.now()


def test_what_was_not_used_is_had_again_at_once(clock: ManualClock) -> None:
    made = gate(clock)
    made.settle(made.admit("reader", {"gpt": Usage(calls=2.0)}), {"gpt": ONE})
    made.admit("reader", {"gpt": ONE})
    assert clock.now() == 0


def test_a_leave_that_is_settled_twice_counts_once(clock: ManualClock) -> None:
    made = gate(clock)
    held, other = made.admit("reader", {"gpt": ONE}), made.admit("reader", {"gpt": ONE})
    made.settle(held, {})
    made.settle(held, {})
    made.admit("reader", {"gpt": ONE})
    made.settle(other, {"gpt": ONE})
    assert clock.now() == 0


def test_what_has_no_limits_has_leave_at_once(clock: ManualClock) -> None:
    made = gate(clock)
    for _ in range(100):
        leave = made.admit("reader", {"llama": Usage(calls=1e9, input_tokens=float("inf"))})
        made.settle(leave, {})
    assert clock.now() == 0


@dataclass
class Flaky:
    """Leases that cannot be reached for a while."""

    leases: Leases
    clock: ManualClock
    back_at: float

    @property
    def times(self) -> LeaseTimes:
        return self.leases.times

    def exchange(self, report: LeaseReport) -> LeaseReply:
        if self.clock.now() < self.back_at:
            raise Unavailable("the database is away", retry_after_s=1.0)
        return self.leases.exchange(report)


def test_who_asks_while_leases_are_out_of_reach_waits_for_them(clock: ManualClock) -> None:
    leases = Flaky(MemoryLeases(clock), clock, back_at=30.0)
    made = gate(clock, RateAdmission(LIMITS, leases, clock, "a"))
    made.admit("reader", {"gpt": ONE})
    assert clock.now() == pytest.approx(30.0, abs=2 * LeaseTimes().look_s)


def test_a_gate_that_is_left_gives_back_what_it_has_in_hand(clock: ManualClock) -> None:
    limits = {"gpt": RateLimits(requests_per_minute=100)}
    leases = MemoryLeases(clock)
    with RateGate(RateAdmission(limits, leases, clock, "a")) as made:
        made.settle(made.admit("reader", {"gpt": ONE}), {"gpt": ONE})
    asked = RateAdmission(limits, leases, clock, "b")
    reply = asked.ask({"gpt": Usage(calls=99.0)})
    assert asked.exchange()
    assert asked.wait_s(reply) is None


def test_a_gate_whose_leases_are_gone_is_left_all_the_same(clock: ManualClock) -> None:
    flaky = Flaky(MemoryLeases(clock), clock, back_at=0.0)
    with RateGate(RateAdmission(LIMITS, flaky, clock, "a")) as made:
        made.settle(made.admit("reader", {"gpt": ONE}), {"gpt": ONE})
        flaky.back_at = 1.0


@dataclass
class Counter:
    """How many are inside at once, and how many at most."""

    now: int = 0
    most: int = 0
    made: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, by: int) -> None:
        with self._lock:
            self.now += by
            self.most = max(self.most, self.now)
            self.made += by > 0


def test_threads_of_two_gates_that_need_the_same_endpoints_never_wait_in_a_circle() -> None:
    clock, inside = SystemClock(), Counter()
    leases = MemoryLeases(clock, SHORT)
    limits = {"claude": RateLimits(concurrent=1), "gpt": RateLimits(concurrent=1)}

    def calls(made: RateGate, names: tuple[str, str]) -> None:
        for _ in range(5):
            leave = made.admit("reader", dict.fromkeys(names, ONE))
            inside.add(1)
            inside.add(-1)
            made.settle(leave, dict.fromkeys(names, ONE))

    with (
        RateGate(RateAdmission(limits, leases, clock, "a")) as a,
        RateGate(RateAdmission(limits, leases, clock, "b")) as b,
    ):
        threads = [
            threading.Thread(target=calls, args=(made, names))
            for made in (a, b)
            for names in (("gpt", "claude"), ("claude", "gpt"))
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(timeout=60)
    assert (inside.most, inside.made) == (1, 20)


def test_a_loop_that_waits_for_leave_goes_on_meanwhile() -> None:
    async def scenario() -> tuple[int, int]:
        inside, ticks = Counter(), 0
        admission = RateAdmission(
            {"gpt": RateLimits(concurrent=2)},
            MemoryLeases(SystemClock(), SHORT),
            SystemClock(),
            "a",
        )
        async with AsyncRateGate(admission) as made:

            async def call() -> None:
                leave = await made.admit("reader", {"gpt": ONE})
                inside.add(1)
                await asyncio.sleep(0.01)
                inside.add(-1)
                made.settle(leave, {"gpt": ONE})

            tasks = [asyncio.create_task(call()) for _ in range(12)]
            while not all(task.done() for task in tasks):
                await asyncio.sleep(0.001)
                ticks += 1
        assert inside.made == 12
        return inside.most, ticks

    most, ticks = asyncio.run(scenario())
    assert most == 2
    assert ticks > 12


def test_a_request_that_is_cancelled_while_it_waits_leaves_its_place() -> None:
    async def scenario() -> None:
        admission = RateAdmission(
            {"gpt": RateLimits(concurrent=1)},
            MemoryLeases(SystemClock(), SHORT),
            SystemClock(),
            "a",
        )
        async with AsyncRateGate(admission) as made:
            held = await made.admit("reader", {"gpt": ONE})
            waits = asyncio.create_task(made.admit("reader", {"gpt": ONE}))
            await asyncio.sleep(0.05)
            assert not waits.done()
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
            made.settle(held, {"gpt": ONE})
            await asyncio.wait_for(made.admit("reader", {"gpt": ONE}), timeout=30)
            with pytest.raises(InvalidInput, match="requests_per_minute"):
                await AsyncRateGate(
                    RateAdmission(LIMITS, admission.leases, SystemClock(), "b")
                ).admit("reader", {"gpt": Usage(calls=3.0)})

    asyncio.run(scenario())


class Broken:
    """Leases that do not do what they should."""

    times = SHORT

    def exchange(self, report: LeaseReport) -> LeaseReply:
        raise RuntimeError("no such table")


def test_whoever_waits_on_a_loop_is_told_what_is_wrong_with_the_leases() -> None:
    async def scenario() -> None:
        admission = RateAdmission(LIMITS, Broken(), SystemClock(), "a")
        async with AsyncRateGate(admission) as made:
            with pytest.raises(RuntimeError, match="no such table"):
                await asyncio.wait_for(made.admit("reader", {"gpt": ONE}), timeout=30)
            admission.leases = MemoryLeases(SystemClock(), SHORT)  # to be left in peace

    asyncio.run(scenario())
