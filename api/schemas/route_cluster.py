"""What a route file says for a cluster: who sends its requests, which objects its units are."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from circinus.api.schemas.base import Input, having, left_out
from circinus.api.schemas.numbers import WHOLE, bounds
from circinus.pipelines import checks, ranges
from circinus.pipelines.ranges import Range

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_Name = Annotated[str, Field(pattern=rf"^{_LABEL}(\.{_LABEL})*$", max_length=253)]
_Host = Annotated[str, Field(pattern=rf"^(\*\.)?{_LABEL}(\.{_LABEL})*$", max_length=253)]
_Port = Annotated[int, bounds(Range(1, 65535)), WHOLE]
_Count = Annotated[int, bounds(Range(0, ranges.MACHINES.most)), WHOLE]
_Wait = Annotated[float, bounds(Range(0, 600))]


class GatewayInput(Input):
    """A gateway that sends the requests, by an HTTPRoute."""

    name: _Name
    namespace: _Name | None = None
    """Left out: that of the route."""


class IngressInput(Input):
    """An Ingress whose load balancer sends the requests, by weights of target groups."""

    class_name: _Name = "alb"


class PrometheusInput(Input):
    """Who tells KEDA how many requests come."""

    address: Annotated[str, Field(pattern=r"^https?://\S+$", max_length=1024)]
    query: Annotated[str, Field(min_length=1, max_length=4096)]
    """Requests per second of a unit; `$unit`, `$service`, `$deployment`, `$namespace` stand for
    its own."""


class NodeClassInput(Input):
    """How a provider makes nodes."""

    name: _Name
    group: _Name = "karpenter.k8s.aws"
    kind: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{0,62}$")] = "EC2NodeClass"


class RequirementInput(Input):
    """What a node has to be, as a Karpenter NodePool says it."""

    key: Annotated[str, Field(min_length=1, max_length=316)]
    operator: Annotated[str, Field(pattern="^(In|NotIn|Exists|DoesNotExist|Gt|Lt)$")] = "In"
    values: list[str] = Field(default_factory=list, max_length=100)


class NodePoolInput(Input):
    """The Karpenter NodePool on whose nodes a unit's pods run."""

    name: _Name | None = None
    """Left out: ROUTE-UNIT."""
    node_class: NodeClassInput | None = None
    """Left out: the pool is yours, and only watched."""
    instance_types: list[str] = Field(default_factory=list, max_length=100)
    """Left out: the unit's hardware."""
    requirements: list[RequirementInput] = Field(default_factory=list, max_length=99)


class UnitKubernetesInput(Input):
    """The objects of a deployment unit, which are there already."""

    service: _Name
    port: _Port
    deployment: _Name
    least: _Count = 1
    """Pods that are kept, also without traffic."""
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
    launch_s: _Wait = 3.0
    """Seconds that a pod of a node pool may wait until Karpenter begins with a node."""

    @model_validator(mode="after")
    def _one_front(self) -> Self:
        given = [name for name in ("gateway", "ingress") if getattr(self, name) is not None]
        checks.require(len(given) == 1, "", "must have gateway or ingress, one of both", given)
        return self
