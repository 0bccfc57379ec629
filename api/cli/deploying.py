"""`circinus deploy`: plans as objects of a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import wraps
from inspect import signature as signature_of
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from circinus.api.cli.command import EPILOG, ExitCode, command, leave
from circinus.api.cli.options import (
    DEFAULT_URL,
    InfrastructureName,
    Token,
    Url,
    connect,
    pipeline_here,
)
from circinus.api.cli.screen import Screen
from circinus.api.query_file import read_document, read_infrastructure
from circinus.api.schemas.schedule import MachineShare
from circinus.pipelines.clock import SystemClock

if TYPE_CHECKING:  # the Kubernetes client takes a second: only who needs it waits for it
    from circinus.deploy.kubernetes.manifests import Rendered, ScheduledPlan
    from circinus.deploy.kubernetes.outcome import RolloutOutcome
    from circinus.deploy.kubernetes.rollout import Rollout

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
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to become ready in.")]
Force = Annotated[
    bool, typer.Option("--force", help="Take fields over that other field managers own.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """Options of the commands that render a plan: its workers, and where it is described."""

    image: Annotated[str, typer.Option("--image", help="Of the workers.")] = (
        "circinus/worker:latest"
    )
    pin: Annotated[
        Literal["machine", "tier"],
        typer.Option("--pin", help="Bind workers to the scheduled machine, or to its tier only."),
    ] = "machine"
    cpu: Annotated[str, typer.Option("--machine-cpu", help="CPU that stands for one machine.")] = (
        "1"
    )
    memory: Annotated[str, typer.Option("--machine-memory", help="Memory of one machine.")] = "2Gi"
    gpus: Annotated[int, typer.Option("--machine-gpus", help="GPUs of one machine.")] = 0
    devices: Annotated[
        Literal["none", "whole", "mps", "time-sliced"],
        typer.Option("--devices", help="How a share of a machine's GPUs is asked for."),
    ] = "none"
    standby: Annotated[
        int, typer.Option("--standby", help="Warm replicas per tier beyond the schedule.")
    ] = 0
    infrastructure: InfrastructureName = "local"
    url: Url = DEFAULT_URL
    token: Token = None

    def rendered(self, source: str, namespace: str) -> Rendered:
        """Give the objects of a plan, in a file or of a query of the service."""
        from circinus.deploy.kubernetes.manifests import render as objects_of
        from circinus.deploy.kubernetes.pods import Pinning, RenderSettings
        from circinus.deploy.kubernetes.resources import DevicePolicy, MachineShape

        scheduled = self._scheduled(source)
        devices = DevicePolicy(self.devices)
        settings = RenderSettings(
            namespace=namespace,
            image=self.image,
            pinning=Pinning(self.pin),
            machine=MachineShape(
                cpu=self.cpu, memory=self.memory, gpus=self.gpus, devices=devices
            ),
            standby=self.standby,
        )
        return objects_of(scheduled, settings)

    def _scheduled(self, source: str) -> ScheduledPlan:
        from circinus.api.cli.deployable import plan_in, scheduled_of

        tiers = read_infrastructure(self.infrastructure)
        machines: Sequence[MachineShare] = ()
        if Path(source).exists():
            query_id, view = plan_in(read_document(Path(source)))
        else:
            with connect(self.url, self.token) as client:
                query_id, view = source, client.plan(client.query(source).plan_id or "")
                assignments = client.schedule().assignments
            machines = next((a.machines for a in assignments if a.query_id == source), [])
        return scheduled_of(query_id, view, machines, pipeline_here(view.pipeline).graph, tiers)


def _rendering(body: Callable[..., None]) -> Callable[..., None]:
    """Give a command with the fields of its `options`, a RenderOptions, as options of its own."""
    signature = signature_of(body, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != "options"]
    more = signature_of(RenderOptions, eval_str=True).parameters

    @wraps(body)
    def run(*arguments: object, **given: Any) -> None:  # noqa: ANN401 - the command's own
        options = RenderOptions(**{name: given.pop(name) for name in more})
        body(*arguments, options=options, **given)

    run.__signature__ = signature.replace(parameters=[*own, *more.values()])  # type: ignore[attr-defined]  # what inspect reads
    return run


def register(app: typer.Typer) -> None:
    """Add the group to the application."""
    group = typer.Typer(help="Plans in a Kubernetes cluster.", epilog=EPILOG, no_args_is_help=True)
    for body in (_rendering(render), _rendering(diff), _rendering(apply)):
        command(group)(body)
    for body in (status, rollback, delete):
        command(group)(body)
    app.add_typer(group, name="deploy")


def render(
    screen: Screen,
    plan: PlanSource,
    form: Annotated[
        Literal["yaml", "helm"],
        typer.Option("--format", help="Objects, or values for Helm."),
    ] = "yaml",
    namespace: Namespace = "default",
    *,
    options: RenderOptions,
) -> None:
    """Print the objects of a plan; needs no cluster."""
    from circinus.deploy.kubernetes.manifests import helm_values

    found = options.rendered(plan, namespace)
    if screen.as_json:
        screen.json({"objects": list(found.objects)})
    else:
        typer.echo(helm_values([found]) if form == "helm" else found.as_yaml(), nl=False)


def diff(
    screen: Screen,
    plan: PlanSource,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    *,
    options: RenderOptions,
) -> None:
    """Show what `apply` would change; the exit code is 5 if anything."""
    rendered = options.rendered(plan, namespace)
    found = _rollout(screen, namespace, kubeconfig).diff([rendered])
    lines = [f"+ {key}" for key in found.create]
    for key, fields in found.change.items():
        lines += [f"~ {key}", *(f"    {field}" for field in fields)]
    lines += [f"- {key}" for key in found.prune]
    screen.show("\n".join(lines) or "no difference", document=asdict(found))
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
    *,
    options: RenderOptions,
) -> None:
    """Deploy a plan, wait until it is ready, then remove what the plan before left."""
    rendered = [options.rendered(plan, namespace)]
    there = _rollout(screen, namespace, kubeconfig, timeout_s=timeout, force=force)
    _show_and_leave(screen, there.preview(rendered) if dry_run else there.apply(rendered))


def status(
    screen: Screen,
    query_id: QueryName,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show how many workers of a query are ready, and its revisions."""
    from circinus.deploy.kubernetes.rollout import readiness

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


