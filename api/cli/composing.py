"""`circinus render`: a plan as a file that runs it without a service."""

from __future__ import annotations

from typing import Annotated, Literal

from typer import Option, echo

from circinus.api.bootstrap.registry import pipeline_here, reference_here
from circinus.api.cli.kubernetes.deploying import PlanSource, plan_of
from circinus.api.cli.options import InfrastructureName
from circinus.api.client import Client
from circinus.api.query_file import read_infrastructure
from circinus.api.schemas.plans import PlanFile, to_plan
from circinus.api.schemas.query import SloRequest
from circinus.api.text.screen import Screen
from circinus.deploy.compose.rendering import ComposeSettings, addresses, as_yaml, compact
from circinus.deploy.compose.rendering import render as file_of
from circinus.deploy.kubernetes.names import WORKER_IMAGE
from circinus.deploy.kubernetes.resources import MachineShape
from circinus.deploy.runtime.instances import DesiredDeployment, instances_of
from circinus.pipelines.io.infrastructure_file import infrastructure_to_dict
from circinus.pipelines.model.slo import LatencyStatistic


def render(
    screen: Screen,
    client: Client,
    plan: PlanSource,
    target: Annotated[Literal["compose"], Option(help="What the file is for.")] = "compose",
    image: Annotated[str, "Of all services, with the pipeline in it."] = WORKER_IMAGE,
    machine_cpu: Annotated[str, "CPU that stands for one machine."] = "1",
    machine_memory: Annotated[str, "Memory of one machine."] = "2Gi",
    infrastructure: InfrastructureName = "local",
) -> None:
    """Print a Compose file that runs a plan and answers its requests, without a service."""
    source, tiers = plan_of(client, plan), read_infrastructure(infrastructure)
    graph = pipeline_here(source.view.pipeline).graph
    types = tuple(each.machine_type for each in source.machines)
    desired = DesiredDeployment(
        pipeline_reference=reference_here(source.view.pipeline),
        plan=to_plan(source.view, graph),
        machine_types=types if any(types) else (),
        deadline_s=_deadline_s(source.slo),
    )
    instances = list(instances_of(source.query_id, desired, graph, tiers).values())
    file = PlanFile(
        query_id=source.query_id,
        pipeline=desired.pipeline_reference,
        plan=source.view,
        machine_types=list(desired.machine_types),
        infrastructure=infrastructure_to_dict(tiers),
        deadline_s=desired.deadline_s,
        addresses=addresses(len(instances)),
    )
    shape = MachineShape(cpu=machine_cpu, memory=machine_memory)
    settings = ComposeSettings(image=image, machine=shape)
    document = file_of(instances, compact(file.model_dump(mode="json")), settings)
    if screen.as_json:
        screen.json(document)
    else:
        echo(as_yaml(document), nl=False)


def _deadline_s(slo: SloRequest | None) -> float | None:
    """Return the deadline of a plan's requests; None: there is none, or it is not known.

    A mean bounds no single request, and the view of a plan does not have the latency of the
    slowest one.
    """
    if slo is None or slo.throughput_per_s is not None:
        return None
    return None if slo.latency_statistic is LatencyStatistic.MEAN else slo.latency_s
