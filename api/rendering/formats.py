"""Figures as text, always with their unit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby

from api.schemas import (
    EstimateView,
    LimitsRequest,
    MethodView,
    PlanningRequest,
    PlanningView,
    PlanView,
    QueryRequest,
)

UNKNOWN = "-"


def seconds(value: float | None) -> str:
    """Give seconds with three figures, as ms below one second."""
    if value is None:
        return UNKNOWN
    return f"{_figures(value * 1000)} ms" if abs(value) < 1 else f"{_figures(value)} s"


def moment(value: datetime) -> str:
    """Give a date and time in UTC."""
    return value.strftime("%Y-%m-%d %H:%M:%S UTC")


def dollars(value: float | None) -> str:
    """Give dollars per hour."""
    return UNKNOWN if value is None else f"${value:.4f}/h"


def amount(value: float) -> str:
    """Give dollars, small ones with three figures."""
    return f"${value:.2f}" if value >= 1 else f"${value:.3g}"


def fraction(value: float | None) -> str:
    """Give a score in [0, 1]."""
    return UNKNOWN if value is None else f"{value:.3f}"


def accuracy(estimate: EstimateView) -> str:
    """Give a score with its interval."""
    return f"{fraction(estimate.value)} ({fraction(estimate.low)}-{fraction(estimate.high)})"


def latency(estimate: EstimateView) -> str:
    """Give a latency with its interval, all three in the unit of the middle one."""
    value = estimate.value
    if value is None:
        return UNKNOWN
    unit, per_second = ("ms", 1000.0) if value < 1 else ("s", 1.0)
    middle, low, high = (
        UNKNOWN if x is None else _figures(x * per_second)
        for x in (value, estimate.low, estimate.high)
    )
    return f"{middle} ({low}-{high}) {unit}"


def _figures(value: float) -> str:
    decimals = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{decimals}f}"


def where(plan: PlanView) -> str:
    """Give tiers in the order of the operators: `device 0.25: sampler..locator`."""
    parts = []
    for tier, group in groupby(plan.placement, key=plan.placement.__getitem__):
        operators = list(group)
        ends = operators[:1] + operators[-1:] if len(operators) > 1 else operators
        copies = plan.replicas[operators[0]]
        times = f" x{copies}" if copies > 1 else ""
        parts.append(f"{tier} {plan.allocation[operators[0]]:g}{times}: {'..'.join(ends)}")
    return ", ".join(parts)


def configuration(plan: PlanView) -> str:
    """Give `operator.knob=value` for every knob."""
    return " ".join(
        f"{operator}.{knob}={value}"
        for operator, knobs in plan.configuration.items()
        for knob, value in knobs.items()
    )


def states(plan: PlanView) -> str:
    """Give what is known of each SLO, once when all are alike."""
    values = set(map(str, plan.states.values()))
    if len(values) == 1:
        return values.pop()
    return ", ".join(f"{slo} {state}" for slo, state in plan.states.items()) or UNKNOWN


def objectives(request: QueryRequest) -> str:
    """Give the SLOs in one line."""
    slo = request.slo
    rate = request.request_rate_per_s
    text = f"accuracy >= {slo.accuracy:g}"
    if slo.latency_s is not None:
        text += f", {slo.latency_statistic.value} latency <= {seconds(slo.latency_s)}"
    if slo.throughput_per_s is not None:
        text += f", throughput >= {slo.throughput_per_s:g} requests/s"
    if slo.cost_usd_per_hour is not None:
        text += f", cost <= {dollars(slo.cost_usd_per_hour)}"
    if rate is not None:
        text += f", {rate:g} requests/s"
    return text


def planned_by(planning: PlanningView) -> str:
    """Give the parts after the method's name, if any: `default: multi_fidelity, random order`."""
    parts = [planning.strategy, planning.stopping, f"{planning.sampling} order"]
    text = ", ".join(part for part in parts if part)
    return text if planning.method is None else f"{planning.method}: {text}"


def method(method: MethodView) -> Sequence[str]:
    """Give how a service plans, schedules and dispatches, in three parts."""
    return (
        f"planned by {planned_by(method.planning)}",
        f"scheduled by {method.scheduling}",
        f"dispatched by {method.dispatch}",
    )


def defaults(request: QueryRequest) -> Sequence[str]:
    """Give every field that was left out and decides what is found, with the value it takes."""
    limits: LimitsRequest = request.limits
    planning = request.planning or PlanningRequest()
    told = [
        (request.slo, "slo", "latency_statistic", request.slo.latency_statistic.value),
        (request.slo, "slo", "cost_usd_per_hour", "any"),
        (request, "", "request_rate_per_s", "one request at a time"),
        (request, "", "device", "as the infrastructure says"),
        (request, "", "weight", f"{request.weight:g}"),
        (request, "", "duration_s", "until undeployed"),
        (request, "", "seed", str(request.seed)),
        (planning, "planning", "method", "as CIRCINUS_METHOD says"),
        (limits, "limits", "profiling_s", f"{limits.profiling_s:g}"),
        (limits, "limits", "profiling_usd", "any"),
        (limits, "limits", "response_s", "any"),
        (limits, "limits", "configurations", "any"),
    ]
    if request.data.examples is not None:
        told.append((request.data, "data", "seed", str(request.data.seed)))
    return [
        f"{f'{path}.' if path else ''}{field}: {value} (default)"
        for model, path, field, value in told
        if field not in model.model_fields_set
    ]
