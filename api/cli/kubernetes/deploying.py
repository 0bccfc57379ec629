"""`circinus deploy`: plans as objects of a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from rich.text import Text
from typer import Argument, Option, echo

from circinus.api.bootstrap.registry import pipeline_here
from circinus.api.cli.command import CommandFailed, ExitCode, leave
from circinus.api.cli.options import InfrastructureName, Kubeconfig
from circinus.api.client import Client
from circinus.api.query_file import query_of, read_document, read_infrastructure
from circinus.api.schemas.plans import PlanView, to_plan
from circinus.api.schemas.query import SloRequest
from circinus.api.schemas.schedule import MachineShare
from circinus.api.schemas.violations import checked
from circinus.api.text.screen import Screen
from circinus.deploy.kubernetes.names import WORKER_IMAGE
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.problem import Slice

if TYPE_CHECKING:  # the Kubernetes client takes a second: only who needs it waits for it
    from circinus.deploy.kubernetes.api import Cluster
    from circinus.deploy.kubernetes.kubectl import Kubectl
    from circinus.deploy.kubernetes.manifests import Rendered

_SOURCE = "File of `circinus export`, or id of a query of the service."
PlanSource = Annotated[str, Argument(metavar="PLAN", help=_SOURCE)]
QueryName = Annotated[str, Argument(metavar="ID", help="Id of a deployed query.")]
Namespace = Annotated[str, "Of the objects."]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Options of the commands that look at a cluster."""

    namespace: Namespace = "default"
    kubeconfig: Kubeconfig = None

    @property
    def kubectl(self) -> Kubectl:
        """Actions on the objects of plans."""
        from circinus.deploy.kubernetes.kubectl import Kubectl

        return Kubectl(namespace=self.namespace, kubeconfig=self.kubeconfig)

    def server(self) -> Cluster:
        """Return the cluster's API server; InvalidInput if there is no way to it."""
        from circinus.deploy.kubernetes.api import Cluster, connect

        return Cluster(connect(self.kubeconfig))


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """Options of the commands that render a plan: its workers, and where it is described."""

    image: Annotated[str, "Of the workers, with a tag or digest."] = WORKER_IMAGE
    pin: Annotated[
        Literal["machine", "tier"], "Bind workers to the scheduled machine, or to its tier only."
    ] = "machine"
    machine_cpu: Annotated[str, "CPU that stands for one machine."] = "1"
    machine_memory: Annotated[str, "Memory of one machine."] = "2Gi"
    standby: Annotated[int, "Warm replicas per tier beyond the schedule."] = 0
    pod_template: Annotated[
        Path | None, "YAML file of a PodTemplateSpec that is merged into every pod of workers."
    ] = None
    infrastructure: InfrastructureName = "local"

    def rendered(self, client: Client, source: str, namespace: str) -> Rendered:
        """Return the objects of a plan, in a file or of a query of the service.

        Without machines, the schedule is not known. InvalidInput if the plan does not fit its
        pipeline, the infrastructure or the machines.
        """
        from circinus.deploy.kubernetes.manifests import ScheduledPlan
        from circinus.deploy.kubernetes.manifests import render as objects_of
        from circinus.deploy.kubernetes.pod_template import read_pod_template
        from circinus.deploy.kubernetes.pods import Pinning, RenderSettings
        from circinus.deploy.kubernetes.resources import MachineShape

        tiers = read_infrastructure(self.infrastructure)
        plan = plan_of(client, source)
        shape = MachineShape(cpu=self.machine_cpu, memory=self.machine_memory)
        settings = RenderSettings(
            namespace=namespace,
            image=self.image,
            pinning=Pinning(self.pin),
            machine=shape,
            standby=self.standby,
            template=read_pod_template(str(self.pod_template or "")),
        )
        graph = pipeline_here(plan.view.pipeline).graph
        scheduled = ScheduledPlan(
            query_id=plan.query_id,
            pipeline_reference=plan.view.pipeline,
            plan=to_plan(plan.view, graph),
            graph=graph,
            infrastructure=tiers,
            slices=tuple(Slice(each.tier, each.machine, each.share) for each in plan.machines),
            machine_types=tuple(each.machine_type for each in plan.machines),
        )
        return objects_of(scheduled, settings)


def render(
    screen: Screen,
    client: Client,
    plan: PlanSource,
    form: Annotated[
        Literal["yaml", "helm"], Option("--format", help="Objects, or values for Helm.")
    ] = "yaml",
    namespace: Namespace = "default",
    *,
    options: RenderOptions,
) -> None:
    """Print the objects of a plan; needs no cluster."""
    from circinus.deploy.kubernetes.manifests import helm_values

    manifests = options.rendered(client, plan, namespace)
    if screen.as_json:
        screen.json({"objects": manifests.objects})
    else:
        echo(helm_values([manifests]) if form == "helm" else manifests.as_yaml(), nl=False)


