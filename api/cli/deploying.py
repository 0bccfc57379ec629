"""`circinus deploy`: plans as objects of a Kubernetes cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from api.cli.command import command, leave
from api.cli.exits import EPILOG, ExitCode
from api.cli.options import DEFAULT_URL, InfrastructureName, Token, Url, connect
from api.cli.references import pipeline_here
from api.cli.screen import Screen
from api.query_file import read_document, read_infrastructure
from pipelines.clock import SystemClock
from pipelines.graph import PipelineGraph

if TYPE_CHECKING:  # the Kubernetes client takes a second: only who needs it waits for it
    from deploy.kubernetes.manifests import Rendered
    from deploy.kubernetes.outcome import Outcome
    from deploy.kubernetes.rollout import Rollout
    from deploy.kubernetes.scheduled import ScheduledPlan

PlanSource = Annotated[
    str,
    typer.Argument(
        metavar="PLAN", help="File of `circinus export`, or id of a query of the service."
    ),
]
QueryName = Annotated[str, typer.Argument(metavar="ID", help="Id of a deployed query.")]
Namespace = Annotated[str, typer.Option("--namespace", help="Of the objects.")]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig", help="The way to the cluster; default: the pod's account, else KUBECONFIG."
    ),
]
Image = Annotated[str, typer.Option("--image", help="Of the workers.")]
Pin = Annotated[
    Literal["machine", "tier"],
    typer.Option("--pin", help="Bind workers to the scheduled machine, or to its tier only."),
]
Cpu = Annotated[str, typer.Option("--machine-cpu", help="CPU that stands for one machine.")]
Memory = Annotated[str, typer.Option("--machine-memory", help="Memory of one machine.")]
Gpus = Annotated[int, typer.Option("--machine-gpus", help="GPUs of one machine.")]
Devices = Annotated[
    Literal["none", "whole", "mps", "time-sliced"],
    typer.Option("--devices", help="How a share of a machine's GPUs is asked for."),
]
Standby = Annotated[
    int, typer.Option("--standby", help="Warm replicas per tier beyond the schedule.")
]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to become ready in.")]
Force = Annotated[
    bool, typer.Option("--force", help="Take fields over that other field managers own.")
]


def register(app: typer.Typer) -> None:
    """Add the group to the application."""
    group = typer.Typer(help="Plans in a Kubernetes cluster.", epilog=EPILOG, no_args_is_help=True)
    command(group, "render")(render)
    command(group, "diff")(diff)
    command(group, "apply")(apply)
    command(group, "status")(status)
    command(group, "rollback")(rollback)
    command(group, "delete")(delete)
    app.add_typer(group, name="deploy")


def render(
    screen: Screen,
    plan: PlanSource,
    form: Annotated[
        Literal["yaml", "helm"],
        typer.Option("--format", help="Objects, or values for Helm."),
    ] = "yaml",
    namespace: Namespace = "default",
    image: Image = "circinus/worker:latest",
    pin: Pin = "machine",
    cpu: Cpu = "1",
    memory: Memory = "2Gi",
    gpus: Gpus = 0,
    devices: Devices = "none",
    standby: Standby = 0,
    infrastructure: InfrastructureName = "local",
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Print the objects of a plan; needs no cluster."""
    from deploy.kubernetes.manifests import helm_values

    scheduled = _scheduled(plan, infrastructure, url, token)
    shape = _Shape(namespace, image, pin, (cpu, memory, gpus, devices), standby)
    found = shape.rendered(scheduled)
    if screen.as_json:
        screen.json({"objects": list(found.objects)})
    else:
        typer.echo(helm_values([found]) if form == "helm" else found.as_yaml(), nl=False)


