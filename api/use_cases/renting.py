"""Rent or call: the question at which request rate machines become cheaper than calls."""

from __future__ import annotations

import re

from circinus.api.schemas.explanation import NUMBER, BreakEvenView
from circinus.api.schemas.plans import plan_view
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.query import Query
from circinus.pipelines.ranges import RATE_PER_S
from circinus.planner.answers.break_even import BreakEven

_RATES = re.compile(rf"(?P<low>{NUMBER}):(?P<high>{NUMBER})")
_ALIKE = 1e-3
"""Relative difference of two rates below which people need not be told of both."""


def rates_of(query: Query, text: str) -> tuple[float, float]:
    """Return the rates between which is asked, `LOW:HIGH` in requests per second.

    InvalidInput if it is no such text, or one is out of range, or the query has no rate.
    """
    rule = "must be left out with slo.throughput_per_s"
    checks.require(query.slo.throughput_per_s is None, "rate", rule, text)
    match = _RATES.fullmatch(text)
    if match is None:
        raise InvalidInput.of("rate", "must be LOW:HIGH, such as 0.1:50", text)
    low, high = float(match["low"]), float(match["high"])
    for rate in (low, high):
        RATE_PER_S.check("rate", rate)
    checks.require(low < high, "rate", "must be LOW:HIGH with LOW < HIGH", text)
    return low, high


def break_even_view(
    found: BreakEven, query: Query, infrastructure: Infrastructure
) -> BreakEvenView:
    """Return what was found as the owner of the query sees it."""
    plans = {"calling": found.calling, "renting": found.renting}
    return BreakEvenView.of(
        found,
        words=_words(found),
        **{
            kind: None if plan is None else plan_view(plan, query.slo, infrastructure)
            for kind, plan in plans.items()
        },
    )


def _words(found: BreakEven) -> str:
    span = f"from {found.low:.4g} to {found.high:.4g} requests/s"
    if found.rate is None:
        if found.calling is None and found.renting is None:
            return f"{span} no measured plan does"
        if found.renting is None:
            return f"{span} only plans that call endpoints would do"
        return f"{span} plans that call endpoints are cheapest"
    if found.calling is None:
        return f"{span} only plans on machines would do"
    least = "?" if found.rate_low is None else f"{found.rate_low:.4g}"
    most = f"beyond {found.high:.4g}" if found.rate_high is None else f"{found.rate_high:.4g}"
    told = f"machines become cheaper than calls at {found.rate:.4g} requests/s ({least} to {most})"
    if found.rate == found.low:
        told = f"at {found.low:.4g} requests/s machines are cheaper than calls already"
    if found.for_good is None:
        return f"{told}; at {found.high:.4g} calls are cheaper again, as machines come whole"
    if found.for_good > found.rate * (1 + _ALIKE):
        return f"{told}, for good from {found.for_good:.4g} on, as machines come whole"
    return told