def diff(
    screen: Screen,
    client: Client,
    plan: PlanSource,
    cluster: ClusterOptions,
    options: RenderOptions,
) -> None:
    """Show what `apply` would change; the exit code is 5 if anything."""
    rendered = options.rendered(client, plan, cluster.namespace)
    with _refusals():
        changes, obsolete = cluster.kubectl.diff(rendered)
    words = "\n".join(filter(None, [changes.rstrip(), *(f"- {name}" for name in obsolete)]))
    screen.show(Text(words or "no difference"), document={"changes": changes, "prune": obsolete})
    leave(ExitCode.DIFFERS if words else ExitCode.OK)


def apply(
    screen: Screen,
    client: Client,
    plan: PlanSource,
    cluster: ClusterOptions,
    dry_run: Annotated[bool, "Let the server check everything, change nothing."] = False,
    force: Annotated[bool, "Take fields over that other field managers own."] = False,
    timeout: Annotated[float, "Seconds to become ready in."] = 300.0,
    *,
    options: RenderOptions,
) -> None:
    """Deploy a plan, wait until it is ready, then remove the objects of the plan before."""
    rendered = options.rendered(client, plan, cluster.namespace)
    pruned: Sequence[str] = ()
    with _refusals():
        if dry_run:
            applied = cluster.kubectl.preview(rendered)
        else:
            applied, pruned = cluster.kubectl.apply(rendered, timeout_s=timeout, force=force)
    lines = [f"+ {name}" for name in applied] + [f"- {name}" for name in pruned]
    document = {"state": "preview" if dry_run else "ready", "applied": applied, "pruned": pruned}
    screen.show("\n".join(lines), document=document)


def status(screen: Screen, query_id: QueryName, cluster: ClusterOptions) -> None:
    """Show how many workers of a query are ready; the exit code is 8 if not all."""
    with _refusals():
        workers = cluster.kubectl.workers(query_id)
    lines = [f"{name}: {ready} of {wanted} ready" for name, (ready, wanted) in workers.items()]
    document = {"workers": {name: {"ready": r, "wanted": w} for name, (r, w) in workers.items()}}
    screen.show("\n".join(lines) or f"nothing of query {query_id}", document=document)
    late = any(ready < wanted for ready, wanted in workers.values())
    leave(ExitCode.NOT_READY if late or not workers else ExitCode.OK)


def delete(screen: Screen, query_id: QueryName, cluster: ClusterOptions) -> None:
    """Delete everything of a query."""
    with _refusals():
        names = cluster.kubectl.delete(query_id)
    words = "\n".join(f"- {name}" for name in names) or f"nothing of query {query_id}"
    screen.show(words, document={"deleted": names})


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise CommandFailed with an exit code for what kubectl refuses."""
    from circinus.deploy.kubernetes.kubectl import KubectlFailed, NotReady

    try:
        yield
    except KubectlFailed as error:
        raise CommandFailed(ExitCode.REFUSED, str(error)) from error
    except NotReady as error:
        raise CommandFailed(ExitCode.NOT_READY, str(error)) from error


class NamedPlan(NamedTuple):
    """A plan from a file or the service."""

    query_id: str
    view: PlanView
    slo: SloRequest | None  # of its query; None: a file of a plan alone does not have it
    machines: Sequence[MachineShare]  # where it is scheduled; empty: that is not known


def plan_of(client: Client, source: str) -> NamedPlan:
    """Return the plan of a file that `circinus export` wrote, or of a query of the service.

    InvalidInput for a query on a pool: what is rendered has a plan's own replicas.
    """
    if Path(source).exists():
        document = read_document(Path(source))
        query = document.get("query")
        return NamedPlan(*plan_in(document), None if query is None else query_of(query).slo, ())
    query = client.query(source)
    view, assignments = client.plan(query.plan_id or ""), client.schedule().assignments
    served = next((a for a in assignments if a.query_id == source), None)
    if served is not None and served.pool is not None:
        rule = "must be dropped first (circinus pool drop): what is rendered is the plan itself"
        raise InvalidInput.of("pool", rule, served.pool)
    machines = [] if served is None else served.machines
    return NamedPlan(source, view, query.request.slo, machines)


def plan_in(document: Mapping[str, object]) -> tuple[str, PlanView]:
    """Return query id and plan of a document that `circinus export` wrote, of a query or a plan.

    Raises InvalidInput if it is neither, or its query has no scheduled plan.
    """
    plans = document.get("plans")
    if not isinstance(plans, list):
        view = checked(PlanView, document)
        return str(document.get("query_id") or view.id), view
    chosen = document.get("plan_id")
    for view in [checked(PlanView, each) for each in plans]:
        if view.id == chosen:
            return str(document.get("id") or view.id), view
    raise InvalidInput.of("plan_id", "must be among the plans of the query", chosen)
