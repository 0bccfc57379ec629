"""Figures as text, always with their unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from circinus.api.schemas.deployments import InstanceView, LatelyView
from circinus.api.schemas.planning import MethodView, PlanningRequest, PlanningView
from circinus.api.schemas.plans import (
    EstimateView,
    OutlookView,
    PlanView,
    ServedBillView,
    UsageView,
)
from circinus.api.schemas.progress import ProgressView, QueryView
from circinus.api.schemas.query import LimitsRequest, QueryRequest
from circinus.api.schemas.schedule import AssignmentView, MachineShare, ScheduleView
from circinus.api.schemas.service import CallPriceView, EndpointView
from circinus.pipelines import units
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.slo import Estimate
from circinus.planner.search.bill import Bill, CallsCost, Cost, Forecast

UNKNOWN = "-"
_MOST_NAMED = 10  # inputs that are named one by one
_LEAST_USD = 1e-4


def seconds(value: float | None) -> str:
    """Return seconds with three figures, as ms below one second."""
    return UNKNOWN if value is None else units.seconds(value)


def place(ahead: int) -> str:
    """Return a place in the queue, with so many before it."""
    return f"after {ahead} other{'' if ahead == 1 else 's'}"


def moment(value: datetime) -> str:
    """Return a date and time in UTC."""
    return value.strftime("%Y-%m-%d %H:%M:%S UTC")


def dollars(value: float | None) -> str:
    """Return dollars per hour."""
    return UNKNOWN if value is None else units.dollars_per_hour(value)


def per_1000(value: float | None) -> str:
    """Return dollars for 1,000 requests."""
    return UNKNOWN if value is None else f"{amount(value)} per 1,000 requests"


def cost(plan: PlanView) -> str:
    """Return what a plan costs by the hour, and for 1,000 requests where it calls endpoints."""
    by_hour = dollars(plan.cost_usd_per_hour)
    if plan.calls is None:
        return by_hour
    return f"{by_hour}, {per_1000(plan.cost_usd_per_1000_requests)}"


def figures(plan: PlanView) -> str:
    """Return accuracy and latency of a plan with their intervals, and what it costs."""
    known = f"accuracy {accuracy(plan.accuracy)}, latency {latency(plan.latency_s)}"
    return f"{known}, {cost(plan)}"


def repriced(plan: PlanView) -> str:
    """Return what a plan costs at the prices of now, in words; empty: these did not change."""
    if plan.cost_now_usd_per_hour is None:
        return ""
    then, now = dollars(plan.cost_usd_per_hour), dollars(plan.cost_now_usd_per_hour)
    return f"{plan.id} was planned at other prices of tiers: {then} then, {now} now."


def usage(used: UsageView) -> str:
    """Return what a request uses of an endpoint, on the mean."""
    tokens = f"{used.input_tokens:.4g} tokens read, {used.output_tokens:.4g} written"
    return f"{used.calls:.3g} calls, {tokens}, {amount(used.usd)}"


def amount(value: float) -> str:
    """Return dollars, with four decimals below one."""
    if 0 < value < _LEAST_USD:
        return f"less than ${_LEAST_USD:g}"
    return f"${value:.2f}" if value >= 1 else f"${value:.4f}"


def call_price(price: CallPriceView) -> str:
    """Return a price: `$0.15 in, $0.075 cached, $0.6 out per million tokens, $0.01/call`."""
    tokens = {
        "in": price.input_usd_per_million,
        "cached": price.cached_usd_per_million,
        "out": price.output_usd_per_million,
    }
    by_token = ", ".join(f"${usd:g} {what}" for what, usd in tokens.items() if usd)
    parts = [f"{by_token} per million tokens"] if by_token else []
    parts += [f"${price.call_usd:g}/call"] if price.call_usd else []
    parts += [f"${price.usd_per_s:g}/s"] if price.usd_per_s else []
    return ", ".join(parts) or "free"


def call_limits(endpoint: EndpointView) -> str:
    """Return how much of an endpoint may be used, and what one call may read and write."""
    limits = endpoint.limits
    bounds = {
        "requests/min": limits.requests_per_minute,
        "tokens/min": limits.tokens_per_minute,
        "at once": limits.concurrent,
        "tokens read": endpoint.most_input_tokens,
        "tokens written": endpoint.most_output_tokens,
    }
    return ", ".join(f"{most:,} {what}" for what, most in bounds.items() if most) or "none"


def left_s(progress: ProgressView) -> float | None:
    """Return how many seconds are left of what ends first; None: nothing is limited."""
    limits = [s for s in (progress.profiling_left_s, progress.time_left_s) if s is not None]
    return min(limits, default=None)


def why(query: QueryView) -> str:
    """Return why a query is where it is: why it waits, fell short or failed; empty: it goes on."""
    if query.shortfall is not None:
        return query.shortfall.sentence
    if query.search is not None and query.search.ended_at is None:
        return f"searched on since {moment(query.search.since)}: {query.search.why}"
    return query.message or ""


def fraction(value: float | None) -> str:
    """Return a score in [0, 1]."""
    return UNKNOWN if value is None else f"{value:.3f}"


def accuracy(estimate: Estimate | EstimateView | None) -> str:
    """Return a score with its interval."""
    if estimate is None:
        return UNKNOWN
    figures = f"{fraction(estimate.value)} ({fraction(estimate.low)}-{fraction(estimate.high)})"
    return f"{figures}{estimate.over}"


def latency(estimate: Estimate | EstimateView | None) -> str:
    """Return a latency with its interval, all three in the unit of the middle one."""
    if estimate is None or estimate.value is None:
        return UNKNOWN
    unit, per_second = ("ms", 1000.0) if estimate.value < 1 else ("s", 1.0)
    middle, low, high = (
        UNKNOWN if x is None else units.figures(x * per_second)
        for x in (estimate.value, estimate.low, estimate.high)
    )
    return f"{middle} ({low}-{high}) {unit}"


def where(plan: PlanView) -> str:
    """Return tiers and their slices in the order of the operators: `device 0.25: sampler`."""
    within, parts, items = {**plan.placement, **plan.slices}, [], iter(plan.demand)
    local = (o for o, tier in plan.placement.items() if tier not in plan.remote)
    copies = {within[operator]: plan.replicas[operator] for operator in local}
    shares = {name: max(next(items).share for _ in range(n)) for name, n in copies.items()}
    for name, group in groupby(plan.placement, key=within.__getitem__):
        first, *others = group
        times = f" x{copies[name]}" if copies.get(name, 1) > 1 else ""
        share = f" {shares[name]:g}{times}" if name in shares else ""
        last = f"..{others[-1]}" if others else ""
        parts.append(f"{plan.placement[first]}{share}: {first}{last}")
    return ", ".join(parts)


def slices(served: AssignmentView) -> str:
    """Return what a query has of which machines, extra replicas with a `+`."""
    extras = (f"+ {machine(each)}" for each in served.extras)
    return ", ".join([*map(machine, served.machines), *extras])


def machine(at: MachineShare) -> str:
    """Return a share of a machine."""
    kind = "" if at.machine_type is None else f" ({at.machine_type})"
    return f"{at.tier} / {at.machine}{kind}: {at.share:g}"


def last_minute(spans: Sequence[LatelyView]) -> str:
    """Return what the requests of the shortest span got, the last minute."""
    if not spans or not spans[0].requests:
        return "no request"
    part = fraction(spans[0].in_time / spans[0].requests)
    return f"{spans[0].requests} requests, {part} in time"


def span(figures: LatelyView) -> str:
    """Return what the requests of a span got, in a line."""
    refused = f", {figures.turned_away} turned away" if figures.turned_away else ""
    percentiles = {"p50": figures.p50_s, "p95": figures.p95_s, "p99": figures.p99_s}
    latencies = "".join(f", {n} {seconds(s)}" for n, s in percentiles.items() if s is not None)
    return (
        f"Last {figures.span_s / 60:g} min: {figures.in_time} of {figures.requests} in time"
        f"{refused}{latencies}; {figures.goodput_per_s:.3g}/s in time."
    )


def goodput(schedule: ScheduleView) -> str | None:
    """Return how good a schedule is, in a sentence; None: it is not known."""
    if schedule.goodput is None or schedule.bound is None or schedule.gap is None:
        return None
    return (
        f"Goodput {schedule.goodput:g}; no schedule reaches more than "
        f"{schedule.bound:.6g}, so at most {schedule.gap:.1%} is missing."
    )


def settings(configuration: Mapping[str, Mapping[str, KnobValue]]) -> str:
    """Return `operator.knob=value` for every knob."""
    return " ".join(
        f"{operator}.{knob}={value}"
        for operator, knobs in configuration.items()
        for knob, value in knobs.items()
    )


def states(plan: PlanView | OutlookView) -> str:
    """Return the state of each SLO, once when all are alike."""
    values = set(map(str, plan.states.values()))
    if len(values) == 1:
        return values.pop()
    return ", ".join(f"{slo} {state}" for slo, state in plan.states.items()) or UNKNOWN


def objectives(request: QueryRequest) -> str:
    """Return the SLOs in one line."""
    slo = request.slo
    parts = [f"accuracy >= {slo.accuracy:g}"]
    if slo.latency_s is not None:
        parts.append(f"{slo.latency_statistic.value} latency <= {seconds(slo.latency_s)}")
    if slo.throughput_per_s is not None:
        parts.append(f"throughput >= {slo.throughput_per_s:g} requests/s")
    if slo.cost_usd_per_hour is not None:
        parts.append(f"cost <= {dollars(slo.cost_usd_per_hour)}")
    if slo.cost_usd_per_1000_requests is not None:
        parts.append(f"cost <= {per_1000(slo.cost_usd_per_1000_requests)}")
    if request.request_rate_per_s is not None:
        parts.append(f"{request.request_rate_per_s:g} requests/s")
    return ", ".join(parts)


def bounds(request: QueryRequest) -> str:
    """Return the bounds of the SLOs as short as they can be distinguished."""
    slo = request.slo
    statistic = slo.latency_statistic.value
    parts = [f">= {slo.accuracy:g}"]
    if slo.latency_s is not None:
        figure = "" if statistic == "mean" else f"{statistic} "
        parts.append(f"{figure}{seconds(slo.latency_s)}")
    if slo.cost_usd_per_hour is not None:
        parts.append(f"${slo.cost_usd_per_hour:g}/h")
    if slo.cost_usd_per_1000_requests is not None:
        parts.append(f"${slo.cost_usd_per_1000_requests:g}/1000")
    rate = slo.throughput_per_s or request.request_rate_per_s
    return " ".join(parts if rate is None else [*parts, f"{rate:g}/s"])


def planned_by(planning: PlanningView) -> str:
    """Return the parts after the method's name: `default: multi_fidelity, random order`."""
    parts = [planning.strategy, planning.stopping, f"{planning.sampling} order"]
    text = ", ".join(part for part in parts if part)
    return text if planning.method is None else f"{planning.method}: {text}"


