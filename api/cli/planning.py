"""`circinus plan` and `circinus validate`: a query file, or a chain by name, without a service."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Annotated

from rich.console import RenderableType
from typer import Option

from circinus.api.bootstrap import planning
from circinus.api.bootstrap.calls import planning_gate
from circinus.api.bootstrap.execution import opened_executor
from circinus.api.bootstrap.registry import pipeline_here, reference_here, settings_with
from circinus.api.cli import options
from circinus.api.cli.command import ExitCode, leave
from circinus.api.cli.labelling import LabelDesk
from circinus.api.cli.query_source import MaybeWhat, QuerySource, Sets, What, read_source
from circinus.api.library.inputs import Handed, LocalQuery
from circinus.api.query_file import (
    completed,
    load_data,
    query_of,
    query_schema,
    read_infrastructure,
)
from circinus.api.schemas.planning import PlanningRequest, planning_view
from circinus.api.schemas.plans import plan_view
from circinus.api.schemas.progress import progress_view, shortfall_view
from circinus.api.schemas.query import to_query
from circinus.api.settings import FORMS, Settings
from circinus.api.text import formats, tables
from circinus.api.text.screen import Follow, Screen, interruptible
from circinus.api.use_cases.queries import require_affordable
from circinus.deploy.methods import method_of, most_earlier
from circinus.deploy.profiling.checking import CHECK_S, checked, tried
from circinus.pipelines.errors import InvalidInput, Unavailable
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.query import Query, fitted
from circinus.pipelines.model.restrictions import words
from circinus.pipelines.model.slo import HoldsFor
from circinus.planner.models.ahead import accuracy_needed, doubt
from circinus.planner.search import result as search

_DEFAULT_INFRASTRUCTURE = "local"
_WORKERS_HELP = "How many inputs are measured at once, other than in-process."
_EXIT_CODES = {
    search.PlanningOutcome.FEASIBLE: ExitCode.OK,
    search.PlanningOutcome.INFEASIBLE: ExitCode.INFEASIBLE,
    search.PlanningOutcome.EXHAUSTED: ExitCode.EXHAUSTED,
    search.PlanningOutcome.FAILED: ExitCode.FAILED,
    search.PlanningOutcome.CANCELLED: ExitCode.INTERRUPTED,
}


def validate(
    screen: Screen,
    file: MaybeWhat = None,
    infrastructure: options.InfrastructureName = _DEFAULT_INFRASTRUCTURE,
    sets: Sets = None,
    schema: Annotated[bool, "Print the JSON schema of query files instead."] = False,
) -> None:
    """Check a query, its pipeline and data, and an infrastructure; runs one example."""
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
    loaded = _loaded(read_source(file, sets), tiers, settings_with())
    request, tiers, pipeline = loaded.request, loaded.infrastructure, loaded.handed.pipeline
    require_affordable(loaded.query, tiers, pipeline)
    size = ConfigurationSpace(fitted(loaded.query, pipeline.graph, tiers).graph).size
    held, doubts = words(loaded.query.restrictions), _doubts(loaded)
    trial_remarks = tried(loaded.handed.reference, pipeline, loaded.dataset.examples)
    remarks = (*loaded.remarks, *trial_remarks)
    screen.show(
        f"{file}: valid",
        f"  {pipeline.name}: {size} configurations, {len(loaded.dataset)} inputs",
        f"  {formats.objectives(request)}",
        f"  {_planned_by(loaded.query)}",
        *(f"  restriction: {line}" for line in held),
        *(f"  {line}" for line in doubts),
        *(f"  {line}" for line in formats.defaults(request)),
        *(f"  remark: {remark}" for remark in remarks),
        document={
            "valid": True,
            "query": request,
            "defaults": formats.defaults(request),
            "restrictions": held,
            "doubts": doubts,
            "planning": planning_view(loaded.query.planning),
            "configurations": size,
            "inputs": len(loaded.dataset),
            "remarks": remarks,
        },
    )


def plan(
    screen: Screen,
    file: What,
    infrastructure: options.InfrastructureName = _DEFAULT_INFRASTRUCTURE,
    sets: Sets = None,
    estimate: Annotated[bool, "Only estimate the cost of planning, by a few probes."] = False,
    executor: Annotated[
        str | None, Option(help=f"What runs operators: {FORMS}; default: CIRCINUS_EXECUTOR, pool.")
    ] = None,
    executor_workers: Annotated[int | None, Option(help=_WORKERS_HELP, min=1)] = None,
    cold: options.Cold = False,
    method: options.MethodName = None,
    labels: Annotated[
        Path | None,
        Option(help="File of labels for a judge; default: FILE with the ending .labels.jsonl."),
    ] = None,
) -> None:
    """Plan a query in this process, without a service. Ctrl-C ends it with the plans so far.

    The exit code is 3 when no plan can meet the objectives, 4 when a limit ended it before.
    """
    settings = settings_with()
    loaded = _loaded(
        read_source(file, sets), read_infrastructure(infrastructure), settings, method
    )
    request, tiers, query, dataset = (
        loaded.request,
        loaded.infrastructure,
        loaded.query,
        loaded.dataset,
    )
    pipeline, reference = loaded.handed.pipeline, loaded.handed.reference
    choice = settings.executor_with(executor, executor_workers)
    notes = (f"infrastructure: {tiers.name}", *formats.defaults(request), _planned_by(query))
    for line in (*notes, *loaded.remarks):
        screen.note(line)
    memory = None if cold or request.cold else _memory(screen, pipeline, settings)
    name = planning.planned_name(pipeline, dataset, query)
    beside = Path(file) if Path(file).is_file() else Path(f"{pipeline.name}.yaml")
    desk = LabelDesk.opened(loaded, name, (beside, labels), memory, settings)
    prior = _prior_work(desk, memory, query)
    if prior.history:
        screen.note(f"starting from what {len(prior.history)} earlier queries measured")
    if pipeline.remarks is not None:
        screen.note(f"checking {pipeline.name} on a few inputs, for {CHECK_S:g} s at most")
    check = checked(reference, pipeline, dataset.examples)
    prior = replace(prior, draws=check.draws)
    for remark in check.remarks:
        screen.note(remark)
    logs, url = settings.worker_logs, None if memory is None else settings.database_url
    with (
        planning_gate(query, tiers, pipeline, database_url=url) as gate,
        opened_executor(choice, reference, pipeline, tiers, logs, gate.permits) as runs,
        screen.follow() as lines,
    ):
        watching = _Watching(lines, loaded, only_estimate=estimate)
        with interruptible(watching.stop):
            result = planning.plan_query(
                query,
                tiers,
                pipeline,
                dataset,
                watching,
                prior=prior,
                executor=runs,
                gate=gate,
                labelling=None if desk is None else desk.labelling,
            )
    if estimate:
        expected = result.bill.forecast
        if expected is None:
            raise InvalidInput.of("FILE", "must have probes that succeed", result.stopped_because)
        screen.show(*formats.forecast_lines(expected), document={"bill": result.bill})
        return
    if memory is not None:
        try:
            memory.remember(name, query, result)
        except Unavailable as error:  # the plans were paid for all the same
            screen.note(f"not remembered: {error}")
    _show(screen, loaded, result, desk)
    leave(_EXIT_CODES[result.outcome])


def _prior_work(
    desk: LabelDesk | None, memory: planning.Remembered | None, query: Query
) -> planning.PriorWork:
    """Return what earlier planning left: with labels that of the very same query, too."""
    if desk is not None:
        return planning.PriorWork(journal=desk.journal, history=desk.history)
    most = most_earlier(query.planning)
    return planning.PriorWork(history=() if memory is None else memory.earlier(most))


def _loaded(
    source: QuerySource, tiers: Infrastructure, settings: Settings, method: str | None = None
) -> LocalQuery:
    """Return the query; a method overrides the query's, and that overrides the settings'.

    Raises InvalidInput with every violation in one of its parts.
    """
    request = query_of(source.document)
    if method is not None:
        named = {"method": method_of(method, "--method").name}
        changed = (request.planning or PlanningRequest()).model_copy(update=named)
        request = request.model_copy(update={"planning": changed})
    pipeline = pipeline_here(request.pipeline)
    query = to_query(request, pipeline=pipeline.name, method=settings.chosen_method)
    tiers, remarks = completed(tiers, pipeline)
    dataset = load_data(request.data, pipeline, base=source.base)
    return LocalQuery(
        handed=Handed(pipeline=pipeline, reference=reference_here(request.pipeline)),
        request=request,
        query=query,
        dataset=dataset,
        infrastructure=tiers,
        remarks=remarks,
    )


def _planned_by(query: Query) -> str:
    return f"planned by {formats.planned_by(planning_view(query.planning))}"


def _doubts(loaded: LocalQuery) -> list[str]:
    """Return what the examples cannot show of future inputs, before anything is measured."""
    slo, examples = loaded.query.slo, len(loaded.dataset)
    if (message := doubt(slo, examples)) is not None:
        return [message]
    needed = accuracy_needed(slo.accuracy, examples)
    if slo.holds_for is HoldsFor.FUTURE and needed is not None:
        message = f"must score {needed:.4g} to show {slo.accuracy:g} for future inputs"
        return [f"where scores are 0 and 1, the {examples} examples {message}"]
    return []


def _memory(screen: Screen, pipeline: Pipeline, settings: Settings) -> planning.Remembered | None:
    """Return what earlier queries measured; None when the database cannot be opened."""
    try:
        return planning.remembered(pipeline, settings.database_url)
    except Unavailable as error:
        screen.note(f"planning from nothing: {error}")
        return None


@dataclass
class _Watching:
    """An observer that shows progress and hands Ctrl-C on."""

    lines: Follow
    loaded: LocalQuery
    only_estimate: bool = field(kw_only=True)
    stop: Event = field(default_factory=Event)
    expected: dict[str, tuple[str, str]] = field(default_factory=dict)
    best: tables.BestPlan = field(default_factory=tables.BestPlan)

    def progress(self, progress: search.PlanningProgress) -> None:
        """Redraw the line."""
        if self.only_estimate and progress.phase is search.PlanningPhase.PROBING:
            self.stop.set()
        query = self.loaded.query
        view = progress_view(progress, query.slo, self.loaded.infrastructure)
        best = "" if view.best is None else view.best.id
        if progress.bill.forecast is not None:
            self.expected = {"expected": ("", formats.forecast(progress.bill.forecast))}
        line = (view.phase + best, tables.progress_words(view, self.best))
        self.lines.update({**self.expected, query.pipeline: line})

    def cancelled(self) -> bool:
        """Return whether Ctrl-C was pressed."""
        return self.stop.is_set()


def _show(
    screen: Screen, loaded: LocalQuery, result: search.PlanningResult, desk: LabelDesk | None
) -> None:
    slo, tiers, missed = loaded.query.slo, loaded.infrastructure, result.shortfall
    plans = [plan_view(planned, slo, tiers) for planned in result.plans]
    shortfall = None if missed is None else shortfall_view(missed, slo, tiers)
    figures = ("measured", "failed", "inputs", "spent_s", "saved_s", "bill", "stopped_because")
    document: dict[str, object] = {
        "outcome": result.outcome,
        "planning": planning_view(loaded.query.planning),
        "plans": plans,
        **{name: getattr(result, name) for name in (*figures, "failures", "left_out", "remarks")},
        "shortfall": shortfall,
        "defaults": formats.defaults(loaded.request),
    }
    parts: list[RenderableType] = [
        _planned_by(loaded.query),
        f"{result.outcome.value}: {result.measured} configurations measured, "
        f"{formats.seconds(result.spent_s)} of operators spent",
        f"stopped because {result.stopped_because}",
        *formats.bill_lines(result.bill),
        *formats.failure_lines(progress_view(search.PlanningSummary.of(result), slo, tiers)),
    ]
    if desk is not None:
        messages, document["judge"] = desk.close(result.plans)
        parts += messages
    if plans:
        parts.append(tables.plans_table(plans, title=formats.objectives(loaded.request)))
    if shortfall is not None:
        parts.append(tables.shortfall_text(shortfall))
    screen.show(*parts, document=document)
