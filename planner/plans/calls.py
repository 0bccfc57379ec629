"""What the calls of a configuration cost and use, and how well that is known.

Both are means over the inputs measured: which inputs these are is chance, so there is an interval.
"""

from __future__ import annotations

from circinus.pipelines.model.endpoints import NOTHING_USED, Usage
from circinus.pipelines.model.plan import PlanCalls
from circinus.pipelines.model.slo import Estimate, LatencyStatistic
from circinus.planner.deployment.callers import Called
from circinus.planner.deployment.costs import usd_of_inputs
from circinus.planner.deployment.endpoint_limits import tightest
from circinus.planner.models.ahead import MOST_EXAMPLES
from circinus.planner.models.estimates import CONFIDENCE, latency_estimate
from circinus.planner.strategy.protocol import Measured, SearchSetting


def plan_calls(setting: SearchSetting, measured: Measured) -> PlanCalls | None:
    """Return what a measured configuration calls; None: nothing."""
    if setting.callers is None:
        return None
    called = setting.callers.called(measured.configuration)
    if not any(called):
        return None
    use = tightest(setting.context, called, measured.work)
    return PlanCalls(
        usd_per_request=usd_per_request(measured, setting.population),
        per_request=_per_request(setting, measured, called),
        **({} if use is None else {"most_per_s": use.most_per_s}),
    )


def usd_ahead(setting: SearchSetting, measured: Measured) -> Estimate | None:
    """Return the US dollars of one request's calls on future inputs; None: nothing is called."""
    if setting.callers is None or not any(setting.callers.called(measured.configuration)):
        return None
    return usd_per_request(measured, MOST_EXAMPLES)


def usd_per_request(
    measured: Measured, population: int, confidence: float = CONFIDENCE
) -> Estimate:
    """Return the mean US dollars of one request's calls over a population, with its t-interval."""
    return latency_estimate(  # the mean of figures that are not negative, as seconds are
        usd_of_inputs(measured.work),
        statistic=LatencyStatistic.MEAN,
        population=population,
        confidence=confidence,
    )


def _per_request(setting: SearchSetting, measured: Measured, called: Called) -> dict[str, Usage]:
    """Return the mean usage of each endpoint.

    Of an operator that may call several it is known what it used of all: it is shared out by how
    often it may call each.
    """
    found: dict[str, Usage] = {}
    work = measured.work
    if work.used is None:
        return {name: NOTHING_USED for names in called for name in sorted(names)}
    means = work.used.mean(axis=2).tolist()
    for operator, mean in zip(setting.context.graph.operators, means, strict=True):
        calls = operator.called(measured.configuration.of(operator.name))
        most = sum(call.most for call in calls)
        for call in calls:
            part = Usage(*(figure * call.most / most for figure in mean))
            found[call.endpoint] = found.get(call.endpoint, NOTHING_USED).plus(part)
    return found
