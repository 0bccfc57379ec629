"""`circinus route follow`: a route in a Kubernetes cluster, its objects and what moves traffic."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

from rich.console import RenderableType
from typer import Option, echo

from circinus.api.cli.command import CommandFailed, ExitCode, leave
from circinus.api.cli.options import Kubeconfig, MetricName, RouteFile, probes_here, read_route
from circinus.api.schemas.routes import RouteInput
from circinus.api.text import formats, tables
from circinus.api.text.screen import Screen, on_signal
from circinus.pipelines import checks
from circinus.pipelines.clock import SystemClock

if TYPE_CHECKING:  # the Kubernetes client and the solver take a second: only who needs them waits
    from circinus.deploy.kubernetes.routing.follower import RouteFollower, RouteSteered
    from circinus.deploy.kubernetes.routing.targets import ClusterRoute
    from circinus.deploy.routes.probing import EndpointProbes

_COLUMNS = ("unit", "wanted", "ready", "can be had", "weight", "why not more")


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """Options of the commands that move a route's traffic in a cluster."""

    force: Annotated[bool, "Take fields over that other field managers own."] = False
    kubeconfig: Kubeconfig = None


def follow(
    screen: Screen,
    file: RouteFile,
    render: Annotated[bool, "Print the objects; touch no cluster."] = False,
    once: Annotated[bool, "Look and write once, and end."] = False,
    probes: Annotated[
        Path | None,
        Option(
            metavar="PROBES",
            help="Of `route verify`: a unit takes traffic once its outputs agree.",
            dir_okay=False,
        ),
    ] = None,
    metric: MetricName = None,
    *,
    options: FollowOptions,
) -> None:
    """Let a cluster send a route's requests to its units, and move them with capacity.

    Writes the objects, then follows until interrupted. Ends with 3 if what can be had is too
    little (--once), 6 if the cluster refuses.
    """
    from circinus.api.use_cases.route_files import cluster_route

    route_input = read_route(file)
    route, metric_allowed = cluster_route(route_input), metric is None or probes is not None
    checks.require(metric_allowed, "--metric", "must be with --probes", metric)
    verified = None if probes is None else probes_here(probes, metric, route_input.verify)
    if render:
        _render(screen, route)
    else:
        follow_in_cluster(screen, route_input, options, once=once, probes=verified)


def _render(screen: Screen, route: ClusterRoute) -> None:
    """Print the objects of a route as they are with full capacity."""
    import yaml

    from circinus.deploy.kubernetes.manifests import WithoutAliases
    from circinus.deploy.kubernetes.routing.objects import planned

    objects = planned(route, SystemClock().timestamp())
    if screen.as_json:
        screen.json({"objects": objects})
    else:
        echo(yaml.dump_all(objects, Dumper=WithoutAliases, sort_keys=False), nl=False)


def follow_in_cluster(
    screen: Screen,
    route_input: RouteInput,
    options: FollowOptions,
    *,
    once: bool,
    probes: EndpointProbes | None = None,
) -> None:
    """Write a route's objects and follow its capacity, until SIGTERM or an interrupt."""
    from circinus.api.use_cases.route_files import cluster_route
    from circinus.deploy.kubernetes.access import NotAllowed
    from circinus.deploy.kubernetes.api import ClusterRefused
    from circinus.deploy.kubernetes.diagnosis import with_remedy

    route = cluster_route(route_input)
    try:
        steered = _followed(screen, _follower(screen, route, options, probes), once=once)
    except (ClusterRefused, NotAllowed) as error:
        words = with_remedy(error) if isinstance(error, ClusterRefused) else str(error)
        raise CommandFailed(ExitCode.REFUSED, words) from error
    if steered is not None:
        screen.show(*_lines(route, steered), document=_document(route, steered))
        leave(ExitCode.OK if _suffices(route, steered) or not once else ExitCode.INFEASIBLE)


