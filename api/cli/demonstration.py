"""`circinus demo`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from api.cli.command import command, leave
from api.cli.exits import ExitCode
from api.cli.options import MethodName
from api.cli.screen import Screen
from deploy.calibration import CalibrationSettings
from deploy.methods import method_of
from pipelines.infrastructure import Infrastructure
from pipelines.registry import load_pipeline

_CONFIGURATIONS = 4
_INPUTS = 2
_CALIBRATION = CalibrationSettings(repetitions=5, pause_s=0.03)
"""Seconds, not minutes: enough to tell served from profiled, see `circinus calibrate`."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "demo")(demo)


def demo(screen: Screen, method: MethodName = None) -> None:
    """Plan, deploy and serve queries of the built-in pipeline, from start to end."""
    from api.demo import run  # only when asked to

    chosen = None if method is None else method_of(method, "--method")
    console = screen.err if screen.as_json else screen.out
    report = run(console, _calibrated, chosen)
    if screen.as_json:
        screen.json(report.document())
    leave(ExitCode.OK if report.worked else ExitCode.INTERNAL)


def _calibrated(infrastructure: Infrastructure, pipeline: str, seed: int) -> Infrastructure:
    from api.bootstrap.calibration import (  # heavy libraries behind it
        Sampling,
        calibrated_infrastructure,
    )

    with TemporaryDirectory(prefix="circinus-demo-") as logs:
        return calibrated_infrastructure(
            infrastructure,
            (pipeline, load_pipeline(pipeline)),
            Sampling(configurations=_CONFIGURATIONS, inputs=_INPUTS, seed=seed),
            _CALIBRATION,
            addresses={},
            logs=Path(logs),
        )
