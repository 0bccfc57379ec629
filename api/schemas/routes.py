"""A route over deployment units: bodies and answers."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from circinus.api.schemas.base import WHOLE, Finite, Input, View, bounds, having, left_out
from circinus.api.schemas.deployments import LatelyView
from circinus.pipelines import checks, ranges
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.ranges import Range
from circinus.scheduler.routing.breaking_point import BreakingReason
from circinus.scheduler.routing.regimes import Regime, RegimeSettings
from circinus.scheduler.routing.traffic import RouteMethod
from circinus.scheduler.routing.units import DeploymentUnit, EndpointRoute, ExecutionMode

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_ObjectName = Annotated[str, Field(pattern=rf"^{_LABEL}(\.{_LABEL})*$", max_length=253)]
_Host = Annotated[str, Field(pattern=rf"^(\*\.)?{_LABEL}(\.{_LABEL})*$", max_length=253)]
_Port = Annotated[int, bounds(Range(1, 65535)), WHOLE]
_Pods = Annotated[int, bounds(Range(0, ranges.MACHINES.most)), WHOLE]
_LaunchSeconds = Annotated[float, bounds(Range(0, 600))]


class GatewayInput(Input):
    """A gateway that sends the requests, by an HTTPRoute."""

    name: _ObjectName
    namespace: _ObjectName | None = None
    """Left out: that of the route."""


class IngressInput(Input):
    """An Ingress whose load balancer sends the requests, by weights of target groups."""

    class_name: _ObjectName = "alb"


class PrometheusInput(Input):
    """The source of the request rate for KEDA."""

    address: Annotated[str, Field(pattern=r"^https?://\S+$", max_length=1024)]
    query: Annotated[str, Field(min_length=1, max_length=4096)]
    """Requests per second of a unit; `$unit`, `$service`, `$deployment`, `$namespace` stand for
    its own."""


class NodeClassInput(Input):
    """How a provider makes nodes."""

    name: _ObjectName
    group: _ObjectName = "karpenter.k8s.aws"
    kind: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{0,62}$")] = "EC2NodeClass"


class RequirementInput(Input):
    """The requirements of a node, as in a Karpenter NodePool."""

    key: Annotated[str, Field(min_length=1, max_length=316)]
    operator: Annotated[str, Field(pattern="^(In|NotIn|Exists|DoesNotExist|Gt|Lt)$")] = "In"
    values: list[str] = Field(default_factory=list, max_length=100)


class NodePoolInput(Input):
    """The Karpenter NodePool on whose nodes a unit's pods run."""

    name: _ObjectName | None = None
    """Left out: ROUTE-UNIT."""
    node_class: NodeClassInput | None = None
    """Left out: the pool is yours, and only watched."""
    instance_types: list[str] = Field(default_factory=list, max_length=100)
    """Left out: the unit's hardware."""
    requirements: list[RequirementInput] = Field(default_factory=list, max_length=99)


class UnitKubernetesInput(Input):
    """The objects of a deployment unit, which are there already."""

    service: _ObjectName
    port: _Port
    deployment: _ObjectName
    least: _Pods = 1
    """Pods that run also without traffic."""
    metric: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Requests per second of a pod in the custom metrics API: it is scaled by that."""
    node_pool: NodePoolInput | None = None


class RouteKubernetesInput(Input):
    """Where a route is in a cluster."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"allOf": [having("gateway"), left_out("ingress")]},
                {"allOf": [having("ingress"), left_out("gateway")]},
            ]
        }
    )

    namespace: Annotated[str, Field(pattern=rf"^{_LABEL}$")] = "default"
    hostnames: list[_Host] = Field(default_factory=list, max_length=16)
    """Left out: all."""
    path: Annotated[str, Field(pattern=r"^/[!-~]*$", max_length=1024)] = "/"
    """Which requests, by the beginning of their path."""
    gateway: GatewayInput | None = None
    ingress: IngressInput | None = None
    prometheus: PrometheusInput | None = None
    launch_s: _LaunchSeconds = 3.0
    """Seconds that a pod of a node pool may wait until Karpenter begins with a node."""

    @model_validator(mode="after")
    def _one_front(self) -> Self:
        fronts = [name for name in ("gateway", "ingress") if getattr(self, name) is not None]
        checks.require(len(fronts) == 1, "", "must have gateway or ingress, one of both", fronts)
        return self


