"""The group `circinus study`: traces, and planning and profiling replayed on them."""

from __future__ import annotations

from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Annotated

import typer
from threadpoolctl import threadpool_limits
from typer import Argument, Option

from circinus.api.bootstrap.execution import opened_executor
from circinus.api.bootstrap.registry import pipeline_here, reference_here
from circinus.api.cli.command import command
from circinus.api.cli.options import FirstSeed, decimals
from circinus.api.cli.studies.everything import all_
from circinus.api.cli.studies.live_drift import live_drift
from circinus.api.cli.studies.online import Traces, computing, goodput
from circinus.api.cli.studies.pool import pool
from circinus.api.cli.studies.routing import routing
from circinus.api.cli.studies.scheduling import bounds, dispatch, ilp, live, pool_change, unlike
from circinus.api.query_file import load_data, read_infrastructure
from circinus.api.schemas.query import DataSource
from circinus.api.settings import Settings
from circinus.api.text import formats
from circinus.api.text.screen import Screen
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.datasets import LARGEST_DATASET
from circinus.pipelines.io.trace import load_trace, save_trace
from circinus.pipelines.model.query import PlanningLimits
from circinus.pipelines.model.slo import HoldsFor, LatencyStatistic
from circinus.studies.planning import drift as drift_study
from circinus.studies.planning import fresh as fresh_study
from circinus.studies.planning import report
from circinus.studies.planning import study as planning_study
from circinus.studies.planning.methods import ADAPTERS, names
from circinus.studies.profiling import study as profiling_study
from circinus.studies.report.charts import svg
from circinus.studies.report.tables import markdown
from circinus.studies.trace import front as trace_front
from circinus.studies.trace import stalling
from circinus.studies.trace.study import TraceProgress, TraceSummary, run

_STALLS = stalling.Stalls()
Levels = Annotated[
    str,
    "Of easy, medium, hard, separated by commas; hard-medium: accuracy hard, latency medium.",
]
_METHODS = (
    f"Names, separated by commas: {', '.join(names())}; with the extra studies "
    f"{', '.join(ADAPTERS)}. NAME_tuned@30, botorch@30: on 30 inputs instead of 20."
)


def group() -> typer.Typer:
    """Return the group of studies."""
    made = typer.Typer()
    serving = (ilp, dispatch, live, unlike, pool, pool_change, bounds, routing)
    online = (goodput, computing)
    for study in (
        trace,
        stall,
        *serving,
        profiling,
        planning,
        *online,
        drift,
        live_drift,
        fresh,
        all_,
    ):
        command(made, study)
    return made


def trace(
    screen: Screen,
    pipeline: Annotated[
        str, Argument(metavar="PIPELINE", help="Registered name or module:attribute.")
    ],
    inputs: Annotated[int, Option(help="Number of examples.", min=1, max=LARGEST_DATASET)],
    out: Annotated[Path, "Folder of the trace."],
    seed: Annotated[int, Option(help="Seed of the examples.", min=0)] = 0,
    overwrite: Annotated[bool, "Replace a trace that is there."] = False,
) -> None:
    """Measure every configuration on every example and write the trace.

    An interrupted measurement resumes where it was when it is started again. Beside the trace
    lie `pareto.svg` and `pareto.md`: latency and score of all configurations, and the best ones.
    """
    loaded = pipeline_here(pipeline)
    source = DataSource(examples=inputs, seed=seed)
    dataset = load_data(source, loaded, base=Path.cwd())
    with screen.follow() as lines:

        def show(progress: TraceProgress) -> None:
            tenth = progress.measured * 10 // progress.pairs
            lines.update({pipeline: (str(tenth), _progress_line(progress))})

        summary = run(loaded, dataset, out, overwrite=overwrite, observer=show)
    tradeoff = trace_front.tradeoff(load_trace(out))
    (out / "pareto.svg").write_text(svg(trace_front.picture(tradeoff)), encoding="utf-8")
    (out / "pareto.md").write_text(trace_front.table(tradeoff) + "\n", encoding="utf-8")
    document = asdict(summary) | {
        "accuracy_span": tradeoff.accuracy_span,
        "latency_ratio": tradeoff.latency_ratio,
        "undominated": len(tradeoff.front),
    }
    spans = (
        f"  mean scores span {tradeoff.accuracy_span:.3f}, mean latencies a factor of "
        f"{tradeoff.latency_ratio:.3g}; "
        f"nobody dominates {len(tradeoff.front)} configurations: pareto.md"
    )
    screen.show(_summary(summary), spans, document=document)


