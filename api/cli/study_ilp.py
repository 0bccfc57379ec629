"""`circinus study ilp`: scheduling policies beside the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from circinus.api.cli.rendering.tables import table
from circinus.api.cli.screen import Follow, Screen
from circinus.api.query_file import read_infrastructure
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.ilp.model import Objective
from circinus.studies.report.tables import document
from circinus.studies.scheduling.gap import POLICIES, Question, run
from circinus.studies.scheduling.gap_report import GapRow, Line, cells, summary
from circinus.studies.scheduling.generator import Weights
from circinus.studies.scheduling.problems import Draw, ProblemCase, cases, given, read_problem


def ilp(
    screen: Screen,
    out: Annotated[Path, typer.Option(help="Folder for ilp.csv, ilp.svg, ilp.html.")],
    queries: Annotated[
        str, typer.Option(help="Sizes of drawn problems, by commas.")
    ] = "10,50,200",
    plans: Annotated[int, typer.Option(help="Plans of each query.", min=1)] = 10,
    tiers: Annotated[str, typer.Option(help="Preset or YAML file with the tiers.")] = "four-tier",
    seeds: Annotated[int, typer.Option(help="Problems of each size.", min=1)] = 3,
    first_seed: Annotated[int, typer.Option(help="The first of their seeds.", min=0)] = 0,
    policies: Annotated[
        str, typer.Option(help=f"By commas, among {', '.join(POLICIES)}.")
    ] = ",".join(POLICIES),
    time_limit: Annotated[float, typer.Option(help="Seconds for each integer program.")] = 60.0,
    objective: Annotated[
        Objective, typer.Option(help="Most goodput, or least cost of serving all.")
    ] = Objective.GOODPUT,
    largest: Annotated[float, typer.Option(help="Share of the largest item drawn.")] = 1.0,
    weights: Annotated[
        Weights, typer.Option(help="Whether queries differ in weight.")
    ] = Weights.UNLIKE,
    load: Annotated[
        float | None, typer.Option(help="Least demand per capacity; sets the number of machines.")
    ] = None,
    problem: Annotated[
        Path | None, typer.Option(help="JSON file with a problem of your own.")
    ] = None,
    schedule_out: Annotated[
        Path | None, typer.Option(help="JSON file for what was chosen.")
    ] = None,
) -> None:
    """Compare scheduling policies with the optimum, on drawn problems or on your own."""
    question = Question(
        policies=tuple(policies.split(",")),
        objective=objective,
        time_limit_s=time_limit,
    )
    if problem is not None:
        problems: tuple[ProblemCase, ...] = (given(read_problem(problem), problem.stem),)
    else:
        draw = Draw(
            queries=_sizes(queries),
            plans=plans,
            tiers=read_infrastructure(tiers).tiers,
            seeds=seeds,
            first_seed=first_seed,
            largest=largest,
            weights=weights,
            load=load,
        )
        problems = cases(draw, question.objective)
    rows = _follow(screen, problems, question, out, schedule_out)
    lines = summary(rows)
    told: dict[str, object] = {"out": str(out), "lines": [document(line) for line in lines]}
    screen.show(_table(lines), document=told)


def _follow(
    screen: Screen,
    problems: tuple[ProblemCase, ...],
    question: Question,
    out: Path,
    schedule_out: Path | None,
) -> tuple[GapRow, ...]:
    done = 0
    every = len(problems) * len(question.policies)
    with Follow(screen.err) as lines:

        def show(row: GapRow) -> None:
            nonlocal done
            done += 1
            if not screen.as_json:
                text = f"{done} of {every}: {row.policy} on {row.queries} queries"
                lines.update({"ilp": (str(done * 10 // every), text)})

        return run(problems, question, out, schedule_out=schedule_out, observer=show)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InvalidInput.of("queries", "must be whole numbers, by commas", text) from error


def _table(lines: Sequence[Line]) -> RenderableType:
    columns = ("Queries", "Policy", "Problems", "Proven", "Mean ratio", "Worst", "Served", "s")
    made = table("Beside the bound", *columns, right=(0, 2, 3, 4, 5, 6, 7))
    for line in lines:
        made.add_row(*cells(line)[: len(columns)])
    return made