_Name = Annotated[str, Field(pattern=rf"^{checks.NAME}$")]
_Text = Annotated[str, Field(min_length=1, max_length=128)]
_Price = Annotated[float, bounds(Range(1e-6, ranges.PRICE_USD_PER_HOUR.most))]
_PerS = Annotated[float, bounds(ranges.RATE_PER_S)]
_Demand = Annotated[float, bounds(Range(0, ranges.RATE_PER_S.most))]
_Seconds = Annotated[float, bounds(ranges.LATENCY_S)]
_Wait = Annotated[float, bounds(Range(0, ranges.DURATION_S.most))]
_Share = Annotated[float, bounds(Range(0.01, 1))]
_Count = Annotated[int, bounds(ranges.MACHINES), WHOLE]


class DeploymentUnitInput(Input):
    """A model on hardware in a framework, of which there may be many."""

    name: _Name
    """Unique in the route."""
    model: _Text
    hardware: _Text
    """A machine type or accelerator, for people and node pools."""
    framework: _Text
    execution: Annotated[ExecutionMode, Field(strict=False)] = ExecutionMode.GRAPH
    """How the framework runs it: `eager` or `graph`."""
    price_usd_per_hour: _Price
    """Of one unit."""
    most_per_s: _PerS
    """Requests per second that one takes at its breaking point."""
    latency_s: _Seconds
    """Seconds of a request there."""
    available: _Count | None = None
    """How many can be had; left out: any number."""
    kubernetes: UnitKubernetesInput | None = None
    """Its objects, where it is in a cluster."""
    knobs: dict[str, dict[str, KnobValue]] = Field(default_factory=dict)
    """Of the route's pipeline, in the place of the route's own: `{operator: {knob: value}}`."""
    share: _Share = 1.0
    """Of a machine, that one of it has there."""
    speed: _Share = 1.0
    """Of this machine's, for trials: it is put on by waiting."""

    @property
    def unit(self) -> DeploymentUnit:
        """Return it as the scheduler has it."""
        names = {each.name for each in fields(DeploymentUnit)}
        return DeploymentUnit(**self.model_dump(include=names))


class RegimesInput(Input):
    """When a route changes from cost to capacity mode, and back."""

    settle_s: _Wait = 30.0
    """Seconds that all that is wanted could be had again before cost mode begins anew."""
    longest_settle_s: _Wait = 960.0
    """Most of them: each further failover in a load cycle doubles them."""
    cycle_s: Annotated[float, bounds(ranges.DURATION_S)] | None = None
    """Seconds of a load cycle, with which cost mode begins anew; left out: there are none."""

    @property
    def settings(self) -> RegimeSettings:
        """Return them as the scheduler has them; InvalidInput if the longest is shorter."""
        return RegimeSettings(**self.model_dump())


class VerifyInput(Input):
    """How outputs of a unit are verified before it takes traffic."""

    probes: Annotated[int, Field(ge=0, le=1000), WHOLE] = 8
    """Examples of the pipeline that each unit runs; 0: none. Of units that others run: the first
    lines of a file that is named to commands."""
    tolerance: Annotated[float, bounds(ranges.ACCURACY)] = 0.02
    """That its mean score may be below that of the first unit that runs."""


class RouteInput(Input):
    """An endpoint and the deployment units that can serve it."""

    name: _Name
    demand_per_s: _Demand
    """Arriving requests per second."""
    latency_s: _Seconds
    """That a request may take at most: slower units are left out."""
    units: Annotated[list[DeploymentUnitInput], Field(min_length=1, max_length=64)]
    kubernetes: RouteKubernetesInput | None = None
    """Where it is in a cluster."""
    pipeline: _Text | None = None
    """Registered name of what units run; left out: others run them."""
    knobs: dict[str, dict[str, KnobValue]] = Field(default_factory=dict)
    """Of the pipeline, for all units without their own: `{operator: {knob: value}}`."""
    method: Annotated[RouteMethod, Field(strict=False)] = RouteMethod.CARRIED
    """`carried`: traffic by what units can do; `published`: by their price."""
    regimes: RegimesInput = Field(default_factory=RegimesInput)
    verify: VerifyInput = Field(default_factory=VerifyInput)

    @property
    def route(self) -> EndpointRoute:
        """Return it as the scheduler has it; InvalidInput if two units have one name."""
        return EndpointRoute(
            name=self.name,
            demand_per_s=self.demand_per_s,
            latency_s=self.latency_s,
            units=tuple(each.unit for each in self.units),
        )


class UnitTrafficView(View):
    """What a deployment unit is to do in one regime."""

    name: str
    units: int = Field(description="How many of it are wanted.")
    weight: float = Field(description="Its part of the requests, its traffic weight, in [0, 1].")
    per_s: float = Field(description="Requests per second that it gets.")
    busy: float | None = Field(
        description="Part of its capacity; above 1: overload; none: there are no units."
    )