def _followed(screen: Screen, follower: RouteFollower, *, once: bool) -> RouteSteered | None:
    """Return the result of the last look; None: there was none."""
    latest: list[RouteSteered] = []

    def tell(steered: RouteSteered) -> None:
        latest[:] = [steered]
        screen.note(_line(steered))

    if once:
        return follower.once()
    follower.on_steered = tell
    over = Event()

    def end(*_: object) -> None:
        over.set()
        follower.wake()

    with on_signal(signal.SIGTERM, end), on_signal(signal.SIGINT, end):
        follower.run(over)
    return latest[0] if latest else None


def _follower(
    screen: Screen, route: ClusterRoute, options: FollowOptions, probes: EndpointProbes | None
) -> RouteFollower:
    from circinus.deploy.kubernetes.access import lacking, require_access
    from circinus.deploy.kubernetes.api import Cluster, connect
    from circinus.deploy.kubernetes.routing.applied import (
        SEEING_NODES,
        RouteWriter,
        route_permissions,
    )
    from circinus.deploy.kubernetes.routing.follower import RouteFollower
    from circinus.deploy.kubernetes.routing.objects import planned

    clock, cluster = SystemClock(), Cluster(connect(options.kubeconfig))
    kinds = [each["kind"] for each in planned(route, clock.timestamp())]
    for namespace, needs in route_permissions(route, kinds).items():
        require_access(cluster, namespace, needs)
    blind = bool(lacking(cluster, "", [SEEING_NODES]))
    if blind:
        screen.note("nodes are not watched (the account may not): what is lost is seen later")
    return RouteFollower(
        cluster=cluster,
        route=route,
        clock=clock,
        writer=RouteWriter(cluster=cluster, clock=clock, force=options.force),
        with_nodes=not blind,
        probes=probes,
    )


def _line(steered: RouteSteered) -> str:
    direction = steered.direction
    parts = ", ".join(f"{name} {part:.1%}" for name, part in direction.weights.items())
    reaction_s = steered.reaction_s
    delay = "" if reaction_s is None else f", {formats.seconds(reaction_s)} after the change"
    without = "".join(f"; {name}: {why}" for name, why in steered.unverified.items())
    return f"{direction.regime.value} mode, {direction.why}: {parts or 'no unit'}{delay}{without}"


def _lines(route: ClusterRoute, steered: RouteSteered) -> list[RenderableType]:
    rows = [
        (
            str(each["name"]),
            str(each["wanted"]),
            str(each["ready"]),
            "any" if each["available"] is None else str(each["available"]),
            f"{each['weight']:.3f}",
            str(each["why"]),
        )
        for each in _units(steered)
    ]
    direction = steered.direction
    title = f"{direction.regime.value.capitalize()} mode since {direction.since}"
    return [
        f"{route.route.name}, {route.route.demand_per_s:g} requests/s: {direction.why}",
        tables.table(title, *_COLUMNS, right=(1, 2, 3, 4), rows=rows),
        *(f"+ {key}" for key in steered.written),
    ]


def _document(route: ClusterRoute, steered: RouteSteered) -> dict[str, object]:
    direction = steered.direction
    return {
        "name": route.route.name,
        "regime": direction.regime,
        "why": direction.why,
        "since": direction.since,
        "feasible": _suffices(route, steered),
        "units": _units(steered),
        "written": steered.written,
    }


def _units(steered: RouteSteered) -> list[dict[str, object]]:
    return [
        {
            "name": name,
            "wanted": steered.traffic.numbers.get(name, 0),
            "ready": unit.ready,
            "available": unit.available,
            "weight": steered.direction.weights.get(name, 0.0),
            "why": "; ".join(filter(None, [unit.why, steered.unverified.get(name, "")])),
        }
        for name, unit in steered.units.items()
    ]


def _suffices(route: ClusterRoute, steered: RouteSteered) -> bool:
    from circinus.scheduler.routing.traffic import supply_per_s

    supply = supply_per_s(route.route.units, steered.traffic.numbers)
    return supply >= route.route.demand_per_s
