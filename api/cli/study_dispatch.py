"""`circinus study dispatch`: policies on measured latencies, simulated; and `live`, beside it."""

from __future__ import annotations

import json
from math import isnan
from pathlib import Path
from typing import Annotated

import typer

from circinus.api.cli.screen import Screen
from circinus.deploy.methods import DEFAULT
from circinus.pipelines.clock import ProcessorClock
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES
from circinus.scheduler.simulation.measurements import LatencyTable, parse_latencies
from circinus.studies.dispatch import live as live_study
from circinus.studies.dispatch.draws import ARRIVALS, MIXES, Pool, load_of
from circinus.studies.dispatch.study import (
    POLICIES,
    DispatchRow,
    DispatchStudy,
    page,
    picture,
    run,
    spread,
    summary,
)

_MS = 1e3

Latency = Annotated[
    Path, typer.Option("--latency", metavar="CSV", help="Measured latencies.", dir_okay=False)
]
Model = Annotated[str, typer.Option("--model", help="Its name in the file.")]
QosMs = Annotated[float, typer.Option("--qos-ms", help="Requests are due within.")]

_MIXES = f"{', '.join(MIXES)}, or a file with a size per line"
_ARRIVALS = f"{', '.join(ARRIVALS)}, or a file with seconds per line"


def dispatch(
    screen: Screen,
    latency: Latency,
    model: Model,
    qos_ms: QosMs,
    pool: Annotated[
        list[str], typer.Option(metavar="[POLICY=]N,N,...", help="Instances of each type.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the results.", file_okay=False)],
    policies: Annotated[str, typer.Option(help="Names, joined by commas.")] = ",".join(POLICIES),
    seeds: Annotated[int, typer.Option(help="Number of seeds.", min=1)] = 5,
    requests: Annotated[int, typer.Option(help="Requests per run.", min=100)] = 20_000,
    service: Annotated[str, typer.Option(help="mean or sampled.")] = "mean",
    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    mix: Annotated[
        str, typer.Option(metavar="NAME|FILE", help=f"Batch sizes: {_MIXES}.")
    ] = "kairos",
    mix_after: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="The mix changes to it.")
    ] = None,
    change_at: Annotated[
        float, typer.Option(help="After this share of the requests, in [0, 1].")
    ] = 0.5,
    arrivals: Annotated[
        str, typer.Option(metavar="NAME|FILE", help=f"Gaps: {_ARRIVALS}.")
    ] = "poisson",
) -> None:
    """Compare dispatch policies: the largest rate with 99 % in time, and how late the late are.

    Writes dispatch.csv, dispatch.svg and dispatch.html. A --pool without a name holds for all
    policies that have none of their own. The CSV has the columns model, instance, batch, mean_ms
    and std_ms; the types of --pool are in the order of the file, the base type first.
    """
    names = tuple(policies.split(","))
    study = DispatchStudy(
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
    rows = run(study, out, ProcessorClock())
    (out / "dispatch.svg").write_text(picture(rows))
    (out / "dispatch.html").write_text(page(rows, requests))
    document: dict[str, object] = {
        "folder": str(out),
        "policies": {name: _figures(group) for name, group in summary(rows).items()},
    }
    screen.show(_lines(rows, out), document=document)


def live(
    screen: Screen,
    latency: Latency,
    model: Model,
    qos_ms: QosMs,
    pool: Annotated[str, typer.Option(metavar="N,N,...", help="Workers of each type.")],
    seconds: Annotated[float, typer.Option(help="Of the steady load.")] = 180.0,
    overload: Annotated[float, typer.Option(help="Seconds of overload.")] = 60.0,
    killing: Annotated[float, typer.Option(help="Seconds of the last phase.")] = 30.0,
    limit: Annotated[int, typer.Option(help="Most requests that wait.")] = 128,
    seed: Annotated[int, typer.Option(help="Of all draws.", min=0)] = 0,
    policy: Annotated[
        str, typer.Option(help=f"Dispatches; of {', '.join(DISPATCH_POLICIES)}.")
    ] = DEFAULT.dispatch,
) -> None:
    """Run real worker processes that emulate measured latencies, and simulate the same load.

    A line per phase: what the dispatcher adds to a call; three minutes at 80 % of the simulated
    allowable rate beside the simulator; overload and recovery; two workers killed under load.
    """
    chosen = live_study.LiveStudy(
        table=_table_of(latency, model),
        qos_s=qos_ms / _MS,
        pool=_counts_of(pool),
        steady_s=seconds,
        overload_s=overload,
        killing_s=killing,
        limit=limit,
        seed=seed,
        policy=policy,
    )
    phases: dict[str, object] = {}

    def tell(phase: str, figures: dict[str, object]) -> None:
        phases[phase] = figures
        screen.note(f"{phase}: {json.dumps(figures)}")

    live_study.run(chosen, tell)
    screen.show(json.dumps(phases, indent=2), document=phases)


def _table_of(latency: Path, model: str) -> LatencyTable:
    try:
        with latency.open(newline="") as file:
            return parse_latencies(file, model)
    except (OSError, UnicodeDecodeError) as error:
        rule = "must be a file that can be read"
        raise InvalidInput.of("--latency", rule, str(error)) from error


def _counts_of(word: str) -> Pool:
    try:
        return tuple(int(count) for count in word.split(","))
    except ValueError as error:
        raise InvalidInput.of("--pool", "must be [POLICY=]N,N,...", word) from error


def _pools(words: list[str], names: tuple[str, ...]) -> dict[str, Pool]:
    own: dict[str, Pool] = {}
    common: Pool | None = None
    for word in words:
        name, _, counts = word.rpartition("=")
        pool = _counts_of(counts)
        if not name:
            common = pool
        elif name in names:
            own[name] = pool
        else:
            raise InvalidInput.of("--pool", f"must name one of {', '.join(names)}", word)
    missing = [name for name in names if name not in own and common is None]
    if missing:
        raise InvalidInput.of("--pool", "must be given for every policy, missing", missing)
    return {name: own.get(name, common or ()) for name in names}


def _figures(group: list[DispatchRow]) -> dict[str, object]:
    rate, deviation = spread([row.allowable_rps for row in group])
    worst = max(row.late_max_s for row in group)
    return {
        "pool": group[0].pool,
        "allowable_rps": rate,
        "deviation_rps": deviation,
        "late_max_s": None if isnan(worst) else worst,
    }


def _lines(rows: list[DispatchRow], out: Path) -> str:
    lines = [f"{'policy':<18}{'pool':<14}{'allowable, 1/s':>15}{'sd':>8}{'worst late, ms':>16}"]
    for name, group in summary(rows).items():
        rate, deviation = spread([row.allowable_rps for row in group])
        worst = max(row.late_max_s for row in group) * _MS
        lines.append(f"{name:<18}{group[0].pool:<14}{rate:>15.1f}{deviation:>8.1f}{worst:>16.1f}")
    return "\n".join([*lines, f"written: {out}/dispatch.csv, .svg, .html"])
