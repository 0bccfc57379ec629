"""Commands that need no service: checking files and planning in this process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from api.cli.command import command, leave
from api.cli.environment import settings_with
from api.cli.exits import ExitCode
from api.cli.options import InfrastructureName, MethodName, QueryFile
from api.cli.references import pipeline_here
from api.cli.screen import Screen
from api.executor_choice import FORMS, Kind, executor_choice
from api.fingerprints import data_fingerprint
from api.query_data import load_data
from api.query_file import query_schema, read_infrastructure, read_query
from api.rendering import formats
from api.rendering.bills import bill_lines, forecast_words
from api.rendering.live import Follow
from api.rendering.tables import plans_table, progress_words, shortfall_text
from api.schemas import (
    PlanningRequest,
    PlanView,
    QueryRequest,
    ShortfallView,
    bill_view,
    plan_view,
    planning_view,
    progress_view,
    shortfall_view,
    to_query,
)
from api.settings import Settings
from deploy.methods import method_of
from pipelines.configuration import ConfigurationSpace
from pipelines.errors import InvalidInput, Unavailable
from pipelines.fitting import fitted
from pipelines.infrastructure import Infrastructure
from pipelines.payload import content_hash
from pipelines.pipeline import Pipeline
from pipelines.query import Query
from pipelines.restrictions import words
from planner.result import Outcome, Phase, PlanningResult, Progress

if TYPE_CHECKING:
    from api.bootstrap.knowledge import Remembered

_DEFAULT_INFRASTRUCTURE = "local"
_EXIT_CODES = {
    Outcome.FEASIBLE: ExitCode.OK,
    Outcome.INFEASIBLE: ExitCode.INFEASIBLE,
    Outcome.EXHAUSTED: ExitCode.EXHAUSTED,
    Outcome.CANCELLED: ExitCode.INTERRUPTED,
}


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    command(app, "validate")(validate)
    command(app, "plan")(plan)


def validate(
    screen: Screen,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Query file (YAML).")
    ] = None,
    infrastructure: InfrastructureName = _DEFAULT_INFRASTRUCTURE,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of query files instead.")
    ] = False,
) -> None:
    """Check a query file, its pipeline and data, and an infrastructure; runs nothing."""
    if schema:
        screen.json(query_schema())
        return
    tiers = read_infrastructure(infrastructure)
    if file is None:
        if infrastructure == _DEFAULT_INFRASTRUCTURE:
            raise InvalidInput.of("FILE", "must be given without --schema", None)
        names = [tier.name for tier in tiers.tiers]
        screen.show(
            f"{infrastructure}: valid, tiers {', '.join(names)}",
            document={"valid": True, "infrastructure": tiers.name, "tiers": names},
        )
        return
    request = read_query(file)
    pipeline = pipeline_here(request.pipeline)
    query = to_query(request, pipeline=pipeline.name, method=settings_with().chosen_method)
    own = fitted(query, pipeline.graph, tiers)
    inputs = len(load_data(request.data, pipeline, base=file.parent))
    size = ConfigurationSpace(own.graph).size
    held = words(query.restrictions)
    planning = planning_view(query.planning)
    screen.show(
        f"{file}: valid",
        f"  {pipeline.name}: {size} configurations, {inputs} inputs",
        f"  {formats.objectives(request)}",
        f"  planned by {formats.planned_by(planning)}",
        *(f"  restriction: {line}" for line in held),
        *(f"  {line}" for line in formats.defaults(request)),
        document={
            "valid": True,
            "query": request.model_dump(mode="json"),
            "defaults": list(formats.defaults(request)),
            "restrictions": list(held),
            "planning": planning.model_dump(mode="json"),
            "configurations": size,
            "inputs": inputs,
        },
    )


def plan(
    screen: Screen,
    file: QueryFile,
    infrastructure: InfrastructureName = _DEFAULT_INFRASTRUCTURE,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Only say what planning will cost, from a few probes."),
    ] = False,
    executor: Annotated[
        str,
        typer.Option(
            "--executor", envvar="CIRCINUS_EXECUTOR", help=f"What runs operators: {FORMS}."
        ),
    ] = Kind.IN_PROCESS.value,
    workers: Annotated[
        int,
        typer.Option(
            "--executor-workers",
            envvar="CIRCINUS_EXECUTOR_WORKERS",
            help="How many inputs are measured at once, other than in-process.",
            min=1,
        ),
    ] = 1,
    cold: Annotated[
        bool, typer.Option("--cold", help="Start from nothing that earlier queries measured.")
    ] = False,
    method: MethodName = None,
) -> None:
    """Plan a query in this process, without a service. Ctrl-C ends it with what was found.

    The exit code is 3 when no plan can meet the objectives, 4 when a limit came first.
    """
    # gpytorch behind it: only when planning
    from api.bootstrap.execution import opened_executor
    from api.bootstrap.planning import Kept, plan_offline

    request = _asked(read_query(file), method)
    settings = settings_with()
    tiers = read_infrastructure(infrastructure)
    pipeline = pipeline_here(request.pipeline)
    query = to_query(request, pipeline=pipeline.name, method=settings.chosen_method)
    dataset = load_data(request.data, pipeline, base=file.parent)
    choice = executor_choice(executor, workers=workers)
    screen.note(f"infrastructure: {tiers.name}")
    for line in formats.defaults(request):
        screen.note(line)
    screen.note(f"planned by {formats.planned_by(planning_view(query.planning))}")
    memory = None if cold or request.cold else _memory(screen, pipeline, settings)
    kept = Kept(history=() if memory is None else memory.earlier())
    if kept.history:
        screen.note(f"starting from what {len(kept.history)} earlier queries measured")
    with (
        opened_executor(choice, request.pipeline, pipeline, tiers, settings.worker_logs) as runs,
        Follow(screen.err) as lines,
        _cancelled_by_interrupt() as cancelled,
    ):
        watching = _Watching(
            None if screen.as_json else lines, cancelled, query, tiers, only_estimate=estimate
        )
        result = plan_offline(query, tiers, pipeline, dataset, watching, kept=kept, executor=runs)
    if memory is not None and not estimate:
        name = f"{data_fingerprint(dataset)} {query.slo}"
        memory.remember(f"plan {content_hash(name)}", query, result)
    if estimate:
        _show_estimate(screen, result)
        return
    _show(screen, request, query, tiers, result)
    leave(_EXIT_CODES[result.outcome])


def _asked(request: QueryRequest, method: str | None) -> QueryRequest:
    """Give the query with the method of an option in place of the file's; None: the file's.

    Raises:
        InvalidInput: If there is no such method.
    """
    if method is None:
        return request
    named = {"method": method_of(method, "--method").name}
    planning = (request.planning or PlanningRequest()).model_copy(update=named)
    return request.model_copy(update={"planning": planning})


def _memory(screen: Screen, pipeline: Pipeline, settings: Settings) -> Remembered | None:
    """Give what earlier queries measured; None when the database cannot be opened."""
    from api.bootstrap.knowledge import remembered

    try:
        return remembered(pipeline, settings.database_url)
    except Unavailable as error:
        screen.note(f"planning from nothing: {error}")
        return None


class _Watching:
    """An observer that shows progress and hands Ctrl-C on."""

    def __init__(
        self,
        lines: Follow | None,
        interrupts: list[int],
        query: Query,
        infrastructure: Infrastructure,
        *,
        only_estimate: bool,
    ) -> None:
        self._only_estimate = only_estimate
        self._expected: dict[str, tuple[str, str]] = {}
        self._lines = lines
        self._interrupts = interrupts
        self._query = query
        self._infrastructure = infrastructure

    def progress(self, progress: Progress) -> None:
        """Redraw the line."""
        if self._only_estimate and progress.phase is Phase.PROBING:
            self._interrupts.append(signal.SIGINT)
        if self._lines is None:
            return
        view = progress_view(progress, self._query.slo, self._infrastructure)
        best = "" if view.best is None else view.best.id
        if view.bill is not None and view.bill.forecast is not None:
            self._expected = {"expected": ("", forecast_words(view.bill.forecast))}
        line = (view.phase + best, progress_words(view))
        self._lines.update({**self._expected, self._query.pipeline: line})

    def cancelled(self) -> bool:
        """Give whether Ctrl-C was pressed."""
        return bool(self._interrupts)


@contextmanager
def _cancelled_by_interrupt() -> Iterator[list[int]]:
    """Collect the first interrupt instead of raising; a second one raises as always."""
    seen: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, _frame: object) -> None:
        seen.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def _show(
    screen: Screen,
    request: QueryRequest,
    query: Query,
    infrastructure: Infrastructure,
    result: PlanningResult,
) -> None:
    plans = [plan_view(plan, query.slo, infrastructure) for plan in result.plans]
    planning = planning_view(query.planning)
    missed = result.shortfall
    shortfall = None if missed is None else shortfall_view(missed, query.slo, infrastructure)
    document: dict[str, object] = {
        "outcome": result.outcome.value,
        "planning": planning.model_dump(mode="json"),
        "plans": [found.model_dump(mode="json") for found in plans],
        "measured": result.measured,
        "failed": result.failed,
        "inputs": result.inputs,
        "spent_s": result.spent_s,
        "saved_s": result.saved_s,
        "bill": bill_view(result.bill).model_dump(mode="json"),
        "stopped_because": result.stopped_because,
        "shortfall": None if shortfall is None else shortfall.model_dump(mode="json"),
        "defaults": list(formats.defaults(request)),
    }
    told = f"planned by {formats.planned_by(planning)}"
    screen.show(told, *_parts(request, result, plans, shortfall), document=document)


def _show_estimate(screen: Screen, result: PlanningResult) -> None:
    """Print what planning would cost.

    Raises:
        InvalidInput: If no probe succeeded.
    """
    bill = bill_view(result.bill)
    if bill.forecast is None:
        raise InvalidInput.of("FILE", "must have probes that succeed", result.stopped_because)
    screen.show(
        f"expected: {forecast_words(bill.forecast)}",
        document={"bill": bill.model_dump(mode="json")},
    )


def _parts(
    request: QueryRequest,
    result: PlanningResult,
    plans: list[PlanView],
    shortfall: ShortfallView | None,
) -> Iterator[RenderableType]:
    yield (
        f"{result.outcome.value}: {result.measured} configurations measured, "
        f"{formats.seconds(result.spent_s)} of operators spent"
    )
    yield f"stopped because {result.stopped_because}"
    yield from bill_lines(bill_view(result.bill))
    if plans:
        yield plans_table(plans, title=formats.objectives(request))
    if shortfall is not None:
        yield shortfall_text(shortfall)
