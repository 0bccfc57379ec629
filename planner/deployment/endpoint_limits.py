"""How many requests per second the limits of endpoints let through.

A tier without machines has no copies to add and no queue of ours: what bounds a plan there is how
much of an endpoint may be used. What one request uses is the mean over inputs.

| symbol | meaning |
| --- | --- |
| rate | requests per second |
| c, k | calls and tokens that one request takes of an endpoint |
| S | seconds that one request keeps calls to it under way |

Calls per minute are 60 rate c, tokens per minute 60 rate k, calls under way on the mean rate S
(Little's law). Of an operator that may call several endpoints under one configuration it is known
only what it used of all: each is taken to have given all of it, which is the safe side.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.query import PlanningContext
from circinus.planner.deployment.callers import Called

_SECONDS_PER_MINUTE = 60.0
_CALLS, _READ, _WRITTEN = (
    Usage._fields.index(name) for name in ("calls", "input_tokens", "output_tokens")
)


class LimitedUse(NamedTuple):
    """What requests use of one limit of an endpoint."""

    endpoint: str
    limit: str  # as `RateLimits` names it
    allowed: float  # by the limit, in its unit, `>= 1`
    each: float  # used at one request per second, in the same unit, `>= 0`

    @property
    def most_per_s(self) -> float:
        """Requests per second that use all of it; inf: they use nothing of it."""
        return self.allowed / self.each if self.each > 0 else inf


def limited_uses(
    context: PlanningContext, called: Called | None, work: Work
) -> tuple[LimitedUse, ...]:
    """Return the use of every limit of the endpoints that are called; None: none are."""
    return tuple(_uses(context, called, work)) if called and any(called) else ()


def tightest(context: PlanningContext, called: Called | None, work: Work) -> LimitedUse | None:
    """Return the limit that lets the fewest requests through; None: there is no limit."""
    uses = limited_uses(context, called, work)
    return min(uses, key=lambda use: use.most_per_s, default=None)


def limited(
    context: PlanningContext, called: Called | None, work: Work, utilisation: float
) -> float:
    """Return the part of the tightest limit that is used, over `utilisation`, in (0, 1].

    0 where requests come one after the other: nobody knows how soon.
    """
    rate, use = context.requests_per_s, tightest(context, called, work)
    return 0.0 if rate is None or use is None else rate / (utilisation * use.most_per_s)


def _uses(context: PlanningContext, called: Called, work: Work) -> Iterator[LimitedUse]:
    endpoints = {each.name: each for each in context.infrastructure.endpoints}
    seconds = work.operator_s.mean(axis=1).tolist()
    used = None if work.used is None else work.used.mean(axis=2)
    for name in dict.fromkeys(name for names in called for name in sorted(names)):
        mine = [o for o, names in enumerate(called) if name in names]
        calls = tokens = 0.0
        if used is not None:
            calls = float(used[mine, _CALLS].sum())
            tokens = float(used[mine, _READ].sum() + used[mine, _WRITTEN].sum())
        each = {
            "requests_per_minute": _SECONDS_PER_MINUTE * calls,
            "tokens_per_minute": _SECONDS_PER_MINUTE * tokens,
            "concurrent": sum(seconds[o] for o in mine),
        }
        for limit, amount in each.items():
            allowed = getattr(endpoints[name].limits, limit)
            if allowed is not None:
                yield LimitedUse(name, limit, float(allowed), amount)
