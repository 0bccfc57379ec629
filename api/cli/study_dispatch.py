"""The command `circinus study dispatch`: policies on measured latencies, simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.cli.screen import Screen
from pipelines.clock import SystemClock
from pipelines.errors import InvalidInput
from scheduler.simulation.measurements import LatencyTable, parse_latencies
from studies.dispatch import POLICIES, DispatchRow, DispatchStudy, run, write_csv
from studies.dispatch_draws import Pool
from studies.dispatch_report import page, picture, spread, summary

_MS = 1e3


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
    mix: Annotated[str, typer.Option("--mix", help="Of sizes: kairos or gaussian.")] = "kairos",
) -> None:
    """Compare dispatch policies: the largest rate with 99 % in time, and how late the late are.

    Writes dispatch.csv, dispatch.svg and dispatch.html. A --pool without a name holds for all
    policies that have none of their own.
    """
    names = tuple(policies.split(","))
    study = DispatchStudy(
        table=_table(latency, model),
        qos_s=qos_ms / _MS,
        policies=names,
        pools=_pools(pool, names),
        seeds=seeds,
        requests=requests,
        service=service,
        mix=mix,
    )
    rows = run(study, SystemClock())
    out.mkdir(parents=True, exist_ok=True)
    write_csv(rows, out / "dispatch.csv")
    (out / "dispatch.svg").write_text(picture(rows, model, service))
    (out / "dispatch.html").write_text(page(rows, requests))
    document: dict[str, object] = {
        "folder": str(out),
        "policies": {name: _figures(group) for _, _, name, group in summary(rows)},
    }
    screen.show(_lines(rows, out), document=document)


def _table(latency: Path, model: str) -> LatencyTable:
    try:
        with latency.open(newline="") as file:
            return parse_latencies(file, model)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput.of(
            "--latency", "must be a file that can be read", str(error)
        ) from error


def _pools(words: list[str], names: tuple[str, ...]) -> dict[str, Pool]:
    own: dict[str, Pool] = {}
    common: Pool | None = None
    for word in words:
        name, _, counts = word.rpartition("=")
        try:
            pool = tuple(int(count) for count in counts.split(","))
        except ValueError as error:
            raise InvalidInput.of("--pool", "must be [POLICY=]N,N,...", word) from error
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
    return {
        "pool": group[0].pool,
        "allowable_rps": rate,
        "deviation_rps": deviation,
        "late_max_s": max(row.late_max_s for row in group),
    }


def _lines(rows: list[DispatchRow], out: Path) -> str:
    lines = [f"{'policy':<18}{'pool':<14}{'allowable, 1/s':>15}{'sd':>8}{'worst late, ms':>16}"]
    for _, _, name, group in summary(rows):
        rate, deviation = spread([row.allowable_rps for row in group])
        worst = max(row.late_max_s for row in group) * _MS
        lines.append(f"{name:<18}{group[0].pool:<14}{rate:>15.1f}{deviation:>8.1f}{worst:>16.1f}")
    return "\n".join([*lines, f"written: {out}/dispatch.csv, .svg, .html"])