class RegimeTrafficView(View):
    """Numbers and traffic weights of all units in one regime."""

    regime: Regime
    units: list[UnitTrafficView]
    supply_per_s: float = Field(description="Requests per second that they can take.")
    served_per_s: float = Field(description="Requests per second that they do take.")
    usd_per_hour: float
    usd_per_1000: float | None = Field(description="None: no requests are served.")
    latency_s: float | None = Field(description="Mean of a request; none: nothing is served.")


class RouteWeightsView(View):
    """Both regimes of a route, which of them it is in, and why."""

    name: str
    demand_per_s: float
    regime: Regime
    why: str
    feasible: bool = Field(description="Whether what can be had meets the demand.")
    least_usd_per_hour: float | None = Field(
        description="That no numbers of units are below; none: what can be had is too little."
    )
    method: str
    regimes: list[RegimeTrafficView]
    left_out: list[str] = Field(description="Units that are too slow, in words.")


class ProofView(View):
    """The result of probes of a unit's outputs."""

    agrees: bool = Field(description="Whether it may take traffic.")
    reference: str = Field(description="The unit that it was held against.")
    score: float | None = Field(description="Mean over the probes; none: one failed.")
    reference_score: float
    tolerance: float
    words: str


class VerifiedUnitView(ProofView):
    """The result of probes of a unit over HTTP."""

    name: str
    url: str
    difference: float | None = Field(
        description="Of its score and that of the reference; none: one of them has none."
    )
    failed: str = Field(description="How a probe failed; empty: none did.")


class UnitStatusView(View):
    """A deployment unit of a route that is served."""

    name: str
    traffic_weight: float = Field(description="That the regime gives it, in [0, 1].")
    part: float = Field(description="Of the requests at this moment: of those that run.")
    wanted: int = Field(description="Workers that the regime asks for.")
    running: int
    available: int | None = Field(description="That can be had; none: any number.")
    why: str = Field(description="Why that is less, or it takes no traffic; empty: neither.")
    sent: int = Field(description="Requests that were sent to it.")
    proof: ProofView | None = Field(default=None, description="None: it was not verified.")


class RouteStatusView(View):
    """A route that is served."""

    regime: Regime
    why: str = Field(description="Why it is in it.")
    for_s: float = Field(description="Seconds that it has been in it.")
    failovers: int = Field(description="In this load cycle.")
    units: list[UnitStatusView]
    lately: list[LatelyView] = Field(description="What requests got.")


class RouteView(View):
    """A route that the service serves."""

    name: str
    route: RouteInput
    status: RouteStatusView | None = Field(default=None, description="None: not served yet.")
    problem: str | None = Field(default=None, description="Why it is not, or not as requested.")


class RouteList(View):
    """The routes of a service."""

    items: list[RouteView]


class RampStepView(View):
    """Requests at one rate."""

    per_s: float = Field(description="That were sent, in the mean.")
    requests: int
    failed: int
    served_per_s: float
    mean_s: Finite
    p50_s: Finite = Field(description="None: half of them failed.")
    p95_s: Finite = Field(description="None: one in twenty failed.")
    busy: float | None = Field(description="Part of the time; none: not known.")
    broken_by: list[BreakingReason] = Field(description="What was too much; none: it held.")
    sure: bool = Field(description="Whether that is more than chance.")


class LateStepView(View):
    """A rate that was not counted, since requests were sent late."""

    per_s: float
    late_s: float = Field(description="After they were due, of 95 %.")


class PoolLatencyView(View):
    """A line of what `circinus pool choose --latency` reads."""

    model: str
    instance: str
    batch: int
    mean_ms: float
    std_ms: float


class BreakingPointView(View):
    """The highest rate that a unit holds, and all that was tried."""

    unit: str
    per_s: float = Field(description="0: none that was tried holds.")
    low_per_s: float = Field(description="Of its 95 % interval.")
    high_per_s: float | None = Field(description="None: no rate that was tried is surely more.")
    reasons: list[BreakingReason] = Field(description="Why no more is held.")
    at: RampStepView | None = Field(description="The highest rate tried that held.")
    usd_per_1000: float | None = Field(description="There; none: no price is known.")
    latency_s: float | None = Field(description="That 95 % were allowed; none: any.")
    steps: list[RampStepView] = Field(description="In the order of their rates.")
    late: list[LateStepView]
    failure: str = Field(description="Of the last request that failed; empty: none did.")
    pool: list[PoolLatencyView] = Field(description="Empty: not known how long it is busy.")
