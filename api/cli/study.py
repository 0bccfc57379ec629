"""The group `circinus study`: measurements for offline comparisons."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
import yaml

from api.cli.command import command
from api.cli.screen import Screen
from api.cli.study_dispatch import dispatch
from api.cli.study_drift import drift
from api.cli.study_ilp import ilp
from api.cli.study_live_dispatch import live_dispatch
from api.cli.study_trace import stall, trace
from api.rendering.live import Follow
from pipelines.errors import InvalidInput
from pipelines.infrastructure import Infrastructure
from pipelines.infrastructure_file import infrastructure_from_dict
from pipelines.presets import PRESETS
from pipelines.slo import LatencyStatistic
from studies import profiling as profiling_study
from studies.planning import ONE_TIER, PlanningStudy, table
from studies.planning import Progress as PlanningProgress
from studies.planning import run as run_planning
from studies.planning import summary as summary_of
from studies.planning_calibration import Calibration, calibration
from studies.planning_contestants import ADAPTERS
from studies.planning_contestants import names as contestants
from studies.planning_picture import pictures
from studies.profiling_report import summary
from studies.tables import markdown

_TENTHS = 10


def group() -> typer.Typer:
    """Give the group of studies."""
    made = typer.Typer()
    command(made, "trace")(trace)
    command(made, "stall")(stall)
    command(made, "ilp")(ilp)
    command(made, "dispatch")(dispatch)
    command(made, "live")(live_dispatch)
    command(made, "profiling")(profiling)
    command(made, "planning")(planning)
    command(made, "drift")(drift)
    return made


def profiling(
    screen: Screen,
    traces: Annotated[
        list[Path], typer.Option("--trace", help="Folder of a trace; may be repeated.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the table, picture and page.")],
    seeds: Annotated[
        int, typer.Option("--seeds", help="Each adds 2,000 profiles to every cell.", min=1)
    ] = 1,
) -> None:
    """Compare stopping rules and orders of inputs on replayed traces and synthetic scores.

    Prints, per rule and order, means over the distances of the accuracy SLO from the true mean,
    and the largest part of wrong verdicts in any cell. Every cell is in profiling.csv.
    """
    with Follow(screen.err) as lines:

        def show(row: profiling_study.Row) -> None:
            if not screen.as_json:
                line = f"{row.sampling} order, SLO at {row.slo_distance:+g} of the mean"
                lines.update({row.trace: (row.sampling, line)})

        found = profiling_study.run(traces, seeds, out, observer=show)
    document: dict[str, object] = {
        "folder": str(out),
        "cells": [profiling_study.as_document(row) for row in found.rows],
        "cache_ratios": dict(found.cache_ratios),
    }
    screen.show(_comparison(found, out), document=document)


def _comparison(found: profiling_study.Comparison, out: Path) -> str:
    head = f"{'trace':24} {'rule':14} {'sampling':10} {'inputs':>7} {'seconds':>9} {'wrong':>7}"
    table = [
        f"{trace:24} {rule:14} {sampling:10} {inputs:7.1f} {seconds:9.4g} {wrong:7.2%}"
        for trace, rule, sampling, inputs, seconds, wrong in summary(found.rows)
    ]
    ratios = dict.fromkeys((row.trace, row.sampling, row.variance_ratio) for row in found.rows)
    variances = [
        f"{trace}: variance of the estimate, stratified over random order: {ratio:.3f}"
        for trace, sampling, ratio in ratios
        if sampling == "stratified"
    ]
    caches = [
        f"{trace}: seconds of the full grid with the prefix cache over those without: {ratio:.3f}"
        for trace, ratio in found.cache_ratios.items()
    ]
    return "\n".join((head, *table, *variances, *caches, f"every cell: {out / 'profiling.csv'}"))


def planning(
    screen: Screen,
    trace: Annotated[list[Path], typer.Option("--trace", help="Folder of a trace; repeatable.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of planning.csv and pictures.")],
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            help=f"Names, separated by commas: {', '.join(contestants())}; with the extra studies "
            f"{', '.join(ADAPTERS)}. NAME_tuned@30, botorch@30: on 30 inputs instead of 20.",
        ),
    ] = "default,published,vulcan,videostorm,random",
    slo: Annotated[
        str, typer.Option("--slo", help="Of easy, medium, hard, separated by commas.")
    ] = "easy,medium,hard",
    seeds: Annotated[int, typer.Option("--seeds", help="Per Pareto point.", min=1)] = 20,
    first_seed: Annotated[int, typer.Option("--first-seed", help="The first seed.", min=0)] = 0,
    points: Annotated[
        int | None,
        typer.Option("--points", help="Most Pareto points, spread evenly; none: all.", min=2),
    ] = None,
    configurations: Annotated[
        int | None,
        typer.Option("--configurations", help="Most of a run; none: any number.", min=1),
    ] = None,
    infrastructure: Annotated[
        str | None, typer.Option("--infrastructure", help="Preset or file; none: one tier.")
    ] = None,
    budget: Annotated[
        float, typer.Option("--budget", help="Profiling seconds of a run.", min=0.001)
    ] = 60.0,
    first_only: Annotated[
        bool, typer.Option("--first-only", help="End a run with its first true plan.")
    ] = False,
    statistic: Annotated[
        LatencyStatistic, typer.Option("--statistic", help="Of latency.")
    ] = LatencyStatistic.MEAN,
    history: Annotated[
        int,
        typer.Option(
            "--history", help="Earlier queries on half of the inputs; runs on the rest.", min=0
        ),
    ] = 0,
    workers: Annotated[
        int, typer.Option("--workers", help="Measurements made at once.", min=1)
    ] = 1,
) -> None:
    """Replay planning on traces; write a row per run, and pictures."""
    study = PlanningStudy(
        traces=tuple(trace),
        methods=tuple(methods.split(",")),
        levels=tuple(slo.split(",")),
        seeds=seeds,
        first_seed=first_seed,
        infrastructure=_infrastructure(infrastructure),
        budget_s=budget,
        first_only=first_only,
        statistic=statistic,
        history=history,
        workers=workers,
        points=points,
        configurations=configurations,
    )
    with Follow(screen.err) as lines:

        def show(progress: PlanningProgress) -> None:
            if not screen.as_json:
                row, done = progress.row, progress.done
                told = f"{done} of {progress.runs} runs, the last of {row.profiling_seconds:.3g} s"
                tenth = str(done * _TENTHS // progress.runs)
                lines.update({f"{row.trace} {row.slo} {row.method}": (tenth, told)})

        rows = run_planning(study, out, observer=show)
    for name, svg in pictures(rows).items():
        (out / name).write_text(svg, encoding="utf-8")
    cells = summary_of(rows)
    shown = calibration(rows)
    document: dict[str, object] = {
        "cells": [asdict(cell) for cell in cells],
        "calibration": [asdict(one) for one in shown],
    }
    screen.show(f"{table(cells)}\n\n{markdown(shown, Calibration)}", document=document)


def _infrastructure(named: str | None) -> Infrastructure:
    if named is None:
        return ONE_TIER
    if named in PRESETS:
        return PRESETS[named]
    try:
        document = yaml.safe_load(Path(named).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        rule = f"must be a readable file or one of {', '.join(PRESETS)} ({error})"
        raise InvalidInput.of("infrastructure", rule, named) from error
    return infrastructure_from_dict(document)
