"""The command `circinus study live`: worker processes beside the simulator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from api.cli.screen import Screen
from api.cli.study_dispatch import MS, counts_of, table_of
from deploy.methods import DEFAULT
from scheduler.dispatch.policy import DISPATCH_POLICIES
from studies.live_dispatch import LiveStudy, run


def live_dispatch(
    screen: Screen,
    latency: Annotated[
        Path, typer.Option("--latency", metavar="CSV", help="Measured latencies.", dir_okay=False)
    ],
    model: Annotated[str, typer.Option("--model", help="Its name in the file.")],
    qos_ms: Annotated[float, typer.Option("--qos-ms", help="Requests are due within.")],
    pool: Annotated[str, typer.Option("--pool", metavar="N,N,...", help="Workers of each type.")],
    seconds: Annotated[float, typer.Option("--seconds", help="Of the steady load.")] = 180.0,
    overload: Annotated[float, typer.Option("--overload", help="Seconds of overload.")] = 60.0,
    killing: Annotated[float, typer.Option("--killing", help="Seconds of the last phase.")] = 30.0,
    limit: Annotated[int, typer.Option("--limit", help="Most requests that wait.")] = 128,
    seed: Annotated[int, typer.Option("--seed", help="Of all draws.", min=0)] = 0,
    policy: Annotated[
        str, typer.Option("--policy", help=f"Dispatches; of {', '.join(DISPATCH_POLICIES)}.")
    ] = DEFAULT.dispatch,
) -> None:
    """Run real worker processes that emulate measured latencies, and simulate the same load.

    A line per phase: what the dispatcher adds to a call; three minutes at 80 % of the simulated
    allowable rate beside the simulator; overload and recovery; two workers killed under load.
    """
    study = LiveStudy(
        table=table_of(latency, model),
        qos_s=qos_ms / MS,
        pool=counts_of(pool),
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

    run(study, tell)
    screen.show(json.dumps(phases, indent=2), document=phases)
