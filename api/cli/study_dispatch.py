"""The command `circinus study dispatch`: policies on measured latencies, simulated."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Annotated

import typer

from api.cli.screen import Screen
from pipelines.clock import ProcessorClock
from pipelines.errors import InvalidInput
from scheduler.simulation.measurements import LatencyTable, parse_latencies
from studies.dispatch import POLICIES, DispatchRow, DispatchStudy, run
from studies.dispatch_draws import Pool
from studies.dispatch_load import ARRIVALS, MIXES, load_of
from studies.dispatch_report import page, picture, spread, summary

MS = 1e3
"""Milliseconds in a second."""

_MIXES = f"{', '.join(MIXES)}, or a file with a size per line"
_ARRIVALS = f"{', '.join(ARRIVALS)}, or a file with seconds per line"


def dispatch(
    screen: Screen,
    latency: Annotated[
        Path, typer.Option("--latency", metavar="CSV", help="Measured latencies.", dir_okay=False)
    ],
    model: Annotated[str, typer.Option("--model", help="Its name in the file.")],
    qos_ms: Annotated[float, typer.Option("--qos-ms", help="Requests are due within.")],
    pool: Annotated[
        list[str],
        typer.Option("--pool", metavar="[POLICY=]N,N,...", help="Instances of each type."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the results.", file_okay=False)],
    policies: Annotated[
        str, typer.Option("--policies", help="Names, joined by commas.")
    ] = ",".join(POLICIES),
    seeds: Annotated[int, typer.Option("--seeds", help="Number of seeds.", min=1)] = 5,
    requests: Annotated[
        int, typer.Option("--requests", help="Requests per run.", min=100)
    ] = 20_000,
    service: Annotated[str, typer.Option("--service", help="mean or sampled.")] = "mean",
    seed: Annotated[int, typer.Option("--seed", help="The first seed.", min=0)] = 0,
    mix: Annotated[
        str, typer.Option("--mix", metavar="NAME|FILE", help=f"Batch sizes: {_MIXES}.")
    ] = "kairos",
    mix_after: Annotated[
        str | None,
        typer.Option("--mix-after", metavar="NAME|FILE", help="The mix changes to it."),
    ] = None,
    change_at: Annotated[
        float, typer.Option("--change-at", help="After this share of the requests, in [0, 1].")
    ] = 0.5,
    arrivals: Annotated[
        str, typer.Option("--arrivals", metavar="NAME|FILE", help=f"Gaps: {_ARRIVALS}.")
    ] = "poisson",
) -> None:
    """Compare dispatch policies: the largest rate with 99 % in time, and how late the late are.

    Writes dispatch.csv, dispatch.svg and dispatch.html. A --pool without a name holds for all
    policies that have none of their own. The CSV has the columns model, instance, batch, mean_ms
    and std_ms; the types of --pool are in the order of the file, the base type first.
    """
    names = tuple(policies.split(","))
    study = DispatchStudy(
        table=table_of(latency, model),
        qos_s=qos_ms / MS,
        policies=names,
        pools=_pools(pool, names),
        seeds=seeds,
        requests=requests,
        first_seed=seed,
        service=service,
        load=load_of(mix, arrivals, after=mix_after, at=change_at),
    )
    rows = run(study, out, ProcessorClock())
    (out / "dispatch.svg").write_text(picture(rows, model, service))
    (out / "dispatch.html").write_text(page(rows, requests))
    document: dict[str, object] = {
        "folder": str(out),
        "policies": {name: _figures(group) for _, _, name, group in summary(rows)},
    }
    screen.show(_lines(rows, out), document=document)


def table_of(latency: Path, model: str) -> LatencyTable:
    """Give the latencies of a model in a file.

    Raises:
        InvalidInput: If the file cannot be read or is none of latencies.
    """
    try:
        with latency.open(newline="") as file:
            return parse_latencies(file, model)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput.of(
            "--latency", "must be a file that can be read", str(error)
        ) from error


def counts_of(word: str) -> Pool:
    """Give the counts of a pool.

    Raises:
        InvalidInput: If they are no whole numbers joined by commas.
    """
    try:
        return tuple(int(count) for count in word.split(","))
    except ValueError as error:
        raise InvalidInput.of("--pool", "must be [POLICY=]N,N,...", word) from error


def _pools(words: list[str], names: tuple[str, ...]) -> dict[str, Pool]:
    own: dict[str, Pool] = {}
    common: Pool | None = None
    for word in words:
        name, _, counts = word.rpartition("=")
        pool = counts_of(counts)
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
    for _, _, name, group in summary(rows):
        rate, deviation = spread([row.allowable_rps for row in group])
        worst = max(row.late_max_s for row in group) * MS
        lines.append(f"{name:<18}{group[0].pool:<14}{rate:>15.1f}{deviation:>8.1f}{worst:>16.1f}")
    return "\n".join([*lines, f"written: {out}/dispatch.csv, .svg, .html"])
