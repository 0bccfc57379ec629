"""`circinus calibrate`: measures how fast each tier is, as a deployment serves there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from api.cli.command import command
from api.cli.references import all_here, pipeline_here
from api.cli.screen import Screen
from api.query_file import read_infrastructure
from api.rendering.tables import calibration_table
from api.settings import Settings
from deploy.calibration import CalibrationSettings
from pipelines import checks
from pipelines.errors import InvalidInput
from pipelines.infrastructure import Infrastructure
from pipelines.infrastructure_file import infrastructure_to_dict

_WIDE = 2.0
"""A largest factor so many times the least is noise more than speed."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "calibrate")(calibrate)


def calibrate(
    screen: Screen,
    infrastructure: Annotated[
        str,
        typer.Argument(metavar="[INFRASTRUCTURE]", help="YAML file, or the name of a preset."),
    ] = "local",
    pipeline: Annotated[
        list[str] | None,
        typer.Option(
            "--pipeline",
            help="Registered name or module:attribute; default: all available.",
        ),
    ] = None,
    configurations: Annotated[int, typer.Option(min=1, help="Of each pipeline.")] = 4,
    inputs: Annotated[int, typer.Option(min=1, help="For each configuration.")] = 4,
    repetitions: Annotated[int, typer.Option(min=1, help="Their range is the spread.")] = 9,
    share: Annotated[float, typer.Option(help="Of a machine, for the workers.")] = 0.5,
    pause_s: Annotated[float, typer.Option("--pause-s", help="Between two requests.")] = 0.05,
    worker: Annotated[
        list[str] | None,
        typer.Option(
            "--worker", metavar="TIER=HOST:PORT", help="A worker that runs; default: start one."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of configurations and inputs.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="YAML file; default: NAME.calibrated.yaml.")
    ] = None,
) -> None:
    """Measure speed factors of every tier, per class of operators, and write them down.

    Calls the workers that are named; the other tiers are this computer, where a worker is started
    as a deployment does. The pipeline is profiled here for comparison.
    """
    from api.bootstrap.calibration import (  # heavy libraries behind it
        Sampling,
        calibrated_infrastructure,
    )

    tiers = read_infrastructure(infrastructure)
    target = Path(f"{tiers.name}.calibrated.yaml") if out is None else out
    # Said before minutes of measuring, not after them.
    checks.require(target.parent.is_dir(), "--out", "must be in a folder that exists", str(target))
    checks.require(not target.is_dir(), "--out", "must not be a folder", str(target))
    settings = CalibrationSettings(repetitions=repetitions, share=share, pause_s=pause_s)
    sampling = Sampling(configurations=configurations, inputs=inputs, seed=seed)
    addresses = _addresses(worker or [], tiers)
    for reference in pipeline or all_here(screen):
        screen.note(f"calibrating with {reference} ...")
        tiers = calibrated_infrastructure(
            tiers,
            (reference, pipeline_here(reference)),
            sampling,
            settings,
            addresses=addresses,
            logs=Settings().worker_logs,
        )
    document = infrastructure_to_dict(tiers)
    target.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    for name in _doubtful(tiers):
        screen.note(f"{name}: the repetitions differ widely; measure again on a quiet machine")
    screen.show(
        calibration_table(tiers),
        f"written to {target}; use it with --infrastructure {target}",
        document={"infrastructure": document, "file": str(target)},
    )


def _doubtful(infrastructure: Infrastructure) -> list[str]:
    """Give the tiers of which the repetitions of a class do not agree."""
    return [
        tier.name
        for tier in infrastructure.tiers
        if tier.calibration is not None
        and any(s.high > _WIDE * s.low for s in tier.calibration.speeds.values())
    ]


def _addresses(workers: list[str], tiers: Infrastructure) -> dict[str, str]:
    """Give tier -> address.

    Raises:
        InvalidInput: If a text is not of the form, or there is no such tier.
    """
    addresses = {}
    for text in workers:
        tier, equals, address = text.partition("=")
        if not equals:
            raise InvalidInput.of("--worker", "must be TIER=HOST:PORT", text)
        addresses[tiers.tier(tier).name] = address
    return addresses
