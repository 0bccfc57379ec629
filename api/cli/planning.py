"""`circinus plan` and `circinus validate`: a query file, without a service."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import RenderableType

from circinus.api.bootstrap.fingerprints import data_fingerprint
from circinus.api.cli.command import ExitCode, leave
from circinus.api.cli.options import (
    Cold,
    InfrastructureName,
    MethodName,
    QueryFile,
    pipeline_here,
    settings_with,
)
from circinus.api.cli.rendering import formats
from circinus.api.cli.rendering.tables import plans_table, progress_words, shortfall_text
from circinus.api.cli.screen import Follow, Screen
from circinus.api.executor_choice import FORMS, ExecutorKind, executor_choice
from circinus.api.query_file import load_data, query_schema, read_infrastructure, read_query
from circinus.api.schemas.planning import PlanningRequest, planning_view
from circinus.api.schemas.plans import plan_view
from circinus.api.schemas.progress import BillView, progress_view, shortfall_view
from circinus.api.schemas.query import QueryRequest, to_query
from circinus.api.settings import Settings
from circinus.deploy.methods import method_of
from circinus.pipelines.configuration import ConfigurationSpace
from circinus.pipelines.dataset import Dataset
from circinus.pipelines.errors import InvalidInput, Unavailable
from circinus.pipelines.fitting import fitted
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.payload import content_hash
from circinus.pipelines.pipeline import Pipeline
from circinus.pipelines.query import Query
from circinus.pipelines.restrictions import words
from circinus.planner.search.result import (
    PlanningOutcome,
    PlanningPhase,
    PlanningProgress,
    PlanningResult,
)

if TYPE_CHECKING:
    from circinus.api.bootstrap.planning import Remembered

_DEFAULT_INFRASTRUCTURE = "local"
_EXIT_CODES = {
    PlanningOutcome.FEASIBLE: ExitCode.OK,
    PlanningOutcome.INFEASIBLE: ExitCode.INFEASIBLE,
    PlanningOutcome.EXHAUSTED: ExitCode.EXHAUSTED,
    PlanningOutcome.CANCELLED: ExitCode.INTERRUPTED,
}


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
    asked = _asked(file, tiers, settings_with())
    request, pipeline = asked.request, asked.pipeline
    size = ConfigurationSpace(fitted(asked.query, pipeline.graph, tiers).graph).size
    held = words(asked.query.restrictions)
    screen.show(
        f"{file}: valid",
        f"  {pipeline.name}: {size} configurations, {len(asked.dataset)} inputs",
        f"  {formats.objectives(request)}",
        f"  {asked.planned_by}",
        *(f"  restriction: {line}" for line in held),
        *(f"  {line}" for line in formats.defaults(request)),
        document={
            "valid": True,
            "query": request.model_dump(mode="json"),
            "defaults": list(formats.defaults(request)),
            "restrictions": list(held),
            "planning": asked.planning,
            "configurations": size,
            "inputs": len(asked.dataset),
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
        str, typer.Option(envvar="CIRCINUS_EXECUTOR", help=f"What runs operators: {FORMS}.")
    ] = ExecutorKind.IN_PROCESS.value,
    workers: Annotated[
        int,
        typer.Option(
            "--executor-workers",
            envvar="CIRCINUS_EXECUTOR_WORKERS",
            help="How many inputs are measured at once, other than in-process.",
            min=1,
        ),
    ] = 1,
    cold: Cold = False,
    method: MethodName = None,
) -> None:
    """Plan a query in this process, without a service. Ctrl-C ends it with what was found.

    The exit code is 3 when no plan can meet the objectives, 4 when a limit came first.
    """
    # gpytorch behind it: only when planning
    from circinus.api.bootstrap.execution import opened_executor
    from circinus.api.bootstrap.planning import Kept, plan_query

    settings = settings_with()
    asked = _asked(file, read_infrastructure(infrastructure), settings, method)
    choice = executor_choice(executor, workers=workers)
    lines = (f"infrastructure: {asked.tiers.name}", *formats.defaults(asked.request))
    for line in (*lines, asked.planned_by):
        screen.note(line)
    memory = None if cold or asked.request.cold else _memory(screen, asked.pipeline, settings)
    kept = Kept(history=() if memory is None else memory.earlier())
    if kept.history:
        screen.note(f"starting from what {len(kept.history)} earlier queries measured")
    _, tiers, pipeline, query, dataset = asked
    running = opened_executor(
        choice, asked.request.pipeline, pipeline, tiers, settings.worker_logs
    )
    with running as runs, Follow(screen.err) as told, _cancelled_by_interrupt() as cancelled:
        shown = None if screen.as_json else told
        watching = _Watching(shown, cancelled, asked, only_estimate=estimate)
        result = plan_query(query, tiers, pipeline, dataset, watching, kept=kept, executor=runs)
    if estimate:
        _show_estimate(screen, result)
        return
    if memory is not None:
        name = content_hash(f"{data_fingerprint(dataset)} {query.slo}")
        memory.remember(f"plan {name}", query, result)
    _show(screen, asked, result)
    leave(_EXIT_CODES[result.outcome])


class _Asked(NamedTuple):
    """What a query file asks for, loaded."""

    request: QueryRequest
    tiers: Infrastructure
    pipeline: Pipeline
    query: Query
    dataset: Dataset

    @property
    def planning(self) -> dict[str, object]:
        """How it is planned, for `--json`."""
        return planning_view(self.query.planning).model_dump(mode="json")

    @property
    def planned_by(self) -> str:
        """The same in words."""
        return f"planned by {formats.planned_by(planning_view(self.query.planning))}"


def _asked(
    file: Path, tiers: Infrastructure, settings: Settings, method: str | None = None
) -> _Asked:
    """Give what a file asks for; a method goes before the file's, and that before the settings'.

    Raises:
        InvalidInput: With every broken rule that was found in one of its parts.
    """
    request = read_query(file)
    if method is not None:
        named = {"method": method_of(method, "--method").name}
        planning = (request.planning or PlanningRequest()).model_copy(update=named)
        request = request.model_copy(update={"planning": planning})
    pipeline = pipeline_here(request.pipeline)
    query = to_query(request, pipeline=pipeline.name, method=settings.chosen_method)
    return _Asked(
        request, tiers, pipeline, query, load_data(request.data, pipeline, base=file.parent)
    )


def _memory(screen: Screen, pipeline: Pipeline, settings: Settings) -> Remembered | None:
    """Give what earlier queries measured; None when the database cannot be opened."""
    from circinus.api.bootstrap.planning import remembered

    try:
        return remembered(pipeline, settings.database_url)
    except Unavailable as error:
        screen.note(f"planning from nothing: {error}")
        return None


@dataclass
class _Watching:
    """An observer that shows progress and hands Ctrl-C on."""

    lines: Follow | None
    interrupts: list[int]
    asked: _Asked
    only_estimate: bool = field(kw_only=True)
    expected: dict[str, tuple[str, str]] = field(default_factory=dict)

    def progress(self, progress: PlanningProgress) -> None:
        """Redraw the line."""
        if self.only_estimate and progress.phase is PlanningPhase.PROBING:
            self.interrupts.append(signal.SIGINT)
        if self.lines is None:
            return
        query = self.asked.query
        view = progress_view(progress, query.slo, self.asked.tiers)
        best = "" if view.best is None else view.best.id
        if view.bill is not None and view.bill.forecast is not None:
            self.expected = {"expected": ("", formats.forecast(view.bill.forecast))}
        line = (view.phase + best, progress_words(view))
        self.lines.update({**self.expected, query.pipeline: line})

    def cancelled(self) -> bool:
        """Give whether Ctrl-C was pressed."""
        return bool(self.interrupts)


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


def _show(screen: Screen, asked: _Asked, result: PlanningResult) -> None:
    slo, tiers = asked.query.slo, asked.tiers
    plans = [plan_view(found, slo, tiers) for found in result.plans]
    missed = result.shortfall
    shortfall = None if missed is None else shortfall_view(missed, slo, tiers)
    bill = BillView.of(result.bill)
    document: dict[str, object] = {
        "outcome": result.outcome.value,
        "planning": asked.planning,
        "plans": [found.model_dump(mode="json") for found in plans],
        "measured": result.measured,
        "failed": result.failed,
        "inputs": result.inputs,
        "spent_s": result.spent_s,
        "saved_s": result.saved_s,
        "bill": bill.model_dump(mode="json"),
        "stopped_because": result.stopped_because,
        "shortfall": None if shortfall is None else shortfall.model_dump(mode="json"),
        "defaults": list(formats.defaults(asked.request)),
    }
    parts: list[RenderableType] = [
        asked.planned_by,
        f"{result.outcome.value}: {result.measured} configurations measured, "
        f"{formats.seconds(result.spent_s)} of operators spent",
        f"stopped because {result.stopped_because}",
        *formats.bill_lines(bill),
    ]
    if plans:
        parts.append(plans_table(plans, title=formats.objectives(asked.request)))
    if shortfall is not None:
        parts.append(shortfall_text(shortfall))
    screen.show(*parts, document=document)


def _show_estimate(screen: Screen, result: PlanningResult) -> None:
    """Print what planning would cost.

    Raises:
        InvalidInput: If no probe succeeded.
    """
    bill = BillView.of(result.bill)
    if bill.forecast is None:
        raise InvalidInput.of("FILE", "must have probes that succeed", result.stopped_because)
    screen.show(
        f"expected: {formats.forecast(bill.forecast)}",
        document={"bill": bill.model_dump(mode="json")},
    )
