"""A plan as the service shows it."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from pydantic import Field

from circinus.api.schemas.base import Finite, Input, View
from circinus.deploy.runtime.report import ServedBill
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.plan import Deployment, Outlook, Plan, PlanCalls
from circinus.pipelines.model.slo import Estimate, HoldsFor, Slo, SloState
from circinus.planner.models.ahead import would_show


class UsageView(View):
    """What was used of endpoints."""

    calls: float = Field(default=0.0, description="Attempts, those that failed included.")
    input_tokens: float = Field(default=0.0, description="Tokens read, cached ones included.")
    cached_tokens: float = Field(default=0.0, description="Of these, those read before.")
    output_tokens: float = Field(default=0.0, description="Tokens written.")
    usd: float = Field(default=0.0, description="US dollars.")


class CalledView(UsageView):
    """What one operator used of one endpoint."""

    operator: str = Field(description="Which calls.")
    endpoint: str = Field(description="What it calls.")


class ServedBillView(View):
    """What the requests to one of a query's plans used of endpoints, to within a few seconds."""

    plan_id: str = Field(description="Which plan.")
    answered: int = Field(description="Requests that were answered.")
    failed: int = Field(description="Requests that got an error; those refused are left out.")
    total: UsageView = Field(description="What was used in all.")
    called: list[CalledView] = Field(description="The same by operator and endpoint.")
    unsure: int = 0
    """Calls that were lost on the way: they are billed as the most that they may have used."""
    usd_per_1000_requests: float | None = None
    """US dollars for 1,000 answers, what failed included; none before the first."""
    predicted_usd_per_1000_requests: float | None = None
    """The same as the plan predicted it; none if the plan is no longer one of the query's."""


def served_bill_view(bill: ServedBill, plan: Plan | None) -> ServedBillView:
    """Return the view of a bill, beside its plan's prediction; None: it is not known."""
    calls = None if plan is None else plan.calls
    return ServedBillView.of(
        bill,
        called=[
            CalledView.of(used, operator=operator, endpoint=endpoint)
            for operator, by_endpoint in sorted(bill.used.items())
            for endpoint, used in sorted(by_endpoint.items())
        ],
        predicted_usd_per_1000_requests=None
        if calls is None
        else 1000 * calls.usd_per_request.value,
    )


class EstimateView(View):
    """A figure and how well it is known."""

    value: Finite = Field(description="The figure; none: nothing was measured.")
    low: Finite = Field(description="Lower end of the confidence interval; none: unbounded.")
    high: Finite = Field(description="Upper end of the confidence interval; none: unbounded.")
    confidence: float = Field(description="Of the interval, in (0, 1).")
    inputs: int = Field(description="On how many inputs it rests.")
    left_out: int = 0
    """Of an accuracy, inputs beside these that count for nothing: they failed everywhere."""

    @property
    def over(self) -> str:
        """The same as of an `Estimate`."""
        return f" over {self.inputs} of {self.inputs + self.left_out}" if self.left_out else ""


class DemandView(View):
    """A share of one machine of a tier."""

    tier: str = Field(description="Name of the tier.")
    share: float = Field(description="Of one machine, in (0, 1].")


class OutlookView(View):
    """What is expected on future inputs of the source that the examples are from."""

    accuracy: EstimateView = Field(description="Mean score.")
    latency_s: EstimateView
    """Seconds per request, in the statistic that the SLO bounds."""
    usd_per_request: EstimateView | None = None
    """US dollars of all calls of a request; none: nothing is called."""
    states: dict[str, SloState] = Field(default_factory=dict)
    """The state of each SLO there."""
    examples_needed: int | None = None
    """Examples that would show accuracy and latency, were they as estimated; none: these do, no
    number would, or it is not known."""


class PlanCallsView(View):
    """What a plan's operators use of endpoints."""

    per_request: dict[str, UsageView]
    """Endpoint -> what one request uses of it, on the mean."""
    usd_per_request: EstimateView = Field(description="US dollars of all calls of a request.")
    most_per_s: Finite = None
    """Requests per second that the endpoints' limits let through; none: any number."""