def method(method: MethodView) -> Sequence[str]:
    """Return how a service plans, schedules and dispatches, in three parts."""
    return (
        f"planned by {planned_by(method.planning)}",
        f"scheduled by {method.scheduling}",
        f"dispatched by {method.dispatch}",
    )


def defaults(request: QueryRequest) -> Sequence[str]:
    """Return every field that was left out and decides the result, with its value."""
    planning = request.planning or PlanningRequest()
    fields = [
        (request.slo, "slo.latency_statistic", request.slo.latency_statistic.value),
        (request.slo, "slo.cost_usd_per_hour", "any"),
        (request.slo, "slo.cost_usd_per_1000_requests", "any"),
        (request, "request_rate_per_s", "one request at a time"),
        (request, "device", "as the infrastructure says"),
        (request, "weight", f"{request.weight:g}"),
        (request, "duration_s", "until undeployed"),
        (request, "seed", str(request.seed)),
        (planning, "planning.method", "as CIRCINUS_METHOD says"),
        (request.limits, "limits.profiling_s", f"{request.limits.profiling_s:g}"),
        (request.limits, "limits.profiling_usd", "any"),
        (request.limits, "limits.response_s", f"{LimitsRequest().response_s:g}"),
        (request.limits, "limits.configurations", "any"),
    ]
    if request.data.examples is not None:
        fields.append((request.data, "data.seed", str(request.data.seed)))
    return [
        f"{path}: {value} (default)"
        for model, path, value in fields
        if path.rpartition(".")[2] not in model.model_fields_set
    ]


