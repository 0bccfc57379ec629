"""Commands about this machine's pipelines: what there is, made ready, and measured.

`pipelines` lists what can be planned, `prepare` makes what pipelines need once, such as trained
models, and `calibrate` measures how fast each tier is, as a deployment serves there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Annotated

import platformdirs
import typer
import yaml
from rich.console import RenderableType

from circinus.api.bootstrap.registry import RegisteredPipelines
from circinus.api.cli.options import PIPELINE_HELP, all_here, pipeline_here
from circinus.api.cli.rendering import formats
from circinus.api.cli.rendering.tables import Cells, calibration_table, table
from circinus.api.cli.screen import Screen
from circinus.api.query_file import read_infrastructure
from circinus.api.schemas.service import OperatorView, PipelineView, pipeline_view
from circinus.api.settings import Settings
from circinus.deploy.profiling.calibration import CalibrationSettings
from circinus.pipelines import checks
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.infrastructure_file import infrastructure_to_dict
from circinus.pipelines.pipeline import Pipeline
from circinus.pipelines.registry import listed

_COMPILED = "circinus.scheduler.dispatch.plan_ahead"
"""Compiled when it is first imported, and kept: a service that starts need not wait for it."""
_WIDE = 2.0
"""A largest factor so many times the least is noise more than speed."""


def pipelines(screen: Screen, context: typer.Context) -> None:
    """List the pipelines: operators, knobs, whether they can run here and what is missing."""
    if context.invoked_subcommand is not None:
        return
    views = _views()
    rows = (
        (
            view.name,
            " > ".join(map(_operator_text, view.operators)),
            str(view.configurations or "-"),
            "available" if view.available else _missing_text(view),
        )
        for view in views
    )
    columns = ("pipeline", "operators (knobs)", "configurations", "here")
    document = [view.model_dump(mode="json") for view in views]
    screen.show(table("", *columns, right=[2], rows=rows), document=document)


def show(
    screen: Screen,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a registered pipeline.")],
) -> None:
    """Show a pipeline: what its score means, every operator with its knobs, what is missing."""
    views = {view.name: view for view in _views()}
    if name not in views:
        raise InvalidInput.of("pipeline", f"must be registered ({', '.join(views)})", name)
    view = views[name]
    here = "available here" if view.available else f"not available here: {_missing_text(view)}"
    screen.show(*_operators(view), here, document=view)


def prepare(
    screen: Screen,
    pipeline: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE]", help=PIPELINE_HELP)
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
            mark = _mark(loaded)
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        took = clock.now() - start
        done[reference] = {"seconds": took}
        screen.note(f"{reference}: ready ({formats.seconds(took)})")
    if screen.as_json:
        screen.json({"prepared": done})


def is_prepared(pipeline: Pipeline) -> bool:
    """Give whether `prepare` prepared the pipeline in its present version."""
    return pipeline.prepare is None or _mark(pipeline).exists()


def calibrate(
    screen: Screen,
    infrastructure: Annotated[
        str,
        typer.Argument(metavar="[INFRASTRUCTURE]", help="YAML file, or the name of a preset."),
    ] = "local",
    pipeline: Annotated[list[str] | None, typer.Option(help=PIPELINE_HELP)] = None,
    configurations: Annotated[int, typer.Option(min=1, help="Of each pipeline.")] = 4,
    inputs: Annotated[int, typer.Option(min=1, help="For each configuration.")] = 4,
    repetitions: Annotated[int, typer.Option(min=1, help="Their range is the spread.")] = 9,
    share: Annotated[float, typer.Option(help="Of a machine, for the workers.")] = 0.5,
    pause_s: Annotated[float, typer.Option(help="Between two requests.")] = 0.05,
    worker: Annotated[
        list[str] | None,
        typer.Option(metavar="TIER=HOST:PORT", help="A worker that runs; default: start one."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of configurations and inputs.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="YAML file; default: NAME.calibrated.yaml.")
    ] = None,
) -> None:
    """Measure speed factors of every tier, per class of operators, and write them down.

    Calls the workers that are named; the other tiers are this computer, where a worker is started
    as a deployment does. The pipeline is profiled here for comparison.
    """
    from circinus.api.bootstrap.calibration import (  # heavy libraries behind it
        CalibrationSampling,
        calibrated_infrastructure,
    )

    tiers = read_infrastructure(infrastructure)
    target = Path(f"{tiers.name}.calibrated.yaml") if out is None else out
    # Said before minutes of measuring, not after them.
    checks.require(target.parent.is_dir(), "--out", "must be in a folder that exists", str(target))
    checks.require(not target.is_dir(), "--out", "must not be a folder", str(target))
    settings = CalibrationSettings(repetitions=repetitions, share=share, pause_s=pause_s)
    sampling = CalibrationSampling(configurations=configurations, inputs=inputs, seed=seed)
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


def _views() -> list[PipelineView]:
    catalogue = RegisteredPipelines.of(Settings().extra_pipelines)
    return [pipeline_view(one) for one in listed(catalogue.names, catalogue.pipeline)]


def _operators(view: PipelineView) -> Sequence[RenderableType]:
    if not view.operators:
        return [view.name]
    rows = (row for operator in view.operators for row in _knobs(operator))
    return [
        f"{view.name}: {view.metric}, {view.configurations} configurations",
        table("", "operator", "after", "knob", "values", rows=rows),
    ]


def _knobs(operator: OperatorView) -> Iterator[Cells]:
    rows = [(knob.name, ", ".join(map(str, knob.values))) for knob in operator.knobs]
    for i, row in enumerate(rows or [("", "")]):
        yield ("", "", *row) if i else (operator.name, ", ".join(operator.after), *row)


def _operator_text(operator: OperatorView) -> str:
    knobs = ", ".join(knob.name for knob in operator.knobs)
    return f"{operator.name} ({knobs})" if knobs else operator.name


def _missing_text(view: PipelineView) -> str:
    return "; ".join(
        f"{part.name}: {part.install}" if part.install else part.name for part in view.missing
    )


def _mark(pipeline: Pipeline) -> Path:
    """Give the file that says that this version of a pipeline is prepared."""
    versions = repr([(name, op.version) for name, op in pipeline.by_name.items()])
    digest = blake2b(versions.encode(), digest_size=6).hexdigest()
    folder: Path = platformdirs.user_cache_path("circinus") / "prepared"
    return folder / f"{pipeline.name}-{digest}"


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