def stall(
    screen: Screen,
    trace: Annotated[Path, "Folder of a trace."],
    out: Annotated[Path, "Folder of the new one."],
    every_s: Annotated[float, "Mean seconds of running between two stalls."] = _STALLS.every_s,
    stall_s: Annotated[float, "Mean seconds of a stall."] = _STALLS.stall_s,
    seed: Annotated[int, Option(help="Of where they fall.", min=0)] = 0,
) -> None:
    """Write a trace as measured by a machine that stalls at intervals.

    Stalls occur at random while operators run; each run that meets one takes so much longer.
    """
    there = (out / "trace.npz").exists()
    checks.require(not there, "out", "must not hold a trace yet", str(out))
    before = load_trace(trace)
    stalls = stalling.Stalls(every_s=every_s, stall_s=stall_s, seed=seed)
    after = stalling.stalled(before, stalls)
    save_trace(after, out)
    hit = float((after.latency_s > before.latency_s).any(axis=1).mean())
    screen.show(
        f"trace of {after.graph.name}: {out}; stalls fall on {hit:.2%} of its measurements",
        document={"folder": out, "pipeline": after.graph.name, "hit": hit},
    )


def profiling(
    screen: Screen,
    trace: Traces,
    out: Annotated[Path, "Folder of the table, picture and page."],
    seeds: Annotated[int, Option(help="Each adds 2,000 profiles to every cell.", min=1)] = 1,
) -> None:
    """Compare stopping rules and orders of inputs on replayed traces and synthetic scores.

    Prints, per rule and order, means over the distances of the accuracy SLO from the true mean,
    and the largest part of wrong verdicts in any cell. Every cell is in profiling.csv.
    """
    with screen.follow() as lines:

        def show(row: profiling_study.ProfilingRow) -> None:
            line = f"{row.sampling} order, SLO at {row.slo_distance:+g} of the mean"
            lines.update({row.trace: (row.sampling, line)})

        comparison = profiling_study.run(trace, seeds, out, observer=show)
    document = {"folder": out, "cells": comparison.rows, "cache_ratios": comparison.cache_ratios}
    screen.show(_comparison(comparison, out), document=document)


