"""The state machine of routing, by example and checked against its promises on drawn histories."""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.routing.regimes import (
    CapacityObservation,
    Regime,
    RegimeSettings,
    RegimeState,
    stepped,
)

SETTINGS = RegimeSettings(settle_s=30.0, longest_settle_s=240.0)
WANTED = {"inf2": 2, "g5": 0}


def _seen(at_s: float, inf2: int) -> CapacityObservation:
    return CapacityObservation(at_s=at_s, wanted=WANTED, available={"inf2": inf2, "g5": 3})


def _after(*told: tuple[float, int], settings: RegimeSettings = SETTINGS) -> RegimeState:
    state = RegimeState()
    for at_s, inf2 in told:
        state = stepped(state, _seen(at_s, inf2), settings)
    return state


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settle_s": -1.0}, "settle_s must be"),
        ({"settle_s": 10.0, "longest_settle_s": 5.0}, "longest_settle_s must be >= settle_s"),
        ({"cycle_s": 0.0}, "cycle_s must be finite and > 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        RegimeSettings(**change)


def test_where_all_that_is_wanted_can_be_had_it_is_the_cheapest() -> None:
    state = _after((0.0, 2), (100.0, 5))
    assert state.regime is Regime.COST
    assert state.look_at_s(SETTINGS) == inf


def test_it_fails_over_at_once_and_says_what_is_missing() -> None:
    state = _after((0.0, 2), (7.0, 1))
    assert (state.regime, state.since_s) == (Regime.CAPACITY, 7.0)
    assert state.why == "cannot be had: inf2 (1 of 2)"
    assert state.look_at_s(SETTINGS) == inf  # nothing changes until capacity does


def test_it_is_back_when_capacity_has_been_for_long_enough() -> None:
    state = _after((0.0, 2), (7.0, 1), (20.0, 2))
    assert state.look_at_s(SETTINGS) == 50.0
    assert _after((0.0, 2), (7.0, 1), (20.0, 2), (49.9, 2)).regime is Regime.CAPACITY
    back = _after((0.0, 2), (7.0, 1), (20.0, 2), (50.0, 2))
    assert (back.regime, back.why) == (Regime.COST, "all that is wanted could be had for 30 s")


def test_capacity_that_is_lost_again_starts_the_wait_anew() -> None:
    state = _after((0.0, 2), (7.0, 1), (20.0, 2), (30.0, 0), (40.0, 2))
    assert (state.regime, state.whole_since_s) == (Regime.CAPACITY, 40.0)


def test_each_further_failover_doubles_the_wait_up_to_the_longest() -> None:
    state, at_s = RegimeState(), 0.0
    waits = []
    for _ in range(6):
        state = stepped(state, _seen(at_s, 0), SETTINGS)
        state = stepped(state, _seen(at_s, 2), SETTINGS)
        waits.append(state.look_at_s(SETTINGS) - at_s)
        at_s = state.look_at_s(SETTINGS)
        state = stepped(state, _seen(at_s, 2), SETTINGS)
        assert state.regime is Regime.COST
    assert waits == [30.0, 60.0, 120.0, 240.0, 240.0, 240.0]


def test_a_new_cycle_brings_it_back_at_once_and_forgets_failovers() -> None:
    daily = RegimeSettings(settle_s=30.0, cycle_s=1000.0)
    told = ((0.0, 2), (900.0, 0), (990.0, 2))
    assert _after(*told, settings=daily).look_at_s(daily) == 1000.0
    back = _after(*told, (1000.0, 2), settings=daily)
    assert (back.regime, back.failovers, back.why) == (Regime.COST, 0, "a load cycle began")
    short = _after(*told, (1000.0, 0), settings=daily)
    assert short.regime is Regime.CAPACITY


_HISTORY = st.lists(
    st.tuples(st.floats(0.0, 100.0), st.integers(0, 3), st.integers(0, 3)),
    min_size=1,
    max_size=60,
)


@given(history=_HISTORY, cycle_s=st.none() | st.floats(50.0, 2000.0))
def test_on_any_history_it_is_cheap_only_while_it_can_be_and_returns_when_it_can(
    history: list[tuple[float, int, int]], cycle_s: float | None
) -> None:
    settings = RegimeSettings(settle_s=20.0, longest_settle_s=160.0, cycle_s=cycle_s)
    state, at_s, switches = RegimeState(), 0.0, 0
    seen, whole_since = CapacityObservation(at_s=0.0, wanted={"a": 0}, available={}), 0.0
    for gap_s, wanted, available in history:
        at_s += gap_s
        news = CapacityObservation(at_s=at_s, wanted={"a": wanted}, available={"a": available})
        # Whoever calls looks again when a look is due, and sees then what there was before.
        due = state.look_at_s(settings)
        for each in [replace(seen, at_s=due), news] if due < at_s else [news]:
            after = stepped(state, each, settings)
            if each.short:
                whole_since = inf
            whole_since = each.at_s if whole_since == inf and not each.short else whole_since
            assert not (after.regime is Regime.COST and each.short)
            if each.at_s - whole_since >= settings.longest_settle_s:
                assert after.regime is Regime.COST  # always back when it can
            if after.regime is not state.regime:
                switches += 1
                assert after.since_s == each.at_s
            state = after
        seen = news
    cycles = 1 if cycle_s is None else at_s / cycle_s + 1
    # Waits double within a cycle: each doubling has a return, then there is one in 160 s at most.
    assert switches <= 2 * (cycles * (log2(160 / 20) + 2) + at_s / 160) + 2
