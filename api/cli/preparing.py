"""`circinus prepare`: makes what pipelines need once, such as trained models."""

from __future__ import annotations

from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Annotated

import platformdirs
import typer

from api.cli.command import command
from api.cli.references import all_here, pipeline_here
from api.cli.screen import Screen
from api.rendering import formats
from pipelines.clock import SystemClock
from pipelines.pipeline import Pipeline

_COMPILED = "scheduler.dispatch.plan_ahead"
"""Compiled when it is first imported, and kept: a service that starts need not wait for it."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "prepare")(prepare)


def prepare(
    screen: Screen,
    pipeline: Annotated[
        str | None,
        typer.Argument(
            metavar="[PIPELINE]",
            help="Registered name or module:attribute; default: all available.",
        ),
    ] = None,
) -> None:
    """Make what a pipeline needs once; quick when it is there already."""
    clock = SystemClock()
    done: dict[str, object] = {}
    import_module(_COMPILED)
    for reference in all_here(screen) if pipeline is None else [pipeline]:
        start = clock.now()
        loaded = pipeline_here(reference)
        if loaded.prepare is not None:
            loaded.prepare()
            _remember(loaded)
        took = clock.now() - start
        done[reference] = {"seconds": took}
        screen.note(f"{reference}: ready ({formats.seconds(took)})")
    if screen.as_json:
        screen.json({"prepared": done})


def is_prepared(pipeline: Pipeline) -> bool:
    """Give whether this command prepared the pipeline in its present version."""
    return pipeline.prepare is None or _mark(pipeline).exists()


def _remember(pipeline: Pipeline) -> None:
    mark = _mark(pipeline)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()


def _mark(pipeline: Pipeline) -> Path:
    versions = repr([(name, op.version) for name, op in pipeline.by_name.items()])
    digest = blake2b(versions.encode(), digest_size=6).hexdigest()
    folder: Path = platformdirs.user_cache_path("circinus") / "prepared"
    return folder / f"{pipeline.name}-{digest}"
