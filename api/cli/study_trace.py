"""`circinus study trace` and `circinus study stall`: what other studies replay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.cli.references import pipeline_here
from api.cli.screen import Screen
from api.query_data import load_data
from api.rendering import formats
from api.rendering.live import Follow
from api.schemas import DataSource
from pipelines import checks
from pipelines.dataset import LARGEST_DATASET
from pipelines.trace import load_trace, save_trace
from studies import stalling, trace_front
from studies.trace import TraceSummary, run
from studies.trace_progress import TraceProgress

_TENTHS = 10


def trace(
    screen: Screen,
    pipeline: Annotated[
        str, typer.Argument(metavar="PIPELINE", help="Registered name or module:attribute.")
    ],
    inputs: Annotated[
        int, typer.Option("--inputs", help="Number of examples.", min=1, max=LARGEST_DATASET)
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the trace.")],
    seed: Annotated[int, typer.Option("--seed", help="Seed of the examples.", min=0)] = 0,
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
    document: dict[str, object] = {
        "folder": str(summary.folder),
        "configurations": summary.configurations,
        "operators": summary.operators,
        "inputs": summary.inputs,
        "missing": summary.missing,
        "causes": list(summary.causes),
        "resumed": summary.resumed,
        "spent_s": summary.spent_s,
        "saved_s": summary.saved_s,
        "elapsed_s": summary.elapsed_s,
        "accuracy_span": found.accuracy_span,
        "latency_ratio": found.latency_ratio,
        "undominated": len(found.front),
    }
    spans = (
        f"  mean scores span {found.accuracy_span:.3f}, mean latencies a factor of "
        f"{found.latency_ratio:.3g}; nobody dominates {len(found.front)} configurations: pareto.md"
    )
    screen.show(_summary(summary), spans, document=document)


def stall(
    screen: Screen,
    trace: Annotated[Path, typer.Option("--trace", help="Folder of a trace.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the new one.")],
    every_s: Annotated[
        float, typer.Option("--every-s", help="Mean seconds of running between two stalls.")
    ] = stalling.Stalls().every_s,
    stall_s: Annotated[
        float, typer.Option("--stall-s", help="Mean seconds of a stall.")
    ] = stalling.Stalls().stall_s,
    seed: Annotated[int, typer.Option("--seed", help="Of where they fall.", min=0)] = 0,
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
