"""The group `circinus study`: measurements for offline comparisons, and what they replay."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from circinus.api.cli.command import command
from circinus.api.cli.options import pipeline_here
from circinus.api.cli.rendering import formats
from circinus.api.cli.screen import Follow, Screen
from circinus.api.cli.study_dispatch import dispatch, live
from circinus.api.cli.study_ilp import ilp
from circinus.api.cli.study_planning import drift, planning
from circinus.api.query_file import load_data
from circinus.api.schemas.query import DataSource
from circinus.pipelines import checks
from circinus.pipelines.dataset import LARGEST_DATASET
from circinus.pipelines.trace import load_trace, save_trace
from circinus.studies.profiling import study as profiling_study
from circinus.studies.report.tables import document
from circinus.studies.trace import front as trace_front
from circinus.studies.trace import stalling
from circinus.studies.trace.study import TraceProgress, TraceSummary, run

_TENTHS = 10


def group() -> typer.Typer:
    """Give the group of studies."""
    made = typer.Typer()
    for study in (trace, stall, ilp, dispatch, live, profiling, planning, drift):
        command(made, study.__name__)(study)
    return made


def trace(
    screen: Screen,
    pipeline: Annotated[
        str, typer.Argument(metavar="PIPELINE", help="Registered name or module:attribute.")
    ],
    inputs: Annotated[int, typer.Option(help="Number of examples.", min=1, max=LARGEST_DATASET)],
    out: Annotated[Path, typer.Option(help="Folder of the trace.")],
    seed: Annotated[int, typer.Option(help="Seed of the examples.", min=0)] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a trace that is there.")
    ] = False,
) -> None:
    """Measure every configuration on every example and write the trace.

    A measurement that was cut off goes on where it was when it is started again. Beside the trace
    lie `pareto.svg` and `pareto.md`: latency and score of all configurations, and the best ones.
    """
    loaded = pipeline_here(pipeline)
    source = DataSource(examples=inputs, seed=seed)
    dataset = load_data(source, loaded, base=Path.cwd())
    with Follow(screen.err) as lines:

        def show(progress: TraceProgress) -> None:
            if not screen.as_json:
                tenth = progress.measured * _TENTHS // progress.pairs
                lines.update({pipeline: (str(tenth), _progress_line(progress))})

        summary = run(loaded, dataset, out, overwrite=overwrite, observer=show)
    found = trace_front.tradeoff(load_trace(out))
    (out / "pareto.svg").write_text(trace_front.picture(found), encoding="utf-8")
    (out / "pareto.md").write_text(trace_front.table(found) + "\n", encoding="utf-8")
    told = asdict(summary) | {
        "folder": str(summary.folder),
        "accuracy_span": found.accuracy_span,
        "latency_ratio": found.latency_ratio,
        "undominated": len(found.front),
    }
    spans = (
        f"  mean scores span {found.accuracy_span:.3f}, mean latencies a factor of "
        f"{found.latency_ratio:.3g}; nobody dominates {len(found.front)} configurations: pareto.md"
    )
    screen.show(_summary(summary), spans, document=told)


def stall(
    screen: Screen,
    trace: Annotated[Path, typer.Option(help="Folder of a trace.")],
    out: Annotated[Path, typer.Option(help="Folder of the new one.")],
    every_s: Annotated[
        float, typer.Option(help="Mean seconds of running between two stalls.")
    ] = stalling.Stalls().every_s,
    stall_s: Annotated[
        float, typer.Option(help="Mean seconds of a stall.")
    ] = stalling.Stalls().stall_s,
    seed: Annotated[int, typer.Option(help="Of where they fall.", min=0)] = 0,
) -> None:
    """Write a trace as a machine would have measured it that stands still now and then.

    Stalls come at random while operators run; each run that meets one takes so much longer.
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
        document={"folder": str(out), "pipeline": after.graph.name, "hit": hit},
    )


def profiling(
    screen: Screen,
    traces: Annotated[
        list[Path], typer.Option("--trace", help="Folder of a trace; may be repeated.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the table, picture and page.")],
    seeds: Annotated[int, typer.Option(help="Each adds 2,000 profiles to every cell.", min=1)] = 1,
) -> None:
    """Compare stopping rules and orders of inputs on replayed traces and synthetic scores.

    Prints, per rule and order, means over the distances of the accuracy SLO from the true mean,
    and the largest part of wrong verdicts in any cell. Every cell is in profiling.csv.
    """
    with Follow(screen.err) as lines:

        def show(row: profiling_study.ProfilingRow) -> None:
            if not screen.as_json:
                line = f"{row.sampling} order, SLO at {row.slo_distance:+g} of the mean"
                lines.update({row.trace: (row.sampling, line)})

        found = profiling_study.run(traces, seeds, out, observer=show)
    told: dict[str, object] = {
        "folder": str(out),
        "cells": [document(row) for row in found.rows],
        "cache_ratios": dict(found.cache_ratios),
    }
    screen.show(_comparison(found, out), document=told)


def _comparison(found: profiling_study.Comparison, out: Path) -> str:
    head = f"{'trace':24} {'rule':14} {'sampling':10} {'inputs':>7} {'seconds':>9} {'wrong':>7}"
    table = [
        f"{trace:24} {rule:14} {sampling:10} {inputs:7.1f} {seconds:9.4g} {wrong:7.2%}"
        for trace, rule, sampling, inputs, seconds, wrong in profiling_study.summary(found.rows)
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


def _progress_line(progress: TraceProgress) -> str:
    failed = f", {progress.failures} failed" if progress.failures else ""
    return (
        f"input {min(progress.inputs_done + 1, progress.inputs)} of {progress.inputs}, "
        f"{progress.measured} of {progress.pairs} measurements{failed}, "
        f"{formats.seconds(progress.elapsed_s)} so far, {formats.seconds(progress.left_s)} left"
    )


def _summary(summary: TraceSummary) -> str:
    lines = [
        f"trace of {summary.configurations} configurations on {summary.inputs} inputs: "
        f"{summary.folder}",
        f"  {formats.seconds(summary.spent_s)} of operators run, "
        f"{formats.seconds(summary.saved_s)} saved by shared prefixes, "
        f"{formats.seconds(summary.elapsed_s)} in all",
    ]
    if summary.resumed:
        lines.append(f"  {summary.resumed} inputs taken over from an earlier run")
    if summary.missing:
        lines.append(
            f"  {summary.missing} measurements without a score: {'; '.join(summary.causes)}"
        )
    return "\n".join(lines)