def _rollout(
    screen: Screen,
    namespace: str,
    kubeconfig: Path | None,
    *,
    timeout_s: float = 300.0,
    force: bool = False,
) -> Rollout:
    from circinus.deploy.kubernetes.api import Cluster
    from circinus.deploy.kubernetes.api import connect as reach
    from circinus.deploy.kubernetes.rollout import Rollout

    cluster = Cluster(reach(kubeconfig))
    return Rollout(cluster, namespace, SystemClock(), timeout_s, force, screen.note)


def _show_and_leave(screen: Screen, outcome: RolloutOutcome) -> None:
    lines = [f"{outcome.state.value}" + (f": {outcome.words}" if outcome.words else "")]
    lines += [f"+ {key}" for key in outcome.applied]
    lines += [f"! {key} was not written" for key in outcome.missing]
    lines += [f"- {key}" for key in outcome.pruned]
    if outcome.revision is not None:
        lines.append(f"revision {outcome.revision}")
    screen.show("\n".join(lines), document=asdict(outcome))
    leave(_EXITS[outcome.state.value])


_EXITS = {
    "ready": ExitCode.OK,
    "preview": ExitCode.OK,
    "capacity": ExitCode.NO_ROOM,
    "unschedulable": ExitCode.NO_ROOM,
    "timed out": ExitCode.NOT_READY,
    "unavailable": ExitCode.INTERNAL,
    **dict.fromkeys(("conflict", "quota", "refused", "forbidden", "namespace"), ExitCode.REFUSED),
}
