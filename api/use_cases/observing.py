"""What a deployed plan gives, beside what it was planned to give.

It is judged by the same requests as a drift is: see `planner.answers.drift`.
"""

from __future__ import annotations

from dataclasses import dataclass

from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.slo import ANY_LATENCY_S, Estimate, Slo, SloState
from circinus.planner.answers.drift import ObservedRequests
from circinus.planner.models.ahead import MOST_EXAMPLES, accuracy_observed
from circinus.planner.models.estimates import latency_estimate

_LEAST = 2
"""Answers: of one alone, nothing is known of how they spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseKept:
    """An objective, what was promised of it, and what was observed."""

    bound: float | None  # None: any
    predicted: Estimate
    observed: Estimate | None  # None: nothing was
    state: SloState | None  # of the objective, by what was observed; None: not known


def accuracy_kept(plan: Plan, slo: Slo, seen: ObservedRequests | None) -> PromiseKept:
    """Compare accuracy, by requests whose output is known."""
    known = seen is not None and len(seen.scores) > 0
    observed = accuracy_observed(seen.scores) if seen is not None and known else None
    state = None if observed is None else observed.at_least(slo.accuracy)
    return PromiseKept(bound=slo.accuracy, predicted=plan.accuracy, observed=observed, state=state)


def latency_kept(plan: Plan, slo: Slo, seen: ObservedRequests | None) -> PromiseKept:
    """Compare the bounded statistic of the latency."""
    observed = None
    if seen is not None and len(seen.latency_s) >= _LEAST:
        observed = latency_estimate(
            seen.latency_s, statistic=slo.latency_statistic, population=MOST_EXAMPLES
        )
    bounded = slo.latency_s < ANY_LATENCY_S
    return PromiseKept(
        bound=slo.latency_s if bounded else None,
        predicted=plan.latency_s,
        observed=observed,
        state=observed.at_most(slo.latency_s) if observed is not None and bounded else None,
    )
