"""`circinus study ilp`: scheduling policies beside the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from api.cli.screen import Screen
from api.query_file import read_infrastructure
from api.rendering.live import Follow
from api.rendering.tables import table
from pipelines.errors import InvalidInput
from scheduler.generator import Weights
from scheduler.ilp import Objective
from studies.ilp_gap import (
    POLICIES,
    Case,
    Draw,
    Question,
    Row,
    cases,
    given,
    run,
)
from studies.ilp_gap_summary import Line, summary
from studies.problem_file import read_problem


def ilp(
    screen: Screen,
    out: Annotated[Path, typer.Option("--out", help="Folder for ilp.csv, ilp.svg, ilp.html.")],
    queries: Annotated[
        str, typer.Option("--queries", help="Sizes of drawn problems, by commas.")
    ] = "10,50,200",
    plans: Annotated[int, typer.Option("--plans", help="Plans of each query.", min=1)] = 10,
    tiers: Annotated[
        str, typer.Option("--tiers", help="Preset or YAML file with the tiers.")
    ] = "four-tier",
    seeds: Annotated[int, typer.Option("--seeds", help="Problems of each size.", min=1)] = 3,
    first_seed: Annotated[
        int, typer.Option("--first-seed", help="The first of their seeds.", min=0)
    ] = 0,
    policies: Annotated[
        str, typer.Option("--policies", help=f"By commas, among {', '.join(POLICIES)}.")
    ] = ",".join(POLICIES),
    time_limit: Annotated[
        float, typer.Option("--time-limit", help="Seconds for each integer program.")
    ] = 60.0,
    objective: Annotated[
        Objective, typer.Option("--objective", help="Most goodput, or least cost of serving all.")
    ] = Objective.GOODPUT,
    largest: Annotated[
        float, typer.Option("--largest", help="Share of the largest item drawn.")
    ] = 1.0,
    weights: Annotated[
        Weights, typer.Option("--weights", help="Whether queries differ in weight.")
    ] = Weights.UNLIKE,
    load: Annotated[
        float | None,
        typer.Option("--load", help="Least demand per capacity; sets the number of machines."),
    ] = None,
    problem: Annotated[
        Path | None, typer.Option("--problem", help="JSON file with a problem of your own.")
    ] = None,
    schedule_out: Annotated[
        Path | None, typer.Option("--schedule-out", help="JSON file for what was chosen.")
    ] = None,
) -> None:
    """Compare scheduling policies with the optimum, on drawn problems or on your own."""
    question = Question(
        policies=tuple(policies.split(",")),
        objective=objective,
        time_limit_s=time_limit,
    )
    if problem is not None:
        problems: tuple[Case, ...] = (given(read_problem(problem), problem.stem),)
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
    document: dict[str, object] = {"out": str(out), "lines": [_document(line) for line in lines]}
    screen.show(_table(lines), document=document)


def _follow(
    screen: Screen,
    problems: tuple[Case, ...],
    question: Question,
    out: Path,
    schedule_out: Path | None,
) -> tuple[Row, ...]:
    done = 0
    every = len(problems) * len(question.policies)
    with Follow(screen.err) as lines:

        def show(row: Row) -> None:
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


def _document(line: Line) -> dict[str, object]:
    return {
        "policy": line.policy,
        "queries": line.queries,
        "problems": line.problems,
        "proven": line.proven,
        "mean_ratio": None if isnan(line.mean) else line.mean,
        "worst_ratio": None if isnan(line.worst) else line.worst,
        "served": line.served,
        "seconds": line.seconds,
        "cpu_seconds": line.cpu_seconds,
    }


def _table(lines: Sequence[Line]) -> RenderableType:
    columns = ("Queries", "Policy", "Problems", "Proven", "Mean ratio", "Worst", "Served", "s")
    made = table("Beside the bound", *columns, right=(0, 2, 3, 4, 5, 6, 7))
    for line in lines:
        made.add_row(
            str(line.queries),
            line.policy,
            str(line.problems),
            str(line.proven),
            f"{line.mean:.4f}",
            f"{line.worst:.4f}",
            f"{line.served:.1f}",
            f"{line.seconds:.3f}",
        )
    return made
