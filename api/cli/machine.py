"""Commands about this machine's pipelines: what there is, made ready, measured and remembered.

`pipelines` lists what can be planned, `prepare` makes what pipelines need once, such as trained
models, `calibrate` measures how fast each tier serves; `history` is of what queries measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Annotated

import platformdirs
import typer
import yaml
from rich.console import RenderableType
from typer import Argument, Option

from circinus.api.bootstrap.execution import CalibrationSampling, calibrated_infrastructure
from circinus.api.bootstrap.registry import RegisteredPipelines, pipeline_here
from circinus.api.cli.options import PIPELINE_HELP, all_here, pairs
from circinus.api.query_file import read_infrastructure
from circinus.api.schemas.planning import planning_view
from circinus.api.schemas.service import OperatorView, PipelineView, pipeline_view
from circinus.api.settings import Settings
from circinus.api.store.history import SqlHistory, open_history
from circinus.api.text import formats, tables
from circinus.api.text.screen import Screen
from circinus.api.text.tiers import calibration_table
from circinus.deploy.profiling.calibration import CalibrationSettings
from circinus.pipelines import checks
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.files import read_file
from circinus.pipelines.io.infrastructure_file import infrastructure_to_dict
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.tiers import Tier
from circinus.pipelines.registry import listed

# Compiled at the first import, and stored: a service that starts need not wait for it.
_COMPILED = "circinus.scheduler.dispatch.plan_ahead"
_WIDE = 2.0  # a largest factor so many times the least is noise more than speed
_DATABASE = "Database URL; default: the SQLite file in the user's data folder."
Database = Annotated[
    str | None, Option(envvar="CIRCINUS_DATABASE_URL", help=_DATABASE, show_default=False)
]


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
            _missing_text(view) or "available",
        )
        for view in views
    )
    columns = ("pipeline", "operators (knobs)", "configurations", "here")
    screen.show(tables.table("", *columns, right=[2], rows=rows), document=views)


def show(
    screen: Screen,
    name: Annotated[str, Argument(metavar="NAME", help="Of a registered pipeline.")],
) -> None:
    """Show a pipeline: what its score means, every operator with its knobs, what is missing."""
    views = {view.name: view for view in _views()}
    if name not in views:
        raise InvalidInput.of("pipeline", f"must be registered ({', '.join(views)})", name)
    view = views[name]
    parts: list[RenderableType] = [name]
    if view.operators:
        rows = (row for operator in view.operators for row in _knobs(operator))
        table = tables.table("", "operator", "after", "knob", "values", rows=rows)
        parts = [f"{name}: {view.metric}, {view.configurations} configurations", table]
    missing = _missing_text(view)
    here = f"not available here: {missing}" if missing else "available here"
    screen.show(*parts, here, document=view)


def prepare(
    screen: Screen,
    pipeline: Annotated[str | None, Argument(metavar="[PIPELINE]", help=PIPELINE_HELP)] = None,
) -> None:
    """Make what a pipeline needs once; quick when it is there already."""
    clock = SystemClock()
    done: dict[str, object] = {}
    import_module(_COMPILED)
    for reference in all_here(screen) if pipeline is None else [pipeline]:
        start = clock.now()
        loaded = pipeline_here(reference, to_prepare=True)
        for weights in loaded.weights:
            screen.note(f"{reference}: {weights.described}, in {weights.folder}")
        if loaded.prepare is not None or loaded.weights:
            loaded.make_ready()
            mark = _mark(loaded)
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        elapsed_s = clock.now() - start
        done[reference] = {"seconds": elapsed_s}
        screen.note(f"{reference}: ready ({formats.seconds(elapsed_s)})")
    if screen.as_json:
        screen.json({"prepared": done})


def is_prepared(pipeline: Pipeline) -> bool:
    """Return whether `prepare` prepared the pipeline in its present version."""
    return (pipeline.prepare is None and not pipeline.weights) or _mark(pipeline).exists()


def calibrate(
    screen: Screen,
    infrastructure: Annotated[
        str, Argument(metavar="[INFRASTRUCTURE]", help="YAML file, or the name of a preset.")
    ] = "local",
    pipeline: Annotated[list[str] | None, PIPELINE_HELP] = None,
    configurations: Annotated[int, Option(min=1, help="Of each pipeline.")] = 8,
    inputs: Annotated[int, Option(min=1, help="For each configuration.")] = 2,
    repetitions: Annotated[int, Option(min=1, help="Their range is the spread.")] = 9,
    share: Annotated[float, "Of a machine, for the workers."] = 0.25,
    pause_s: Annotated[float, "Between two requests."] = 0.05,
    worker: Annotated[
        list[str] | None,
        Option(metavar="TIER[/TYPE]=ADDRESS", help="A worker that runs; default: start one."),
    ] = None,
    seed: Annotated[int, Option(min=0, help="Of configurations and inputs.")] = 0,
    out: Annotated[Path | None, "YAML file; default: NAME.calibrated.yaml."] = None,
    once: Annotated[
        bool,
        Option("--once", help="Keep a file of the same infrastructure and pipelines."),
    ] = False,
) -> None:
    """Measure speed factors of every tier or type, per class of operators, and write them down.

    Calls the workers that are named; the other tiers are this computer, where a worker is started
    as a deployment does; with CIRCINUS_TARGET=kubernetes a pod is, on each. The pipeline is
    profiled here for comparison.
    """
    tiers = read_infrastructure(infrastructure)
    target = out or Path(f"{tiers.name}.calibrated.yaml")
    # Checked before minutes of measuring, not after them.
    checks.require(target.parent.is_dir(), "--out", "must be in a folder that exists", str(target))
    checks.require(not target.is_dir(), "--out", "must not be a folder", str(target))
    mark = _mark_of(tiers, pipeline)
    if once and target.exists() and target.read_text(encoding="utf-8").startswith(mark):
        note = f"{target} is of this infrastructure and these pipelines, and stays as it is"
        _show_calibrated(screen, read_infrastructure(str(target)), target, note)
        return
    settings = CalibrationSettings(repetitions=repetitions, share=share, pause_s=pause_s)
    sampling = CalibrationSampling(configurations=configurations, inputs=inputs, seed=seed)
    addresses = pairs("--worker", worker, "must be TIER=ADDRESS")
    known = {name: pool for tier in tiers.tiers for name, pool in tier.pools.items()}
    for name in addresses:
        checks.among("tier", name, known)
    measured: list[tuple[Tier, ...]] = []  # by pipeline
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
        measured.append(tiers.tiers)
    tiers = replace(tiers, tiers=tuple(map(_dearest, zip(*measured, strict=True))))
    document = infrastructure_to_dict(tiers)
    target.write_text(mark + yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    for name, pool in ((n, p) for tier in tiers.tiers for n, p in tier.pools.items()):
        speeds = {} if pool.calibration is None else pool.calibration.speeds
        if any(speed.high > _WIDE * speed.low for speed in speeds.values()):
            screen.note(f"{name}: the repetitions differ widely; measure again on a quiet machine")
    note = f"written to {target}; use it with --infrastructure {target}"
    _show_calibrated(screen, tiers, target, note)


def _show_calibrated(screen: Screen, tiers: Infrastructure, file: Path, note: str) -> None:
    document = {"infrastructure": infrastructure_to_dict(tiers), "file": str(file)}
    screen.show(calibration_table(tiers), note, document=document)


def _dearest(tiers: Sequence[Tier]) -> Tier:
    """Return a tier as it was measured last, with the calls of the pipeline whose are dearest."""
    return replace(
        tiers[-1],
        call_s=max(tier.call_s for tier in tiers),
        call_delay_s=max(tier.call_delay_s for tier in tiers),
    )


def _mark_of(infrastructure: Infrastructure, pipelines: Sequence[str] | None) -> str:
    """Return the line with which a calibrated file begins: equal for what is measured alike."""
    what = infrastructure_to_dict(infrastructure), sorted(pipelines or ())
    digest = blake2b(json.dumps(what, sort_keys=True).encode(), digest_size=8).hexdigest()
    return f"# Measured for {digest}\n"


def list_(screen: Screen, database: Database = None) -> None:
    """Show how many queries are remembered of each version of each pipeline, and planned how."""
    summaries = [(one, planning_view(one.planning)) for one in _opened(database).summaries()]
    items = [asdict(one) | {"planning": planning} for one, planning in summaries]
    rows = (
        (one.pipeline, one.fingerprint, formats.planned_by(planning), str(one.queries))
        for one, planning in summaries
    )
    table = tables.table("", "pipeline", "version", "planned by", "queries", right=[3], rows=rows)
    screen.show(table, document={"items": items})


def export(
    screen: Screen,
    file: Annotated[Path, Argument(metavar="FILE", help="Written; must be new.")],
    database: Database = None,
) -> None:
    """Write everything that is remembered to a JSON file."""
    screen.new_file(file, json.dumps(_opened(database).exported()), option="FILE")


def import_(
    screen: Screen,
    file: Annotated[Path, Argument(metavar="FILE", help="That an export wrote.")],
    database: Database = None,
) -> None:
    """Add the records of a JSON file to those that are stored already."""
    try:
        document = json.loads(read_file(file, "FILE"))
    except InvalidInput:
        raise
    except (ValueError, RecursionError) as error:
        rule = f"must be a readable JSON file ({type(error).__name__})"
        raise InvalidInput.of("FILE", rule, str(file)) from error
    count = _opened(database).imported(document)
    screen.show(f"{count} queries taken in", document={"imported": count})


def _opened(database: str | None) -> SqlHistory:
    return open_history(database or Settings().database_url)


def _views() -> list[PipelineView]:
    catalogue = RegisteredPipelines.of(Settings().extra_pipelines)
    return [pipeline_view(one) for one in listed(catalogue.names, catalogue.pipeline)]


def _knobs(operator: OperatorView) -> Iterator[tables.Cells]:
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
    """Return the file that marks this version of a pipeline as prepared."""
    versions = repr([(name, op.version) for name, op in pipeline.by_name.items()])
    digest = blake2b(versions.encode(), digest_size=6).hexdigest()
    folder: Path = platformdirs.user_cache_path("circinus") / "prepared"
    return folder / f"{pipeline.name}-{digest}"