def planning(
    screen: Screen,
    trace: Traces,
    out: Annotated[Path, "Folder of planning.csv and pictures."],
    methods: Annotated[str, _METHODS] = "default,published,vulcan,videostorm,random",
    slo: Levels = "easy,medium,hard",
    seeds: Annotated[int, Option(help="Per Pareto point.", min=1)] = 20,
    first_seed: FirstSeed = 0,
    points: Annotated[
        int | None, Option(help="Most Pareto points, spread evenly; none: all.", min=2)
    ] = None,
    configurations: Annotated[
        int | None, Option(help="Most of a run; none: any number.", min=1)
    ] = None,
    infrastructure: Annotated[str | None, "Preset or file; none: one tier."] = None,
    budget: Annotated[float, Option(help="Profiling seconds of a run.", min=0.001)] = 60.0,
    first_only: Annotated[bool, "End a run with its first true plan."] = False,
    statistic: Annotated[LatencyStatistic, "Of latency."] = LatencyStatistic.MEAN,
    drawn: Annotated[
        int | None,
        Option(help="Queries of a seed, Pareto points drawn; none: each point.", min=1),
    ] = None,
    history: Annotated[
        int,
        Option(
            help="Earlier queries of each method on half of the inputs; runs on the rest.", min=0
        ),
    ] = 0,
    history_budget: Annotated[float, "Profiling seconds of an earlier query."] = 2.0,
    workers: Annotated[int, Option(help="Measurements made at once.", min=1)] = 1,
) -> None:
    """Replay planning on traces; write a row per run, and pictures."""
    tiers = read_infrastructure(infrastructure) if infrastructure else planning_study.ONE_TIER
    study = planning_study.PlanningStudy(
        traces=tuple(trace),
        methods=tuple(methods.split(",")),
        levels=tuple(slo.split(",")),
        seeds=seeds,
        first_seed=first_seed,
        infrastructure=tiers,
        budget_s=budget,
        first_only=first_only,
        statistic=statistic,
        history=history,
        history_budget_s=history_budget,
        workers=workers,
        points=points,
        drawn=drawn,
        configurations=configurations,
    )
    with screen.follow() as lines:

        def show(progress: planning_study.StudyProgress) -> None:
            row, done = progress.row, progress.done
            text = f"{done} of {progress.runs} runs, the last of {row.profiling_seconds:.3g} s"
            tenth = str(done * 10 // progress.runs)
            lines.update({f"{row.trace} {row.slo} {row.method}": (tenth, text)})

        rows = planning_study.run(study, out, observer=show)
    for name, figure in report.pictures(rows).items():
        (out / name).write_text(svg(figure), encoding="utf-8")
    cells, coverage = report.summary(rows), report.coverage(rows)
    tables = markdown(cells, report.PlanningCell), markdown(coverage, report.Coverage)
    seeds_line = f"seeds {first_seed} to {first_seed + seeds - 1}, of inputs and searches"
    if drawn is not None:
        seeds_line += f"; each draws {drawn} Pareto points per level"
    document = {"seeds": seeds_line, "cells": cells, "calibration": coverage}
    screen.show("\n\n".join([*tables, seeds_line]), document=document)


def drift(
    screen: Screen,
    trace: Traces,
    kind: Annotated[drift_study.DriftKind, Option("--drift", help="What drifts.")],
    out: Annotated[Path, Option(help="Folder of drift.csv.", file_okay=False)],
    methods: Annotated[str, _METHODS] = "default",
    slo: Levels = "medium",
    seeds: Annotated[int, Option(help="Per SLO.", min=1)] = 3,
    first_seed: FirstSeed = 0,
    infrastructure: Annotated[
        str | None,
        "Preset or file; none: three tiers with a weak device for latency, else one.",
    ] = None,
    link: Annotated[
        str | None, Option(metavar="TIER,TIER", help="Link that drifts; none: the first.")
    ] = None,
    left: Annotated[float, "Part of its bandwidth that is left, in (0, 1)."] = 0.5,
    budget: Annotated[float, "Profiling seconds of a run after the drift."] = 60.0,
    before: Annotated[float, "Most profiling seconds of planning before it."] = 1.0,
    after: Annotated[
        Path | None, "Folder of a trace of the same pipeline in the world after the drift."
    ] = None,
    history: Annotated[
        int, Option(help="Earlier queries that replanning uses besides its own.", min=0)
    ] = 0,
) -> None:
    """Let a link or the inputs drift; compare planning again with planning from nothing.

    Counts the queries whose plan the drift breaks while another one would do. Seconds are of
    profiling, up to the first plan that truly satisfies. Every query is in drift.csv.
    """
    ends = None if link is None else link.split(",")
    if ends is not None and len(ends) != 2:
        raise InvalidInput.of("link", "must be two tiers, by a comma", link)
    study = drift_study.DriftStudy(
        traces=tuple(trace),
        kind=kind,
        methods=tuple(methods.split(",")),
        levels=tuple(slo.split(",")),
        seeds=seeds,
        first_seed=first_seed,
        infrastructure=None if infrastructure is None else read_infrastructure(infrastructure),
        link=None if ends is None else (ends[0], ends[1]),
        left=left,
        budget_s=budget,
        before_s=before,
        history=history,
        after=after,
    )
    cells = drift_study.summary(drift_study.run(study, out))
    table = markdown(cells, drift_study.DriftCell)
    screen.show(table, document={"folder": out, "cells": cells})


def fresh(
    screen: Screen,
    pipeline: Annotated[list[str], Option("--pipeline", help="Registered name; repeatable.")],
    accuracy: Annotated[str, "SLOs, separated by commas; searches take them in turn."],
    out: Annotated[Path, Option(help="Folder of fresh.csv and fresh.md.", file_okay=False)],
    latency: Annotated[float, "SLO in seconds."] = 1.0,
    holds_for: Annotated[str, "Of examples, future, by commas; searches take them in turn."] = (
        HoldsFor.EXAMPLES
    ),
    plans: Annotated[int, Option(help="Searches of each pipeline.", min=1)] = 100,
    sample: Annotated[int, Option(help="Examples of each search.", min=1)] = 80,
    inputs: Annotated[int, Option(help="Fresh ones that plans are judged on.", min=1)] = 5000,
    judging: Annotated[float, "Most seconds to run fresh inputs, of a pipeline."] = inf,
    infrastructure: Annotated[str, "Preset or file."] = "three-tier",
    profiling: Annotated[float, "Profiling seconds of a search."] = 30.0,
) -> None:
    """Judge predictions of plans for future inputs on thousands that no search has used.

    Operators run where those of `circinus plan` do. Every search is in fresh.csv, the shares are
    in fresh.md.
    """
    settings, tiers = Settings(), read_infrastructure(infrastructure)
    study = fresh_study.FreshStudy(
        pipelines={reference_here(name): pipeline_here(name) for name in pipeline},
        opened=lambda reference, loaded: opened_executor(
            settings.executor_choice, reference, loaded, tiers, settings.worker_logs
        ),
        infrastructure=tiers,
        accuracies=decimals("accuracy", accuracy),
        latency_s=latency,
        holds_for=[_holds_for(text) for text in holds_for.split(",")],
        plans=plans,
        sample=sample,
        fresh=inputs,
        judging_s=judging,
        limits=PlanningLimits(profiling_s=profiling),
    )
    with screen.follow() as lines, threadpool_limits(1):

        def show(name: str, text: str) -> None:
            lines.update({name: (text, text)})

        cells = fresh_study.summary(fresh_study.run(study, out, show))
    table = markdown(cells, fresh_study.FreshCell)
    (out / "fresh.md").write_text(table + "\n", encoding="utf-8")
    screen.show(table, document={"folder": out, "cells": cells})


def _holds_for(text: str) -> HoldsFor:
    checks.among("holds_for", text, [*HoldsFor])
    return HoldsFor(text)


def _comparison(comparison: profiling_study.Comparison, out: Path) -> str:
    head = f"{'trace':24} {'rule':14} {'sampling':10} {'inputs':>7} {'seconds':>9} {'wrong':>7}"
    table = [
        f"{trace:24} {rule:14} {sampling:10} {inputs:7.1f} {seconds:9.4g} {wrong:7.2%}"
        for trace, rule, sampling, inputs, seconds, wrong in profiling_study.summary(
            comparison.rows
        )
    ]
    ratios = dict.fromkeys(
        (row.trace, row.sampling, row.strata, row.variance_ratio) for row in comparison.rows
    )
    variances = [
        f"{trace}: variance of the estimate, stratified over random order: {ratio:.3f} "
        f"(strata: {strata})"
        for trace, sampling, strata, ratio in ratios
        if sampling == "stratified"
    ]
    caches = [
        f"{trace}: seconds of the full grid with the prefix cache over those without: {ratio:.3f}"
        for trace, ratio in comparison.cache_ratios.items()
    ]
    return "\n".join((head, *table, *variances, *caches, f"every cell: {out / 'profiling.csv'}"))


def _progress_line(progress: TraceProgress) -> str:
    failed = f", {progress.failures} failed" if progress.failures else ""
    return (
        f"input {min(progress.inputs_done + 1, progress.inputs)} of {progress.inputs}, "
        f"{progress.measured} of {progress.pairs} measurements{failed}, "
        f"{formats.seconds(progress.elapsed_s)} so far, {formats.seconds(progress.left_s)} left"
    )


def _summary(summary: TraceSummary) -> str:
    spent, saved, elapsed = map(
        formats.seconds, (summary.spent_s, summary.saved_s, summary.elapsed_s)
    )
    lines = [
        f"trace of {summary.configurations} configurations on {summary.inputs} inputs: "
        f"{summary.folder}",
        f"  {spent} of operators run, {saved} saved by shared prefixes, {elapsed} in all",
    ]
    if summary.resumed:
        lines.append(f"  {summary.resumed} inputs taken over from an earlier run")
    if summary.missing:
        causes = "; ".join(summary.causes)
        lines.append(f"  {summary.missing} measurements without a score: {causes}")
    return "\n".join(lines)
