"""Rent or call: the request rate at which the cheapest plan changes from calls to machines.

| symbol | meaning |
| --- | --- |
| r | requests per second |
| C(r), R(r) | least dollars per hour of the plans that call endpoints, and of those that do not |
| M, u | a plan's machines in dollars per hour, its calls in dollars per request |

A plan costs M + 3600 u r wherever it holds, and one that holds at a rate holds at lower ones. So
C and R never fall; R jumps where a further machine is needed, C is infinite where endpoints let
no more through. Between two rates calls are the cheaper ones throughout if C is less at the upper
rate than R at the lower one, and machines the other way about; where both ends have the same two
plans these are lines, which cross at

    r* = (M_R - M_C) / (3600 (u_C - u_R)),

machines over calls of an hour. What is neither is halved: no rate is missed between two looks,
however many machines come in between.

As machines come in steps, calls may be the cheaper ones again above r*, where a further machine
stands nearly empty: what is named is the least rate at which machines are cheapest, and the one
from which on they stay so.

The interval of r* is that under calls as dear and seconds as short as their intervals allow, and
the other way about: seconds s times as long need the machines of s times the rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, sqrt
from typing import NamedTuple

from circinus.pipelines import checks
from circinus.pipelines.model.plan import Plan

_SECONDS_PER_HOUR = 3600.0
_FINE, _COARSE = 1e-6, 1e-2
"""Relative width below which two rates are one: where a machine comes in; after many looks."""
_MANY = 300
_ROUNDED = 1 + 1e-12

PlansAt = Callable[[float], Sequence[Plan]]
"""Returns all plans that meet a query's objectives at a rate, of every configuration measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """Between which request rates calls are cheapest, and machines."""

    low: float  # least rate that was looked at, requests per second
    high: float  # largest
    # least rate at which no plan that calls is cheaper than one on machines; None: there is none
    rate: float | None
    # the same under calls as dear, or as cheap, as they may be; None: not between `low` and `high`
    rate_low: float | None
    rate_high: float | None
    # rate from which on machines are cheapest up to `high`; None: at `high` they are not
    for_good: float | None
    calling: Plan | None  # cheapest plan that calls at `rate`, else at `low`; None: there is none
    renting: Plan | None  # cheapest that calls nothing at `rate`, else at `high`; likewise


class _Offer(NamedTuple):
    """The cheapest plan of a kind at a rate, with its costs; infinite where there is none."""

    plan: Plan | None
    machines_usd_per_hour: float
    usd_per_request: float

    def usd_per_hour(self, rate: float) -> float:
        return self.machines_usd_per_hour + _SECONDS_PER_HOUR * self.usd_per_request * rate

    @property
    def id(self) -> str:
        return "" if self.plan is None else self.plan.id


class _Look(NamedTuple):
    """What there is at a rate."""

    rate: float
    calling: _Offer
    renting: _Offer

    @property
    def calling_usd(self) -> float:
        return self.calling.usd_per_hour(self.rate)

    @property
    def renting_usd(self) -> float:
        return self.renting.usd_per_hour(self.rate)

    @property
    def rents(self) -> bool:
        """Whether machines are as cheap as calls, or cheaper."""
        return isfinite(self.renting_usd) and self.renting_usd <= self.calling_usd * _ROUNDED

    @property
    def calls(self) -> bool:
        """Whether calls are cheaper than machines."""
        return isfinite(self.calling_usd) and not self.rents

    @property
    def crossing(self) -> float:
        """The rate at which its two plans cost the same; NaN: at none."""
        less = self.calling.usd_per_request - self.renting.usd_per_request
        more = self.renting.machines_usd_per_hour - self.calling.machines_usd_per_hour
        return more / (_SECONDS_PER_HOUR * less) if less > 0 and isfinite(more) else float("nan")


def break_even(plans_at: PlansAt, low: float, high: float) -> BreakEven:
    """Return where the cheapest plan changes from calls to machines between two rates.

    InvalidInput unless `0 < low < high`.
    """
    checks.positive("rate", low)
    checks.positive("rate", high)
    checks.require(low < high, "rate", "must be LOW:HIGH with LOW < HIGH", f"{low:g}:{high:g}")
    known: dict[float, Sequence[Plan]] = {}

    def plans(rate: float) -> Sequence[Plan]:
        if rate not in known:
            known[rate] = plans_at(rate)
        return known[rate]

    likely = _Rates(plans)
    first = likely.first(low, high)
    last = likely.last(low, high)
    at = likely.look(low if first is None else first)
    rented = at.renting if first is not None else likely.look(high).renting
    least, most = _spread(rented.plan)
    early = None if least is None else _Rates(plans, _dearest, least).first(low, high)
    late = None if most is None else _Rates(plans, _cheapest, most).first(low, high)
    return BreakEven(
        low=low,
        high=high,
        rate=first,
        rate_low=early,
        rate_high=late,
        for_good=last,
        calling=at.calling.plan,
        renting=rented.plan,
    )