def forecast(forecast: Forecast) -> str:
    """Return the expected figures, as intervals, and their source."""
    low, high = forecast.low, forecast.high
    return (
        f"{low.runs}-{high.runs} operator runs, "
        f"{seconds(low.seconds)} - {seconds(high.seconds)}, "
        f"{amount(low.usd)} - {amount(high.usd)} "
        f"({forecast.confidence:.0%} of such queries; "
        f"{seconds(forecast.expected.seconds)} in the middle; from {forecast.source})"
    )


def forecast_lines(expected: Forecast) -> Iterator[str]:
    """Yield what is expected, and of it what each operator calls, a line each."""
    yield f"expected: {forecast(expected)}"
    low = {cost.operator: cost for cost in expected.low.calls}
    for high in expected.high.calls:
        least = low.get(high.operator, CallsCost(operator=high.operator))
        yield (
            f"  of it {high.operator}: {least.calls:,.0f}-{high.calls:,.0f} calls, "
            f"{least.input_tokens:,.0f}-{high.input_tokens:,.0f} tokens read and "
            f"{least.output_tokens:,.0f}-{high.output_tokens:,.0f} written, "
            f"{amount(least.usd)} - {amount(high.usd)}"
        )
    for wait in expected.waits:
        each = f"{seconds(wait.low_s)} - {seconds(wait.high_s)}"
        yield f"  beside it {each} of waiting for {wait.limit}"


