"""`circinus study planning` and `circinus study drift`: planning, replayed on traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from circinus.api.cli.screen import Follow, Screen
from circinus.api.query_file import read_infrastructure
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.slo import LatencyStatistic
from circinus.studies.planning import drift as drift_study
from circinus.studies.planning import report, study
from circinus.studies.planning.contestants import ADAPTERS, names
from circinus.studies.report.tables import document, markdown

_TENTHS = 10

Traces = Annotated[list[Path], typer.Option("--trace", help="Folder of a trace; repeatable.")]
Levels = Annotated[str, typer.Option("--slo", help="Of easy, medium, hard, separated by commas.")]
FirstSeed = Annotated[int, typer.Option("--first-seed", help="The first seed.", min=0)]


def planning(
    screen: Screen,
    trace: Traces,
    out: Annotated[Path, typer.Option(help="Folder of planning.csv and pictures.")],
    methods: Annotated[
        str,
        typer.Option(
            help=f"Names, separated by commas: {', '.join(names())}; with the extra studies "
            f"{', '.join(ADAPTERS)}. NAME_tuned@30, botorch@30: on 30 inputs instead of 20.",
        ),
    ] = "default,published,vulcan,videostorm,random",
    slo: Levels = "easy,medium,hard",
    seeds: Annotated[int, typer.Option(help="Per Pareto point.", min=1)] = 20,
    first_seed: FirstSeed = 0,
    points: Annotated[
        int | None, typer.Option(help="Most Pareto points, spread evenly; none: all.", min=2)
    ] = None,
    configurations: Annotated[
        int | None, typer.Option(help="Most of a run; none: any number.", min=1)
    ] = None,
    infrastructure: Annotated[
        str | None, typer.Option(help="Preset or file; none: one tier.")
    ] = None,
    budget: Annotated[float, typer.Option(help="Profiling seconds of a run.", min=0.001)] = 60.0,
    first_only: Annotated[
        bool, typer.Option("--first-only", help="End a run with its first true plan.")
    ] = False,
    statistic: Annotated[
        LatencyStatistic, typer.Option(help="Of latency.")
    ] = LatencyStatistic.MEAN,
    history: Annotated[
        int, typer.Option(help="Earlier queries on half of the inputs; runs on the rest.", min=0)
    ] = 0,
    workers: Annotated[int, typer.Option(help="Measurements made at once.", min=1)] = 1,
) -> None:
    """Replay planning on traces; write a row per run, and pictures."""
    asked = study.PlanningStudy(
        traces=tuple(trace),
        methods=tuple(methods.split(",")),
        levels=tuple(slo.split(",")),
        seeds=seeds,
        first_seed=first_seed,
        infrastructure=read_infrastructure(infrastructure) if infrastructure else study.ONE_TIER,
        budget_s=budget,
        first_only=first_only,
        statistic=statistic,
        history=history,
        workers=workers,
        points=points,
        configurations=configurations,
    )
    with Follow(screen.err) as lines:

        def show(progress: study.StudyProgress) -> None:
            if not screen.as_json:
                row, done = progress.row, progress.done
                told = f"{done} of {progress.runs} runs, the last of {row.profiling_seconds:.3g} s"
                tenth = str(done * _TENTHS // progress.runs)
                lines.update({f"{row.trace} {row.slo} {row.method}": (tenth, told)})

        rows = study.run(asked, out, observer=show)
    for name, svg in report.pictures(rows).items():
        (out / name).write_text(svg, encoding="utf-8")
    cells, shown = report.summary(rows), report.coverage(rows)
    tables = markdown(cells, report.PlanningCell), markdown(shown, report.Coverage)
    told = {"cells": [*map(document, cells)], "calibration": [*map(document, shown)]}
    screen.show("\n\n".join(tables), document={**told})


def drift(
    screen: Screen,
    trace: Traces,
    kind: Annotated[drift_study.DriftKind, typer.Option("--drift", help="What drifts.")],
    out: Annotated[Path, typer.Option(help="Folder of drift.csv.", file_okay=False)],
    slo: Levels = "medium",
    seeds: Annotated[int, typer.Option(help="Per SLO.", min=1)] = 3,
    first_seed: FirstSeed = 0,
    infrastructure: Annotated[
        str | None,
        typer.Option(
            help="Preset or file; none: three tiers with a weak device for latency, else one."
        ),
    ] = None,
    link: Annotated[
        str | None, typer.Option(metavar="TIER,TIER", help="Link that drifts; none: the first.")
    ] = None,
    left: Annotated[
        float, typer.Option(help="Part of its bandwidth that is left, in (0, 1).")
    ] = 0.5,
    budget: Annotated[
        float, typer.Option(help="Profiling seconds of a run after the drift.")
    ] = 60.0,
    before: Annotated[
        float, typer.Option(help="Most profiling seconds of planning before it.")
    ] = 1.0,
    after: Annotated[
        Path | None,
        typer.Option(help="Folder of a trace of the same pipeline in the world after the drift."),
    ] = None,
    history: Annotated[
        int,
        typer.Option(help="Earlier queries that replanning is told of besides its own.", min=0),
    ] = 0,
) -> None:
    """Let a link or the inputs drift; compare planning again with planning from nothing.

    Counts the queries whose plan the drift breaks while another one would do. Seconds are of
    profiling, up to the first plan that truly satisfies. Every query is in drift.csv.
    """
    asked = drift_study.DriftStudy(
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
    cells = drift_study.summary(drift_study.run(asked, out))
    told = {"folder": str(out), "cells": [*map(document, cells)]}
    screen.show(markdown(cells, drift_study.DriftCell), document={**told})


def _pair(link: str) -> tuple[str, str]:
    ends = link.split(",")
    if len(ends) != 2:
        raise InvalidInput.of("link", "must be two tiers, by a comma", link)
    return ends[0], ends[1]