class PlanView(View):
    """Which configuration runs where, on which share, and its expected performance."""

    id: str = Field(description="Equal for equal plans.")
    pipeline: str = Field(description="Name of the pipeline.")
    configuration: dict[str, dict[str, KnobValue]]
    """Operator -> knob -> value."""
    placement: dict[str, str] = Field(description="Operator -> tier, in topological order.")
    allocation: dict[str, float]
    """Operator -> share of one machine; a slice is that of all that can run there at once."""
    replicas: dict[str, int] = Field(description="Operator -> number of copies.")
    demand: list[DemandView] = Field(description="What the plan asks of machines.")
    accuracy: EstimateView = Field(description="Mean score.")
    latency_s: EstimateView
    """Seconds per request, in the statistic that the SLO bounds."""
    cost_usd_per_hour: float
    """Price of the demand, and of calls at the rate that the plan is made for."""
    calls_usd_per_hour: float = Field(default=0.0, description="Of it, that of calls.")
    cost_now_usd_per_hour: float | None = None
    """The same at the prices that tiers have now; none: they did not change, or a tier is gone."""
    cost_usd_per_1000_requests: float | None = None
    """Of machines and calls, for 1,000 requests at that rate; none: it was not worked out."""
    requests_per_s: float | None = None
    """Rate that it is made for; none: one request after the other."""
    calls: PlanCallsView | None = Field(default=None, description="What is called; none: nothing.")
    remote: list[str] = Field(default_factory=list)
    """Tiers of the plan that have no machines: what runs there calls endpoints."""
    slices: dict[str, str] = Field(default_factory=dict)
    """Operator -> the further slice of its tier that it is in; others are in the tier's own."""
    states: dict[str, SloState] = Field(default_factory=dict)
    """The state of each SLO: `accuracy`, `latency`, and those of `cost`, `cost_per_1000` and
    `throughput` that are bounded."""
    tier_service_s: dict[str, float] = Field(default_factory=dict)
    """Slice -> mean seconds for which one request occupies it; a tier's own has its name."""
    future: OutlookView | None = None
    """The same for future inputs; none: not worked out."""
    emulated: list[str] = Field(default_factory=list)
    """Tiers of the plan whose speed is put on by waiting."""
    superseded: bool = False
    """Whether other plans of its query replaced it."""
    memory_bytes: dict[str, int] = Field(default_factory=dict)
    """Operator -> most memory that a process which ran it had; those not measured are left out."""


class PlanList(View):
    """The Pareto set of a query."""

    items: list[PlanView] = Field(description="Cheapest first.")


def plan_view(plan: Plan, slo: Slo, infrastructure: Infrastructure) -> PlanView:
    """Return the view of a plan for a query with that SLO."""
    deployment, ahead = plan.deployment, plan.future
    there = plan.states(replace(slo, holds_for=HoldsFor.FUTURE))
    values = {
        "states": plan.states(slo),
        "future": None
        if ahead is None
        else OutlookView.of(ahead, states=there, examples_needed=would_show(ahead, slo)),
        "emulated": [n for n, t in infrastructure.present(deployment.tiers).items() if t.emulated],
        "cost_now_usd_per_hour": plan.repriced(infrastructure),
    }
    return unjudged_plan_view(plan).model_copy(update=values)


def unjudged_plan_view(plan: Plan) -> PlanView:
    """Return the view of a plan without an SLO: `to_plan` inverts it."""
    deployment = plan.deployment
    return PlanView.of(
        plan,
        configuration=plan.configuration.as_dict(),
        placement=deployment.placement,
        allocation=deployment.allocation,
        replicas=deployment.replicas,
        remote=sorted(deployment.remote),
        slices=deployment.slices,
        cost_usd_per_1000_requests=plan.cost_usd_per_1000_requests or None,
        states={},
    )


def to_plan(view: PlanView, graph: PipelineGraph) -> Plan:
    """Return the plan of a view; InvalidInput if it does not fit the pipeline's graph."""
    deployment = Deployment(
        placement=view.placement,
        allocation=view.allocation,
        replicas=view.replicas,
        remote=frozenset(view.remote),
        slices=view.slices,
    )
    return Plan(
        pipeline=view.pipeline,
        configuration=ConfigurationSpace(graph).parse(view.configuration),
        deployment=deployment,
        demand=deployment.demand(graph),
        accuracy=_estimate(view.accuracy),
        latency_s=_estimate(view.latency_s),
        cost_usd_per_hour=view.cost_usd_per_hour,
        tier_service_s=view.tier_service_s,
        future=None if view.future is None else _outlook(view.future),
        calls=None if view.calls is None else _calls(view.calls),
        calls_usd_per_hour=view.calls_usd_per_hour,
        cost_usd_per_1000_requests=view.cost_usd_per_1000_requests or 0.0,
        requests_per_s=view.requests_per_s,
        memory_bytes=view.memory_bytes,
    )


def _calls(view: PlanCallsView) -> PlanCalls:
    return PlanCalls(
        usd_per_request=_estimate(view.usd_per_request),
        per_request={name: Usage(**used.model_dump()) for name, used in view.per_request.items()},
        most_per_s=inf if view.most_per_s is None else view.most_per_s,
    )


def _outlook(view: OutlookView) -> Outlook:
    usd = view.usd_per_request
    return Outlook(
        accuracy=_estimate(view.accuracy),
        latency_s=_estimate(view.latency_s),
        usd_per_request=None if usd is None else _estimate(usd),
    )


def _estimate(view: EstimateView) -> Estimate:
    if view.value is None:
        raise InvalidInput.of("plan", "must have been measured", view.value)
    open_ends = {"low": -inf, "high": inf}
    return Estimate(**open_ends | view.model_dump(exclude_none=True))


class PlanFile(Input):
    """A plan whose workers listen at known addresses."""

    query_id: str = Field(description="Under which requests arrive.")
    pipeline: str = Field(description="Registered name, or module:attribute.")
    plan: PlanView
    machine_types: list[str | None] = Field(default_factory=list)
    """Of the machine of each item of its demand; none: as its whole tier is."""
    infrastructure: dict[str, Any]
    """Document of an infrastructure: what it emulates is waited for."""
    deadline_s: float | None = None
    """Within which its requests are in time; none: whenever."""
    addresses: list[str]
    """Of its instances, in their order."""