def bill_lines(bill: Bill) -> Iterator[str]:
    """Yield what was expected, paid and saved, a line each."""
    if bill.forecast is not None:
        yield from forecast_lines(bill.forecast)
    yield f"paid: {_cost(bill.paid)}"
    yield from map(_calls_cost, bill.paid.calls)
    shared = f", {bill.shared_runs:,} runs of other queries" if bill.shared_runs else ""
    yield f"saved by the cache: {_cost(bill.cache)}{shared}"
    yield f"saved by stopping early: {_cost(bill.early_stopping)}, against {bill.against}"


def size_of(instance: InstanceView) -> str:
    """Return the share of a machine that an instance has, or how many calls it makes at once."""
    if instance.calls_at_once is not None:
        return f"{instance.calls_at_once} calls at once"
    return f"{instance.share:.3g}"


def billed(bill: ServedBillView) -> str:
    """Return the cost of serving a plan's requests, and the predicted cost."""
    parts = [f"bill of plan {bill.plan_id}: {bill.answered} answered, {bill.failed} failed"]
    used = bill.total
    parts.append(
        f"{used.calls:,.0f} calls, {used.input_tokens:,.0f} tokens read "
        f"({used.cached_tokens:,.0f} cached), {used.output_tokens:,.0f} written, "
        f"{amount(used.usd)}"
    )
    predicted = bill.predicted_usd_per_1000_requests
    beside = "" if predicted is None else f" ({amount(predicted)} predicted)"
    if bill.usd_per_1000_requests is not None:
        parts.append(f"{amount(bill.usd_per_1000_requests)} for 1,000 requests{beside}")
    if bill.unsure:
        parts.append(f"{bill.unsure} calls were lost, and are billed as the most that they may be")
    return "; ".join(parts)


def _calls_cost(cost: CallsCost) -> str:
    tokens = f"{cost.input_tokens:,.0f} tokens read and {cost.output_tokens:,.0f} written"
    lost = (
        f", at most {amount(cost.open_usd)} for calls that were cut off" if cost.open_usd else ""
    )
    return f"  of it {cost.operator}: {cost.calls:g} calls, {tokens}, {amount(cost.usd)}{lost}"


def _cost(cost: Cost) -> str:
    return f"{cost.runs} operator runs, {seconds(cost.seconds)}, {amount(cost.usd)}"


def failure_lines(progress: ProgressView) -> Iterator[str]:
    """Yield what is to be known, what failed and which inputs were left out, a line each."""
    yield from progress.remarks
    for failure in progress.failures:
        count = f"{failure.inputs} input{'s' if failure.inputs > 1 else ''}"
        where = f"on {count}, first {failure.input}"
        yield f"{failure.operator} failed {where}: {failure.cause}"
    yield from left_out_lines(progress.left_out)


def left_out_lines(inputs: Sequence[int]) -> Iterator[str]:
    """Name the inputs that no figure stands on, in one line; in none where there are none."""
    if inputs:
        more = f" and {len(inputs) - _MOST_NAMED} more" if len(inputs) > _MOST_NAMED else ""
        named = ", ".join(map(str, inputs[:_MOST_NAMED]))
        yield f"left out, because they failed in every configuration: inputs {named}{more}"
