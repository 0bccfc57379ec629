"""The command `circinus study drift`: planning again beside planning from nothing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from api.cli.screen import Screen
from api.query_file import read_infrastructure
from pipelines.errors import InvalidInput
from studies.planning_drift import DriftStudy, Kind, run
from studies.planning_drift_report import summary, table


def drift(
    screen: Screen,
    trace: Annotated[list[Path], typer.Option("--trace", help="Folder of a trace; repeatable.")],
    kind: Annotated[Kind, typer.Option("--drift", help="What drifts.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of drift.csv.", file_okay=False)],
    slo: Annotated[
        str, typer.Option("--slo", help="Of easy, medium, hard, separated by commas.")
    ] = "medium",
    seeds: Annotated[int, typer.Option("--seeds", help="Per SLO.", min=1)] = 3,
    first_seed: Annotated[int, typer.Option("--first-seed", help="The first seed.", min=0)] = 0,
    infrastructure: Annotated[
        str | None,
        typer.Option(
            "--infrastructure",
            help="Preset or file; none: three tiers with a weak device for latency, else one.",
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option("--link", metavar="TIER,TIER", help="Link that drifts; none: the first."),
    ] = None,
    left: Annotated[
        float, typer.Option("--left", help="Part of its bandwidth that is left, in (0, 1).")
    ] = 0.5,
    budget: Annotated[
        float, typer.Option("--budget", help="Profiling seconds of a run after the drift.")
    ] = 60.0,
    before: Annotated[
        float, typer.Option("--before", help="Most profiling seconds of planning before it.")
    ] = 1.0,
    after: Annotated[
        Path | None,
        typer.Option(
            "--after", help="Folder of a trace of the same pipeline in the world after the drift."
        ),
    ] = None,
    history: Annotated[
        int,
        typer.Option(
            "--history", help="Earlier queries that replanning is told of besides its own.", min=0
        ),
    ] = 0,
) -> None:
    """Let a link or the inputs drift; compare planning again with planning from nothing.

    Counts the queries whose plan the drift breaks while another one would do. Seconds are of
    profiling, up to the first plan that truly satisfies. Every query is in drift.csv.
    """
    study = DriftStudy(
        traces=tuple(trace),
        kind=kind,
        levels=tuple(slo.split(",")),
        seeds=seeds,
        first_seed=first_seed,
        infrastructure=None if infrastructure is None else read_infrastructure(infrastructure),
        link=None if link is None else _pair(link),
        left=left,
        budget_s=budget,
        before_s=before,
        history=history,
        after=after,
    )
    cells = summary(run(study, out))
    document: dict[str, object] = {
        "folder": str(out),
        "cells": [asdict(cell) for cell in cells],
    }
    screen.show(table(cells), document=document)


def _pair(link: str) -> tuple[str, str]:
    ends = link.split(",")
    if len(ends) != 2:
        raise InvalidInput.of("link", "must be two tiers, by a comma", link)
    return ends[0], ends[1]