def _spread(plan: Plan | None) -> tuple[float | None, float | None]:
    """Return how many times as long requests may take at least and at most; None: any number."""
    if plan is None:
        return 1.0, 1.0
    latency = plan.latency_s
    if not latency.value > 0:
        return None, None
    least, most = latency.low / latency.value, latency.high / latency.value
    return (least if least > 0 else None), (most if isfinite(most) else None)


def _likely(plan: Plan) -> float:
    return 0.0 if plan.calls is None else plan.calls.usd_per_request.value


def _dearest(plan: Plan) -> float:
    return 0.0 if plan.calls is None else plan.calls.usd_per_request.high


def _cheapest(plan: Plan) -> float:
    return 0.0 if plan.calls is None else max(plan.calls.usd_per_request.low, 0.0)


@dataclass(slots=True, eq=False)
class _Rates:
    """Looks at rates, each once, and finds those at which the cheapest kind of plan changes."""

    plans: PlansAt
    usd_of: Callable[[Plan], float] = _likely  # dollars of a plan's calls per request
    slower: float = 1.0  # how many times as long requests take on machines, `> 0`
    _looks: dict[float, _Look] = field(default_factory=dict)

    def look(self, rate: float) -> _Look:
        """Return what there is at a rate."""
        if rate not in self._looks:
            calling = (plan for plan in self.plans(rate) if plan.calls is not None)
            renting = (p for p in self.plans(rate * self.slower) if p.calls is None)
            self._looks[rate] = _Look(rate, self._least(calling, rate), self._least(renting, rate))
        return self._looks[rate]

    def _least(self, plans: Iterable[Plan], rate: float) -> _Offer:
        offers = [_Offer(p, p.machines_usd_per_hour, self.usd_of(p)) for p in plans]
        none = _Offer(None, inf, 0.0)
        return min(offers, key=lambda o: (o.usd_per_hour(rate), o.id), default=none)

    def first(self, low: float, high: float) -> float | None:
        """Return the least rate at which machines are cheapest; None: there is none."""
        a, b = self.look(low), self.look(high)
        if a.rents:
            return low
        if a.renting_usd > b.calling_usd or not isfinite(a.renting_usd):
            return None
        if self._alike(a, b):
            return a.crossing if low <= a.crossing <= high else None
        if self._is_one(low, high):
            return high if b.rents else None
        middle = self._middle(a, b)
        rate = self.first(low, middle)
        return self.first(middle, high) if rate is None else rate

    def last(self, low: float, high: float) -> float | None:
        """Return the rate from which machines are cheapest; None: not at the upper one.

        At the lower one at least.
        """
        return None if not self.look(high).rents else self._last(low, high) or low

    def _last(self, low: float, high: float) -> float | None:
        """Return the largest rate up to which calls are cheapest; None: they never are."""
        a, b = self.look(low), self.look(high)
        if b.calls:
            return high
        if a.calling_usd * _ROUNDED >= b.renting_usd:
            return None
        if self._alike(a, b):
            return a.crossing if a.calls else None
        if self._is_one(low, high):
            return high if a.calls else None
        middle = self._middle(a, b)
        rate = self._last(middle, high)
        return self._last(low, middle) if rate is None else rate

    def _alike(self, a: _Look, b: _Look) -> bool:
        """Return whether two rates have the same plans: between them, all have."""
        return (a.calling.id, a.renting.id) == (b.calling.id, b.renting.id)

    def _is_one(self, low: float, high: float) -> bool:
        return high <= low * (1 + (_FINE if len(self._looks) < _MANY else _COARSE))

    def _middle(self, a: _Look, b: _Look) -> float:
        """Return a rate between two: where the plans of one of them cross, else half-way."""
        apart = 1 + _FINE
        for at in (a, b):
            if a.rate * apart < at.crossing < b.rate / apart and at.crossing not in self._looks:
                return at.crossing
        return sqrt(a.rate * b.rate)
