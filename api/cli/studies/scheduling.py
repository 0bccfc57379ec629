"""`circinus study ilp`, `dispatch`, `pool-change`, `live`, `unlike`: simulated and real."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated

from typer import Option

from circinus.api.cli.options import FirstSeed, numbers
from circinus.api.query_file import read_infrastructure
from circinus.api.text import tables
from circinus.api.text.screen import Screen
from circinus.deploy.methods import DEFAULT
from circinus.pipelines import checks
from circinus.pipelines.clock import ProcessorClock
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES
from circinus.scheduler.pool.search import Pool
from circinus.scheduler.problem import Objective
from circinus.scheduler.simulation.loads import ARRIVALS, MIXES, load_of
from circinus.scheduler.simulation.measurements import LatencyTable, parse_latencies
from circinus.studies.data import KAIROS, PRICES
from circinus.studies.dispatch import bounds as bounds_study
from circinus.studies.dispatch import live as live_study
from circinus.studies.dispatch import pool_change as pool_change_study
from circinus.studies.dispatch import study as dispatch_study
from circinus.studies.dispatch import unlike as unlike_study
from circinus.studies.report.charts import svg
from circinus.studies.report.tables import markdown
from circinus.studies.scheduling import gap, problems
from circinus.studies.scheduling.problems import Weights

_GOODPUT = Objective.GOODPUT
_OPTIMISED = ",".join(gap.POLICIES)
_MS = 1e3
_UNLIKE = ",".join(unlike_study.UnlikeStudy().policies)
_FIGURES = ("pool", "allowable_rps", "deviation_rps", "late_max_s")
_POOL_RULE = "must be [POLICY=]N,N,..."

Latency = Annotated[
    Path,
    Option(metavar="CSV", help="Measured latencies.", dir_okay=False, show_default="Kairos'"),
]
Prices = Annotated[
    Path,
    Option(
        metavar="CSV",
        help="Columns instance, usd_per_hour.",
        dir_okay=False,
        show_default="Kairos'",
    ),
]
_MIXES = f"{', '.join(MIXES)}, or a file with a size per line"
Model = Annotated[str, "Its name in the file."]
QosMs = Annotated[float, "Requests are due within."]
Out = Annotated[Path, Option(help="Folder of the results.", file_okay=False)]
Budget = Annotated[float, "USD per hour."]
Mix = Annotated[str, Option(metavar="NAME|FILE", help=f"Batch sizes: {_MIXES}.")]
Seeds = Annotated[int, Option(help="Number of seeds.", min=1)]
Requests = Annotated[int, Option(help="Requests per measurement.", min=1000)]
_ARRIVALS = f"{', '.join(ARRIVALS)}, or a file with seconds per line"


def ilp(
    screen: Screen,
    out: Annotated[Path, "Folder for ilp.csv, ilp.svg, ilp.html."],
    queries: Annotated[str, "Sizes of drawn problems, by commas."] = "10,50,200",
    plans: Annotated[int, Option(help="Plans of each query.", min=1)] = 10,
    tiers: Annotated[str, "Preset or YAML file with the tiers."] = "four-tier",
    seeds: Annotated[int, Option(help="Problems of each size.", min=1)] = 3,
    first_seed: Annotated[int, Option(help="The first of their seeds.", min=0)] = 0,
    policies: Annotated[str, f"By commas, among {', '.join(gap.POLICIES)}."] = _OPTIMISED,
    time_limit: Annotated[float, "Seconds for each integer program."] = 60.0,
    objective: Annotated[Objective, "Most goodput, or least cost of serving all."] = _GOODPUT,
    largest: Annotated[float, "Share of the largest item drawn."] = 1.0,
    weights: Annotated[Weights, "Whether queries differ in weight."] = Weights.UNLIKE,
    load: Annotated[
        float | None, "Least demand per capacity; sets the number of machines."
    ] = None,
    problem: Annotated[Path | None, "JSON file with a problem of your own."] = None,
    schedule_out: Annotated[Path | None, "JSON file for what was chosen."] = None,
) -> None:
    """Compare scheduling policies with the optimum, on drawn problems or on your own."""
    names = tuple(policies.split(","))
    question = gap.Question(policies=names, objective=objective, time_limit_s=time_limit)
    if problem is None:
        draw = problems.Draw(
            queries=numbers("queries", queries, "must be whole numbers, by commas"),
            plans=plans,
            tiers=read_infrastructure(tiers).tiers,
            seeds=seeds,
            first_seed=first_seed,
            largest=largest,
            weights=weights,
            load=load,
        )
        cases = problems.cases(draw, objective)
    else:
        own = problems.read_problem(problem)
        cases = (problems.ProblemCase(name=problem.stem, problem=own),)
    done, every = count(1), len(cases) * len(names)
    with screen.follow() as lines:

        def show(row: gap.GapRow) -> None:
            n = next(done)
            text = f"{n} of {every}: {row.policy} on {row.queries} queries"
            lines.update({"ilp": (str(n * 10 // every), text)})

        rows = gap.run(cases, question, out, schedule_out=schedule_out, observer=show)
    summary = gap.summary(rows)
    columns = ("Queries", "Policy", "Problems", "Proven", "Mean ratio", "Worst", "Served", "s")
    cells = (gap.cells(line)[: len(columns)] for line in summary)
    table = tables.table("Beside the bound", *columns, right=(0, 2, 3, 4, 5, 6, 7), rows=cells)
    screen.show(table, document={"out": out, "lines": summary})


def dispatch(
    screen: Screen,
    model: Model,
    qos_ms: QosMs,
    pool: Annotated[list[str], Option(metavar="[POLICY=]N,N,...", help="Instances of each type.")],
    out: Out,
    latency: Latency = KAIROS,
    policies: Annotated[str, "Names, joined by commas."] = ",".join(dispatch_study.POLICIES),
    seeds: Seeds = 5,
    requests: Annotated[int, Option(help="Requests per run.", min=100)] = 20_000,
    service: Annotated[str, "mean or sampled."] = "mean",
    seed: FirstSeed = 0,
    mix: Mix = "kairos",
    mix_after: Annotated[
        str | None, Option(metavar="NAME|FILE", help="The mix changes to it.")
    ] = None,
    change_at: Annotated[float, "After this share of the requests, in [0, 1]."] = 0.5,
    arrivals: Annotated[str, Option(metavar="NAME|FILE", help=f"Gaps: {_ARRIVALS}.")] = "poisson",
) -> None:
    """Compare dispatch policies: the largest rate with 99 % in time, and how late the late are.

    Writes dispatch.csv, dispatch.svg and dispatch.html. A --pool without a name holds for all
    policies that have none of their own. The CSV has the columns model, instance, batch, mean_ms
    and std_ms; the types of --pool are in the order of the file, the base type first.
    """
    names = tuple(policies.split(","))
    study = dispatch_study.DispatchStudy(
        table=_table_of(latency, model),
        qos_s=qos_ms / _MS,
        policies=names,
        pools=_pools(pool, names),
        seeds=seeds,
        requests=requests,
        first_seed=seed,
        service=service,
        load=load_of(mix, arrivals, after=mix_after, at=change_at),
    )
    rows = dispatch_study.run(study, out, ProcessorClock())
    (out / "dispatch.svg").write_text(svg(dispatch_study.picture(rows)))
    (out / "dispatch.html").write_text(dispatch_study.page(rows, requests))
    cells = dispatch_study.summary(rows)
    lines = [f"{'policy':<18}{'pool':<14}{'allowable, 1/s':>15}{'sd':>8}{'worst late, ms':>16}"]
    lines += [
        f"{cell.policy:<18}{cell.pool:<14}{cell.allowable_rps:>15.1f}{cell.deviation_rps:>8.1f}"
        f"{cell.late_max_s * _MS:>16.1f}"
        for cell in cells
    ]
    lines.append(f"written: {out}/dispatch.csv, .svg, .html")
    figures = {cell.policy: {name: getattr(cell, name) for name in _FIGURES} for cell in cells}
    screen.show("\n".join(lines), document={"folder": out, "policies": figures})


def pool_change(
    screen: Screen,
    model: Model,
    qos_ms: QosMs,
    out: Out,
    latency: Latency = KAIROS,
    prices: Prices = PRICES,
    budget: Budget = 2.5,
    mix: Mix = "kairos",
    mix_after: Annotated[
        str, Option(metavar="NAME|FILE", help="The mix changes to it.")
    ] = "gaussian",
    seeds: Seeds = 5,
    seed: FirstSeed = 0,
    requests: Requests = 20_000,
    evaluations: Annotated[int, Option(help="Pools that a scheme tries at most.", min=1)] = 20,
) -> None:
    """Change the mix of sizes under load: how good is the pool that is chosen anew?

    Writes pool-change.csv and pool-change.svg. Choices that try nothing stand beside schemes that
    try one pool after the other; rates are relative to the best pool's for the new mix.
    """
    table = _table_of(latency, model)
    study = pool_change_study.PoolChangeStudy(
        table=table,
        qos_s=qos_ms / _MS,
        prices=_prices(prices, table.kinds),
        budget_usd_per_hour=budget,
        before=load_of(mix),
        after=load_of(mix_after),
        seeds=seeds,
        first_seed=seed,
        requests=requests,
        evaluations=evaluations,
    )
    rows = pool_change_study.run(study, out)
    (out / "pool-change.svg").write_text(svg(pool_change_study.picture(rows)))
    lines = pool_change_study.lines_of(rows)
    screen.show(
        markdown(lines, pool_change_study.PoolChangeLine),
        document={"folder": out, "lines": lines},
    )


def bounds(
    screen: Screen,
    model: Model,
    qos_ms: QosMs,
    out: Out,
    latency: Latency = KAIROS,
    prices: Prices = PRICES,
    budget: Budget = 2.5,
    top: Annotated[int, Option(help="Pools, by their bounds.", min=1)] = 20,
    policies: Annotated[str, "Names, joined by commas."] = "plan_ahead,kairos,fcfs",
    mix: Mix = "kairos",
    service: Annotated[str, "mean or sampled."] = "mean",
    seeds: Seeds = 3,
    seed: FirstSeed = 0,
    requests: Requests = 20_000,
) -> None:
    """Measure the pools of a budget that Kairos' bound ranks first, under dispatch policies.

    Writes bounds.csv and bounds.svg. The base type alone, the first of the CSV, has rank 0.
    """
    table = _table_of(latency, model)
    checks.among("service", service, ("mean", "sampled"))
    study = bounds_study.BoundStudy(
        table=table,
        qos_s=qos_ms / _MS,
        prices=_prices(prices, table.kinds),
        budget_usd_per_hour=budget,
        top=top,
        policies=tuple(policies.split(",")),
        load=load_of(mix),
        seeds=seeds,
        first_seed=seed,
        requests=requests,
        sampled=service == "sampled",
    )
    rows = bounds_study.run(study, out)
    (out / "bounds.svg").write_text(svg(bounds_study.picture(rows)))
    cells = bounds_study.summary(rows)
    screen.show(markdown(cells, bounds_study.BoundCell), document={"folder": out, "cells": cells})


def live(
    screen: Screen,
    model: Model,
    qos_ms: QosMs,
    pool: Annotated[str, Option(metavar="N,N,...", help="Workers of each type.")],
    latency: Latency = KAIROS,
    seconds: Annotated[float, "Of the steady load."] = 180.0,
    overload: Annotated[float, "Seconds of overload."] = 60.0,
    killing: Annotated[float, "Seconds of the last phase."] = 30.0,
    limit: Annotated[int, "Most requests that wait."] = 128,
    seed: Annotated[int, Option(help="Of all draws.", min=0)] = 0,
    policy: Annotated[str, f"Dispatches; of {', '.join(DISPATCH_POLICIES)}."] = DEFAULT.dispatch,
) -> None:
    """Run real worker processes that emulate measured latencies, and simulate the same load.

    A line per phase: what the dispatcher adds to a call; three minutes at 80 % of the simulated
    allowable rate beside the simulator; overload and recovery; two workers killed under load.
    """
    chosen = live_study.LiveStudy(
        table=_table_of(latency, model),
        qos_s=qos_ms / _MS,
        pool=numbers("--pool", pool, _POOL_RULE),
        steady_s=seconds,
        overload_s=overload,
        killing_s=killing,
        limit=limit,
        seed=seed,
        policy=policy,
    )
    phases: dict[str, object] = {}
    live_study.run(chosen, partial(_add_phase, screen, phases))
    screen.show(json.dumps(phases, indent=2), document=phases)


def _add_phase(
    screen: Screen, phases: dict[str, object], phase: str, figures: dict[str, object]
) -> None:
    phases[phase] = figures
    screen.note(f"{phase}: {json.dumps(figures)}")


def unlike(
    screen: Screen,
    policy: Annotated[
        list[str] | None, Option(help="Dispatches; repeatable.", show_default=_UNLIKE)
    ] = None,
    seeds: Seeds = 5,
    seed: FirstSeed = 0,
    seconds: Annotated[float, "Of each load."] = 10.0,
) -> None:
    """Serve two sizes of request on fast and slow workers, up to three times what they can.

    A line per load of 0.8, 1, 1.2 and 3 times the rate with 99 % in time in the simulator: live
    beside simulated, goodput in seconds of work on the slow type. Workers only sleep, but are
    real: a busy machine changes the figures, and its load average is printed with them.
    """
    chosen = unlike_study.UnlikeStudy(
        policies=tuple(policy or _UNLIKE.split(",")),
        seeds=seeds,
        first_seed=seed,
        seconds=seconds,
    )
    phases: dict[str, object] = {}
    observer = partial(_add_phase, screen, phases)
    lines = unlike_study.lines_of(unlike_study.run(chosen, observer))
    screen.show(
        markdown(lines, unlike_study.UnlikeLine), document={"phases": phases, "lines": lines}
    )


def _table_of(latency: Path, model: str) -> LatencyTable:
    try:
        with latency.open(newline="") as file:
            return parse_latencies(file, model)
    except (OSError, UnicodeDecodeError) as error:
        rule = "must be a file that can be read"
        raise InvalidInput.of("--latency", rule, str(error)) from error


def _prices(file: Path, types: Sequence[str]) -> tuple[float, ...]:
    try:
        with file.open(newline="") as lines:
            prices = {row["instance"]: float(row["usd_per_hour"]) for row in csv.DictReader(lines)}
    except (OSError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        rule = "must be a file with the columns instance and usd_per_hour"
        raise InvalidInput.of("--prices", rule, str(error)) from error
    missing = [name for name in types if name not in prices]
    if missing:
        raise InvalidInput.of("--prices", "must tell the price of every type, missing", missing)
    return tuple(prices[name] for name in types)


def _pools(words: list[str], names: tuple[str, ...]) -> dict[str, Pool]:
    pools: dict[str, Pool] = {}
    for word in words:
        name, _, counts = word.rpartition("=")
        pools[name] = numbers("--pool", counts, _POOL_RULE)
        if name and name not in names:
            raise InvalidInput.of("--pool", f"must name one of {', '.join(names)}", word)
    missing = [name for name in names if pools.keys().isdisjoint((name, ""))]
    if missing:
        raise InvalidInput.of("--pool", "must be given for every policy, missing", missing)
    return {name: pools.get(name, pools.get("", ())) for name in names}
