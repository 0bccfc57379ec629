"""Cheapest capacity while there is some, any capacity while there is not: a state machine (3.3).

    COST      -> CAPACITY   at once, when fewer of a wanted unit can be had than are wanted
    CAPACITY  -> COST       when all that is wanted could be had for `settle_s` without a break,
                            or at once when a load cycle restarts and it can be had then

Pure: an observation goes in with its time, the next state comes out, with the reason. Wherever the
authors poll every five minutes (their repository, see `routers.POLLED_S`), whoever calls this does
so when something happened, and at `RegimeState.look_at_s`.

Capacity that comes and goes would make traffic flap. So each further failover in a cycle doubles
how long capacity must have been back, up to `longest_settle_s`; a new cycle forgets them. The
paper switches back as a cycle begins if there is capacity by then (5.4.3), and at no other time;
its authors' checker does so while one to five senders of load run. It is silent on
demand that wanted units do not meet while each can be had: more are wanted then, the regime stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import floor, inf

from circinus.pipelines import checks


class Regime(StrEnum):
    """By what traffic weights are made."""

    COST = "cost"
    CAPACITY = "capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimeSettings:
    """When regimes change."""

    # seconds that capacity must have been back, `>= 0`. 30: longer than that of a node which comes
    # up and is taken away again
    settle_s: float = 30.0
    longest_settle_s: float = 960.0  # after many failovers in a cycle, `>= settle_s`
    cycle_s: float | None = None  # after which load starts anew, `> 0`; None: never

    def __post_init__(self) -> None:
        checks.non_negative("settle_s", self.settle_s)
        longer = self.longest_settle_s >= self.settle_s
        checks.require(longer, "longest_settle_s", "must be >= settle_s", self.longest_settle_s)
        checks.positive("cycle_s", self.cycle_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityObservation:
    """What there was at a moment."""

    at_s: float  # of one clock, never less than before
    wanted: Mapping[str, int]  # unit -> how many cost mode asks for
    available: Mapping[str, int]  # unit -> how many run or can be had; of others none

    @property
    def short(self) -> tuple[str, ...]:
        """Return the units of which fewer can be had than are wanted, in order."""
        short = (
            name for name, count in self.wanted.items() if count > self.available.get(name, 0)
        )
        return tuple(short)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimeState:
    """Where the state machine is."""

    regime: Regime = Regime.COST
    since_s: float = 0.0  # when it began
    why: str = "as it starts"
    whole_since_s: float | None = None  # since when all that is wanted can be had; None: it cannot
    failovers: int = 0  # in this cycle
    cycle: int = 0  # how many cycles began before this one

    def look_at_s(self, settings: RegimeSettings) -> float:
        """Return when it may change although nothing happens; inf: never."""
        due = inf
        if self.regime is Regime.CAPACITY and self.whole_since_s is not None:
            due = self.whole_since_s + self.settles_s(settings)
            if settings.cycle_s is not None:
                due = min(due, (self.cycle + 1) * settings.cycle_s)
        return due

    def settles_s(self, settings: RegimeSettings) -> float:
        """Return how long capacity must have been back."""
        doubled: float = settings.settle_s * 2.0 ** min(max(self.failovers - 1, 0), 60)
        return min(doubled, settings.longest_settle_s)


def stepped(
    state: RegimeState, observation: CapacityObservation, settings: RegimeSettings
) -> RegimeState:
    """Return the state after an observation."""
    anew = False
    if settings.cycle_s is not None:
        cycle = floor(observation.at_s / settings.cycle_s)
        anew = cycle > state.cycle
        if anew:
            state = replace(state, cycle=cycle, failovers=0)
    short = observation.short
    if short:
        state = replace(state, whole_since_s=None)
        if state.regime is Regime.CAPACITY:
            return state
        units = ", ".join(
            f"{name} ({observation.available.get(name, 0)} of {observation.wanted[name]})"
            for name in short
        )
        failovers = state.failovers + 1
        return _changed(state, Regime.CAPACITY, observation, f"cannot be had: {units}", failovers)
    if state.whole_since_s is None:
        state = replace(state, whole_since_s=observation.at_s)
    if state.regime is Regime.COST:
        return state
    if anew:
        return _changed(state, Regime.COST, observation, "a load cycle began", state.failovers)
    # deviates: route-back-within-a-cycle
    back_s = observation.at_s - (state.whole_since_s or 0.0)
    if back_s >= state.settles_s(settings):
        why = f"all that is wanted could be had for {back_s:.0f} s"
        return _changed(state, Regime.COST, observation, why, state.failovers)
    return state


def _changed(
    state: RegimeState, regime: Regime, observation: CapacityObservation, why: str, failovers: int
) -> RegimeState:
    return replace(state, regime=regime, since_s=observation.at_s, why=why, failovers=failovers)
