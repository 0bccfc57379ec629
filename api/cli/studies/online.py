"""`circinus study goodput` and `computing`: planning and scheduling as queries come and go."""

from __future__ import annotations

from os import cpu_count
from pathlib import Path
from typing import Annotated

from typer import Option

from circinus.api.cli.options import FirstSeed, decimals, numbers
from circinus.api.query_file import read_infrastructure
from circinus.api.text.screen import Screen
from circinus.pipelines import checks
from circinus.scheduler.problem import Objective
from circinus.studies.data import TRACES, trace_folder
from circinus.studies.online import report
from circinus.studies.online.arrivals import ArrivalKind, read_times
from circinus.studies.online.computing import table
from circinus.studies.online.goodput import GoodputRow, run
from circinus.studies.online.planned import ComputingRow, computing_rows
from circinus.studies.online.study import GoodputStudy
from circinus.studies.report.charts import svg
from circinus.studies.report.tables import markdown, written

_METHODS = "default,published,vulcan,videostorm,oracle"

Traces = Annotated[
    list[Path],
    Option(
        "--trace",
        metavar="NAME|FOLDER",
        parser=trace_folder,
        help=f"A trace: {', '.join(TRACES)}, or a folder of your own; repeatable.",
    ),
]


def goodput(
    screen: Screen,
    trace: Traces,
    out: Annotated[
        Path, Option(help="Folder of goodput.csv, pictures and planned queries.", file_okay=False)
    ],
    methods: Annotated[str, "METHOD or METHOD/POLICY, by commas; oracle knows all."] = _METHODS,
    infrastructure: Annotated[str, "Preset or file."] = "paper-large",
    response: Annotated[str, "Seconds within which queries are planned, by commas."] = "5,15",
    slo: Annotated[str, "Levels of SLOs, by commas, as in `study planning`."] = "medium",
    load: Annotated[str, "Needs of arrivals over machines, by commas."] = "1",
    history: Annotated[str, "Earlier queries of each, by commas."] = "0",
    seeds: Annotated[int, Option(help="Windows of each setting.", min=1)] = 5,
    first_seed: FirstSeed = 0,
    queries: Annotated[int, Option(help="Unlike queries of a seed.", min=1)] = 40,
    arrivals: Annotated[str, "poisson, bursty, or a file with a time in seconds a line."] = (
        ArrivalKind.POISSON
    ),
    objective: Annotated[Objective, "Goodput, or cost of serving all on rented machines."] = (
        Objective.GOODPUT
    ),
    migration_price: Annotated[
        float | None, Option(help="Of moving what runs, as in the service; none: nothing moves.")
    ] = None,
    window: Annotated[float, "Simulated minutes."] = 60.0,
    stay: Annotated[float, "Mean minutes that a query stays."] = 15.0,
    ilp_every: Annotated[
        int | None, Option(help="Minutes between integer programs; none: no one.", min=1)
    ] = None,
    workers: Annotated[int | None, Option(help="Processes; none: one a core.", min=1)] = None,
) -> None:
    """Let queries arrive, be planned, scheduled, and leave; count those that truly get their SLO.

    Simulated time on replayed traces (Circinus 6.2). Run again with the same folder, it takes the
    queries that are planned from there.
    """
    kinds = {kind.value: kind for kind in ArrivalKind}
    rule = f"must be {', '.join(kinds)}, or a file"
    known = arrivals in kinds or Path(arrivals).exists()
    checks.require(known, "--arrivals", rule, arrivals)
    study = GoodputStudy(
        traces=tuple(trace),
        methods=tuple(methods.split(",")),
        infrastructure=read_infrastructure(infrastructure),
        response_s=decimals("response", response),
        levels=tuple(slo.split(",")),
        loads=decimals("load", load),
        history=numbers("history", history, "must be whole numbers, by commas"),
        seeds=seeds,
        first_seed=first_seed,
        queries=queries,
        arrivals=kinds.get(arrivals, ArrivalKind.POISSON),
        times=None if arrivals in kinds else read_times(Path(arrivals)),
        objective=objective,
        migration_price=migration_price,
        window_s=60.0 * window,
        stay_s=60.0 * stay,
        ilp_every=ilp_every,
    )
    with screen.follow() as lines:

        def show(row: GoodputRow) -> None:
            text = f"{row.goodput:.4g} of {row.live:.4g} queries count"
            lines.update({f"{row.trace} {row.method} {row.response_s:g} s": (str(row.seed), text)})

        rows = run(study, out, workers=workers or cpu_count() or 1, observer=show)
    for name, figure in report.pictures(rows).items():
        (out / name).write_text(svg(figure), encoding="utf-8")
    cells, headlines = report.summary(rows), report.headlines(rows)
    tables = markdown(cells, report.GoodputCell), markdown(headlines, report.Headline)
    (out / "goodput.md").write_text("\n\n".join(tables) + "\n", encoding="utf-8")
    document = {"folder": out, "cells": cells, "headlines": headlines}
    screen.show("\n\n".join(tables), document=document)


def computing(
    screen: Screen,
    trace: Traces,
    out: Annotated[Path, Option(help="Folder of computing.csv.", file_okay=False)],
    methods: Annotated[
        str | None, "By commas, as in `study planning`; none: those of the table."
    ] = None,
    infrastructure: Annotated[str, "Preset or file."] = "paper-large",
    queries: Annotated[int, Option(help="That are planned.", min=1)] = 4,
) -> None:
    """Measure what methods compute between two measurements, for `goodput` to replay.

    Nothing else should run beside it. The file takes the place of studies/data/computing.csv.
    """
    site = read_infrastructure(infrastructure)
    names = methods.split(",") if methods else list(dict.fromkeys(name for name, _ in table()))
    made = computing_rows(trace, names, site, queries)
    rows = written(made, ComputingRow, out / "computing.csv")
    screen.show(markdown(rows, ComputingRow), document={"folder": out, "rows": rows})
