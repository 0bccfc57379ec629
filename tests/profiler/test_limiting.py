"""No window of a server holds more than a limit, whatever is called; and not much less."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.endpoints import RateLimits, Usage
from circinus.profiler.leases import LeaseTimes, MemoryLeases
from circinus.profiler.limiting import Limiter
from tests.profiler.limited_calls import (
    DrawnCall,
    Schedule,
    SeenCall,
    most_at_once,
    most_in_a_window,
)

WINDOW_S = 60.0


def limiter(limits: RateLimits) -> Limiter:
    return Limiter("gpt", limits, "a", LeaseTimes())


@pytest.mark.parametrize(
    ("limits", "most", "words"),
    [
        (
            RateLimits(requests_per_minute=2),
            Usage(calls=3.0),
            r"endpoint gpt\.limits\.requests_per_minute must be at least the requests that one "
            r"attempt may use, 3, got 2\.",
        ),
        (
            RateLimits(tokens_per_minute=6_000),
            Usage(calls=1.0, input_tokens=4_000, output_tokens=2_001),
            r"endpoint gpt\.limits\.tokens_per_minute must be at least the tokens that one "
            r"attempt may use, 6001, got 6000\.",
        ),
        (
            RateLimits(tokens_per_minute=6_000),
            Usage(calls=1.0, input_tokens=10, output_tokens=inf),
            r"tokens that one attempt may use, inf, got 6000\.",
        ),
    ],
)
def test_what_is_larger_than_a_whole_limit_is_refused(
    limits: RateLimits, most: Usage, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        limiter(limits).ask(most, 0.0)


def test_what_is_as_large_as_the_whole_limit_goes() -> None:
    limits = RateLimits(requests_per_minute=2, tokens_per_minute=6_000, concurrent=1)
    call = DrawnCall(requests=2, made=2, most_tokens=6_000, tokens=5, takes_s=1.0)
    assert len(seen(limits, [call, call])) == 2


def test_a_window_must_have_a_length() -> None:
    with pytest.raises(InvalidInput, match=r"window_s must be finite and > 0, got 0"):
        LeaseTimes(window_s=0.0)


def seen(
    limits: RateLimits,
    calls: list[DrawnCall],
    way_s: float = 0.0,
    kills: dict[int, float] | None = None,
    away: tuple[float, float] = (inf, inf),
    *,
    is_lost: bool = False,
) -> list[SeenCall]:
    """Return the calls that left, none of them above a limit."""
    clock = ManualClock()
    leases = MemoryLeases(clock)
    schedule = Schedule(
        limits, leases, clock, calls, way_s=way_s, kills=kills or {}, away=away, is_lost=is_lost
    )
    left = schedule.run()
    counted = [(each.counted, each.drawn) for each in left]
    requests = most_in_a_window([(at, call.made) for at, call in counted], WINDOW_S)
    tokens = most_in_a_window([(at, call.tokens) for at, call in counted], WINDOW_S)
    assert requests <= (limits.requests_per_minute or inf)
    assert tokens <= (limits.tokens_per_minute or inf)
    assert most_at_once(left) <= (limits.concurrent or inf)
    return left


@st.composite
def drawn_calls(draw: st.DrawFn) -> DrawnCall:
    requests, most_tokens = draw(st.integers(1, 3)), draw(st.integers(0, 1000))
    return DrawnCall(
        holder=draw(st.integers(0, 3)),
        at=draw(st.floats(0, 100)),
        requests=requests,
        made=draw(st.integers(0, requests)),
        most_tokens=most_tokens,
        tokens=draw(st.integers(0, most_tokens)),
        takes_s=draw(st.sampled_from([0.0, 0.01, 1.0, 20.0, 65.0])),
        counted=draw(st.floats(0, 1)),
    )


LIMITS = st.builds(
    RateLimits,
    requests_per_minute=st.none() | st.integers(3, 30),
    tokens_per_minute=st.none() | st.integers(1000, 9000),
    concurrent=st.none() | st.integers(1, 4),
).filter(lambda limits: limits != RateLimits())
CALLS = st.lists(drawn_calls(), min_size=1, max_size=16)


@settings(max_examples=60, deadline=None)
@given(LIMITS, CALLS, st.sampled_from([0.0, 0.005, 2.5]))
def test_no_window_holds_more_than_a_limit_and_every_call_goes(
    limits: RateLimits, calls: list[DrawnCall], way_s: float
) -> None:
    assert len(seen(limits, calls, way_s)) == len(calls)


@settings(max_examples=60, deadline=None)
@given(
    LIMITS,
    CALLS,
    st.dictionaries(st.integers(0, 3), st.floats(0, 200), max_size=3),
    st.tuples(st.floats(0, 100), st.floats(100, 200)),
    st.booleans(),
)
def test_no_window_holds_more_when_holders_die_and_leases_are_out_of_reach(
    limits: RateLimits,
    calls: list[DrawnCall],
    kills: dict[int, float],
    away: tuple[float, float],
    is_lost: bool,
) -> None:
    left = seen(limits, calls, 0.01, kills, away, is_lost=is_lost)
    lived = [call for call in calls if call.holder not in kills]
    assert sum(each.drawn in lived for each in left) == len(lived)


def test_a_stream_of_small_calls_does_not_hold_up_a_large_one() -> None:
    # 60 tokens a second come free, and the stream would use 58 of them, for ever.
    limits = RateLimits(tokens_per_minute=3_600)
    small = [
        DrawnCall(holder=1, at=1.0 * i, most_tokens=58, tokens=58, takes_s=0.1) for i in range(400)
    ]
    large = DrawnCall(holder=0, at=100.0, most_tokens=3_600, tokens=100, takes_s=0.1)
    left = seen(limits, [*small, large], 0.01)
    (when,) = [each.left for each in left if each.drawn == large]
    assert when - large.at < 1.2 * WINDOW_S  # all that was used before it has to pass


def test_calls_of_a_holder_go_in_the_order_in_which_they_asked() -> None:
    limits = RateLimits(requests_per_minute=6)
    calls = [DrawnCall(at=0.1 * i, requests=1 + i % 3, made=1, takes_s=0.05) for i in range(20)]
    left = seen(limits, calls)
    assert [each.drawn for each in left] == calls


@pytest.mark.parametrize(
    ("limits", "tokens", "least_s"),
    [
        # 300 calls: 60 at once, then as many in each of four further windows.
        (RateLimits(requests_per_minute=60), 0.0, 4 * WINDOW_S),
        (RateLimits(tokens_per_minute=6_000), 100.0, 4 * WINDOW_S),
        # 300 calls of 0.5 s, 4 at once.
        (RateLimits(concurrent=4), 0.0, 300 * 0.5 / 4),
    ],
    ids=["requests", "tokens", "concurrent"],
)
@pytest.mark.parametrize("holders", [1, 4])
def test_a_limit_that_is_wanted_is_used_to_nine_tenths(
    limits: RateLimits, tokens: float, least_s: float, holders: int
) -> None:
    calls = [
        DrawnCall(holder=i % holders, most_tokens=tokens, tokens=tokens, takes_s=0.5)
        for i in range(300)
    ]
    left = seen(limits, calls, 0.01)
    assert max(each.ended for each in left) <= least_s / 0.9 + 0.5


def test_what_a_killed_holder_had_in_hand_is_had_by_others_a_window_after_it_lapsed() -> None:
    limits = RateLimits(requests_per_minute=10)
    calls = [DrawnCall(holder=0, requests=10, made=10, takes_s=100.0)]
    other = DrawnCall(holder=1, at=2.0, requests=10, made=10, takes_s=1.0)
    times = LeaseTimes()
    left = seen(limits, [*calls, other], kills={0: 1.0})
    assert left[1].drawn == other
    assert WINDOW_S < left[1].left <= times.lapse_s + WINDOW_S + 1.0


def test_a_slot_of_a_killed_holder_is_had_by_others_as_soon_as_it_lapsed() -> None:
    calls = [DrawnCall(holder=0, takes_s=100.0), DrawnCall(holder=1, at=2.0, takes_s=1.0)]
    left = seen(RateLimits(concurrent=1), calls, kills={0: 1.0})
    assert left[1].left <= LeaseTimes().lapse_s + 1.0


def test_few_exchanges_are_made_while_nobody_waits() -> None:
    # 1,000 calls over 50 s, one after the other: a block for each two seconds, and one for each
    # twentieth of the limit.
    clock = ManualClock()
    calls = [DrawnCall(at=0.05 * i, takes_s=0.01) for i in range(1000)]
    limits = RateLimits(requests_per_minute=2_000)
    schedule = Schedule(limits, MemoryLeases(clock), clock, calls)
    assert len(schedule.run()) == 1000
    assert schedule.exchanges <= 60
