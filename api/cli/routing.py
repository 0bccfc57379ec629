"""`circinus route weights`: which part of an endpoint's requests each deployment unit gets."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

from rich.console import RenderableType
from typer import Argument, Option

from circinus.api.cli.command import ExitCode, leave
from circinus.api.query_file import read_document
from circinus.api.schemas.routes import RegimeTrafficView, RouteInput, RouteWeightsView
from circinus.api.schemas.violations import checked
from circinus.api.text import formats, tables
from circinus.api.text.screen import Screen
from circinus.pipelines import checks

_COLUMNS = ("unit", "wanted", "weight", "requests/s", "busy")


def weights(
    screen: Screen,
    file: Annotated[Path, Argument(metavar="FILE", help="YAML of a route.", dir_okay=False)],
    method: Annotated[
        str, Option(help="carried: by what units can do; or published, by their price.")
    ] = "carried",
) -> None:
    """Give numbers and traffic weights of a route's deployment units, in both regimes, and why.

    Nothing is deployed. Ends with 3 if what can be had is too little.
    """
    # a solver, that no other command should wait for
    from circinus.api.use_cases.routes import weighed
    from circinus.scheduler.routing.traffic import RouteMethod

    checks.among("--method", method, [*RouteMethod])
    told = weighed(checked(RouteInput, read_document(file)).route, RouteMethod(method))
    screen.show(*_lines(told), document=told)
    leave(ExitCode.OK if told.feasible else ExitCode.INFEASIBLE)


def _lines(told: RouteWeightsView) -> list[RenderableType]:
    lines: list[RenderableType] = [
        f"{told.name}, {told.demand_per_s:g} requests/s: {told.regime.value} mode, {told.why}",
        *(f"left out: {each}" for each in told.left_out),
        *chain.from_iterable(map(_regime, told.regimes)),
    ]
    if told.least_usd_per_hour is None:
        return [*lines, "What can be had is too little for the demand."]
    least = formats.dollars(told.least_usd_per_hour)
    return [
        *lines,
        f"No numbers of what can be had cost less than {least}, parts of units allowed.",
    ]


def _regime(of: RegimeTrafficView) -> list[RenderableType]:
    latency = "" if of.latency_s is None else f", mean latency {formats.seconds(of.latency_s)}"
    rows = (
        (
            unit.name,
            str(unit.units),
            f"{unit.weight:.3f}",
            f"{unit.per_s:.1f}",
            formats.UNKNOWN if unit.busy is None else f"{unit.busy:.0%}",
        )
        for unit in of.units
    )
    return [
        tables.table(
            f"{of.regime.value.capitalize()} mode", *_COLUMNS, right=(1, 2, 3, 4), rows=rows
        ),
        f"{formats.dollars(of.usd_per_hour)}, {formats.per_1000(of.usd_per_1000)}, "
        f"{of.served_per_s:.4g} of {of.supply_per_s:.4g} requests/s{latency}",
    ]
