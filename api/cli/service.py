"""`circinus serve`; `demo`, which starts one; `dispatch` and `operator`, which follow one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from typer import Option

from circinus.api.bootstrap.registry import settings_with
from circinus.api.cli.command import ExitCode, leave
from circinus.api.cli.options import MethodName, PodKubeconfig
from circinus.api.client import Client
from circinus.api.event_log import start_event_log
from circinus.api.query_file import read_infrastructure
from circinus.api.schemas.planning import method_view
from circinus.api.text import formats
from circinus.api.text.screen import Screen
from circinus.deploy.methods import method_of
from circinus.pipelines import checks
from circinus.pipelines.clock import SystemClock

if TYPE_CHECKING:  # the Kubernetes client: only in its command
    from circinus.api.operator.running import Scope
    from circinus.deploy.kubernetes.api import Cluster
    from circinus.deploy.kubernetes.ownership import ObjectOwner


def demo(
    screen: Screen,
    method: MethodName = None,
    keep: Annotated[bool, "Leave the service up at the end, until Ctrl-C."] = False,
    show: Annotated[
        bool, Option("--open", help="Open the service's page in a browser, if there is one.")
    ] = False,
) -> None:
    """Plan, deploy and serve queries that compete, while a link thins and machines are removed."""
    from circinus.api.demo.run import run  # only in this command

    chosen = None if method is None else method_of(method, "--method")
    console = screen.err if screen.as_json else screen.out
    report = run(console, chosen, keep=keep, show=show)
    if screen.as_json:
        screen.json(report.document())
    leave(ExitCode.OK if report.worked else ExitCode.INTERNAL)


def serve(
    screen: Screen,
    host: Annotated[str | None, "Address to listen on."] = None,
    port: Annotated[int | None, "Port to listen on."] = None,
    database_url: Annotated[str | None, Option(help="Where state lives.", metavar="URL")] = None,
    infrastructure: Annotated[str | None, "YAML file or preset to plan for."] = None,
    planning_workers: Annotated[int | None, "Processes that plan."] = None,
    method: MethodName = None,
) -> None:
    """Run the service until it is interrupted.

    An option left out is read from the environment: CIRCINUS_HOST for --host and so on; the
    token is CIRCINUS_TOKEN. The service logs events to stderr, one JSON object a line.
    """
    # The whole service: only in this command
    from circinus.api.bootstrap.parts import require_fit
    from circinus.api.serving.service import serve as run

    settings = settings_with(
        host=host,
        port=port,
        database_url=database_url,
        infrastructure=infrastructure,
        planning_workers=planning_workers,
        method=method,
    )
    require_fit(settings)
    chosen = method_view(settings.chosen_method)
    tiers = read_infrastructure(settings.infrastructure)
    address = f"http://{settings.host}:{settings.port}"
    if screen.as_json:
        screen.json({"address": address, "infrastructure": tiers.name, "method": chosen})
    screen.note(f"Circinus at {address}, infrastructure {tiers.name}; its pages are at /docs")
    screen.note(f"queries are {', '.join(formats.method(chosen))}")
    run(settings)


def dispatch(
    screen: Screen,
    service: Annotated[str, Option(help="URL of the service that it follows.", metavar="URL")],
    host: Annotated[str | None, "Address to listen on."] = None,
    port: Annotated[int | None, "Port to listen on."] = None,
    infrastructure: Annotated[str | None, "YAML file or preset of the service."] = None,
) -> None:
    """Answer requests to the deployments of a service, beside others who do, until interrupted.

    All other requests are handed on to the service. Requests are answered while it is away. What
    an option leaves out is read from the environment, as for `serve`.
    """
    from circinus.api.serving.dispatch import run  # the rest: only in this command

    settings = settings_with(host=host, port=port, infrastructure=infrastructure)
    screen.note(f"dispatching at http://{settings.host}:{settings.port} for {service}")
    run(settings, service)


def operator(
    screen: Screen,
    client: Client,
    namespace: Annotated[
        list[str] | None,
        Option(help="Whose objects to follow; repeatable; default: the pod's own."),
    ] = None,
    all_namespaces: Annotated[bool, "Follow the objects of every namespace."] = False,
    kubeconfig: PodKubeconfig = None,
    lease: Annotated[float, "Seconds after which a silent leader is replaced."] = 10.0,
    every: Annotated[float, "Seconds between two readings of the service's queries."] = 1.0,
    health: Annotated[
        int | None, Option(help="Port of /healthz and /readyz; left out: none.", metavar="PORT")
    ] = None,
    release: Annotated[
        str, Option(envvar="CIRCINUS_RELEASE", help="For which objects are taken.")
    ] = "circinus",
    pod: Annotated[
        str | None, "NAME/UID of the pod that this runs in: the lease goes with it."
    ] = None,
    retire: Annotated[
        bool, "Delete the release's objects, once nothing runs for them; end."
    ] = False,
    definition: Annotated[bool, "Print the custom resource definition and end."] = False,
) -> None:
    """Follow the PipelineQuery objects of Kubernetes namespaces until interrupted.

    Each becomes a query of the service, and its status shows how that fares. Several operators
    may run: one leads, the others wait for its lease to end. Objects with the label
    circinus.io/release are for the release that it names; others are for the first to claim them.
    """
    from circinus.api.operator import definition as custom  # the rest: only in this command

    if definition:
        screen.document(custom.definition())
        return
    from circinus.api.operator.running import OperatorProcess, OperatorSettings, Scope
    from circinus.deploy.kubernetes.api import Cluster, connect

    scope = Scope(namespaces=tuple(namespace or ()), everywhere=all_namespaces)
    if retire:
        _retire(screen, scope, Cluster(connect(kubeconfig)), release)
        return
    settings = OperatorSettings(
        scope=scope, release=release, pod=_pod(pod), lease_s=lease, look_s=every
    )
    start_event_log("info")
    cluster = Cluster(connect(kubeconfig))
    asyncio.run(OperatorProcess(service=client, cluster=cluster, settings=settings).run(health))


def _retire(screen: Screen, scope: Scope, cluster: Cluster, release: str) -> None:
    from circinus.api.operator.claims import Retirement
    from circinus.deploy.kubernetes.access import RETIREMENT, require_access

    for namespace in scope.followed:
        require_access(cluster, namespace or "", RETIREMENT)
    Retirement(
        cluster=cluster,
        namespaces=scope.followed,
        release=release,
        clock=SystemClock(),
        tell=screen.note,
    ).run()


def _pod(text: str | None) -> ObjectOwner | None:
    from circinus.deploy.kubernetes.ownership import ObjectOwner

    if text is None:
        return None
    name, _, uid = text.partition("/")
    checks.require(bool(name and uid), "--pod", "must be NAME/UID", text)
    return ObjectOwner(api_version="v1", kind="Pod", name=name, uid=uid)
