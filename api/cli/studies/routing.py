"""`circinus study routing`: routes over deployment units, in simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from circinus.api.cli.options import FirstSeed
from circinus.api.query_file import read_document
from circinus.api.schemas.routes import RouteInput
from circinus.api.schemas.violations import checked
from circinus.api.text.screen import Screen
from circinus.studies.report.tables import markdown
from circinus.studies.routing import study


def routing(
    screen: Screen,
    out: Annotated[
        Path, Option(help="Folder of routing.csv, routing.html and SVG files.", file_okay=False)
    ],
    route: Annotated[
        Path | None,
        Option(metavar="FILE", help="A route of yours; default: a tenth of the paper's."),
    ] = None,
    policies: Annotated[
        str, f"By commas, of {', '.join(study.ROUTERS)}; two are drawn."
    ] = ",".join(study.ROUTERS),
    seeds: Annotated[int, Option(help="Runs of each.", min=1)] = 5,
    first_seed: FirstSeed = 0,
) -> None:
    """Simulate an endpoint over deployment units while capacity varies.

    Prints cost, requests that are late or not served, and for how long lost units received
    traffic. Every run is in routing.csv; routing.html has figures 4 to 7 of the paper, simulated.
    """
    routing_study = study.RoutingStudy(
        route=study.PUBLISHED_ROUTE
        if route is None
        else checked(RouteInput, read_document(route)).route,
        policies=tuple(policies.split(",")),
        seeds=seeds,
        first_seed=first_seed,
    )
    with screen.follow() as lines:

        def show(row: study.RoutingRow) -> None:
            key = f"{row.scenario}, {row.policy}"
            lines.update({key: (str(row.seed), f"seed {row.seed} done")})

        cells = study.summary(study.run(routing_study, out, show))
    screen.show(markdown(cells, study.RoutingCell), document={"folder": str(out), "cells": cells})