def diff(
    screen: Screen,
    plan: PlanSource,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    image: Image = "circinus/worker:latest",
    pin: Pin = "machine",
    cpu: Cpu = "1",
    memory: Memory = "2Gi",
    gpus: Gpus = 0,
    devices: Devices = "none",
    standby: Standby = 0,
    infrastructure: InfrastructureName = "local",
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Show what `apply` would change; the exit code is 5 if anything."""
    scheduled = _scheduled(plan, infrastructure, url, token)
    shape = _Shape(namespace, image, pin, (cpu, memory, gpus, devices), standby)
    found = _rollout(screen, namespace, kubeconfig).diff([shape.rendered(scheduled)])
    lines = [f"+ {each.key}" for each in found.create]
    for each in found.change:
        lines += [f"~ {each.key}", *(f"    {field}" for field in each.fields)]
    lines += [f"- {key}" for key in found.prune]
    document = {
        "create": [each.key for each in found.create],
        "change": {each.key: list(each.fields) for each in found.change},
        "prune": list(found.prune),
        "unchanged": found.unchanged,
    }
    screen.show("\n".join(lines) or "no difference", document=document)
    leave(ExitCode.OK if found.is_empty else ExitCode.DIFFERS)


def apply(
    screen: Screen,
    plan: PlanSource,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the server check everything, change nothing.")
    ] = False,
    force: Force = False,
    timeout: Timeout = 300.0,
    image: Image = "circinus/worker:latest",
    pin: Pin = "machine",
    cpu: Cpu = "1",
    memory: Memory = "2Gi",
    gpus: Gpus = 0,
    devices: Devices = "none",
    standby: Standby = 0,
    infrastructure: InfrastructureName = "local",
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Deploy a plan, wait until it is ready, then remove what the plan before left."""
    scheduled = _scheduled(plan, infrastructure, url, token)
    shape = _Shape(namespace, image, pin, (cpu, memory, gpus, devices), standby)
    there = _rollout(screen, namespace, kubeconfig, timeout_s=timeout, force=force)
    found = [shape.rendered(scheduled)]
    _show_and_leave(screen, there.preview(found) if dry_run else there.apply(found))


def status(
    screen: Screen,
    query_id: QueryName,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show how many workers of a query are ready, and its revisions."""
    from deploy.kubernetes.rollout import readiness

    there = _rollout(screen, namespace, kubeconfig)
    workers = readiness(there.live(query_id))
    revisions = there.history(query_id)
    lines = [f"{name}: {ready} of {wanted} ready" for name, (ready, wanted) in workers.items()]
    lines += [f"revision {each.number}: plan {each.rendered.plan_id}" for each in revisions]
    document = {
        "workers": {name: {"ready": r, "wanted": w} for name, (r, w) in workers.items()},
        "revisions": [{"number": e.number, "plan_id": e.rendered.plan_id} for e in revisions],
    }
    screen.show("\n".join(lines) or f"nothing of query {query_id}", document=document)
    late = any(ready < wanted for ready, wanted in workers.values())
    leave(ExitCode.NOT_READY if late or not workers else ExitCode.OK)


def rollback(
    screen: Screen,
    query_id: QueryName,
    revision: Annotated[
        int | None, typer.Option("--revision", help="Which; default: the last other one.")
    ] = None,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    force: Force = False,
    timeout: Timeout = 300.0,
) -> None:
    """Deploy an earlier plan of a query again."""
    there = _rollout(screen, namespace, kubeconfig, timeout_s=timeout, force=force)
    _show_and_leave(screen, there.rollback(query_id, revision))


def delete(
    screen: Screen,
    query_id: QueryName,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Delete everything of a query, its history too."""
    keys = _rollout(screen, namespace, kubeconfig).delete(query_id)
    words = "\n".join(f"- {key}" for key in keys) or f"nothing of query {query_id}"
    screen.show(words, document={"deleted": list(keys)})


class _Shape:
    """The options about workers."""

    def __init__(
        self,
        namespace: str,
        image: str,
        pin: str,
        machine: tuple[str, str, int, str],
        standby: int,
    ) -> None:
        self._namespace, self._image, self._pin = namespace, image, pin
        self._machine, self._standby = machine, standby

    def rendered(self, scheduled: ScheduledPlan) -> Rendered:
        from deploy.kubernetes import manifests
        from deploy.kubernetes.scheduled import (
            DevicePolicy,
            MachineShape,
            Pinning,
            RenderSettings,
        )

        cpu, memory, gpus, devices = self._machine
        settings = RenderSettings(
            namespace=self._namespace,
            image=self._image,
            pinning=Pinning(self._pin),
            machine=MachineShape(cpu=cpu, memory=memory, gpus=gpus, devices=DevicePolicy(devices)),
            standby=self._standby,
        )
        return manifests.render(scheduled, settings)


def _scheduled(source: str, infrastructure: str, url: str, token: str | None) -> ScheduledPlan:
    from api.deployable import plan_in, scheduled_of

    tiers = read_infrastructure(infrastructure)
    if Path(source).exists():
        query_id, view = plan_in(read_document(Path(source)))
        return scheduled_of(query_id, view, (), _graph, tiers)
    with connect(url, token) as client:
        query = client.query(source)
        view = client.plan(query.plan_id or "")
        assignments = client.schedule().assignments
    machines = next((a.machines for a in assignments if a.query_id == source), [])
    return scheduled_of(source, view, machines, _graph, tiers)


def _graph(pipeline: str) -> PipelineGraph:
    return pipeline_here(pipeline).graph


def _rollout(
    screen: Screen,
    namespace: str,
    kubeconfig: Path | None,
    *,
    timeout_s: float = 300.0,
    force: bool = False,
) -> Rollout:
    from deploy.kubernetes.api import Cluster
    from deploy.kubernetes.connection import connect as reach
    from deploy.kubernetes.rollout import Rollout, RolloutSettings

    settings = RolloutSettings(timeout_s=timeout_s, force=force)
    return Rollout(Cluster(reach(kubeconfig)), namespace, SystemClock(), settings, screen.note)


def _show_and_leave(screen: Screen, outcome: Outcome) -> None:
    lines = [f"{outcome.state.value}" + (f": {outcome.words}" if outcome.words else "")]
    lines += [f"+ {key}" for key in outcome.applied]
    lines += [f"! {key} was not written" for key in outcome.missing]
    lines += [f"- {key}" for key in outcome.pruned]
    if outcome.revision is not None:
        lines.append(f"revision {outcome.revision}")
    document = {
        "state": outcome.state.value,
        "words": outcome.words,
        "applied": list(outcome.applied),
        "missing": list(outcome.missing),
        "pruned": list(outcome.pruned),
        "unchanged": outcome.unchanged,
        "revision": outcome.revision,
        "gap_s": outcome.gap_s,
    }
    screen.show("\n".join(lines), document=document)
    leave(_EXITS[outcome.state.value])


_EXITS = {
    "ready": ExitCode.OK,
    "preview": ExitCode.OK,
    "conflict": ExitCode.REFUSED,
    "quota": ExitCode.REFUSED,
    "refused": ExitCode.REFUSED,
    "forbidden": ExitCode.REFUSED,
    "namespace": ExitCode.REFUSED,
    "capacity": ExitCode.NO_ROOM,
    "unschedulable": ExitCode.NO_ROOM,
    "timed out": ExitCode.NOT_READY,
    "unavailable": ExitCode.INTERNAL,
}
