"""`circinus.plan`: returns the plans of a pipeline or a chain for data and objectives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from pathlib import Path
from threading import Event
from typing import Any, ParamSpec

from circinus.api.bootstrap.execution import plan_here
from circinus.api.bootstrap.planning import PriorWork
from circinus.api.library.display import BarObserver, bar
from circinus.api.library.findings import PlannedFindings
from circinus.api.library.inputs import Data, Plannable, Scored, handed_over, local_query
from circinus.api.library.memory import PlanningMemory
from circinus.api.library.planned import Planned
from circinus.api.settings import Settings
from circinus.api.store.interrupted import FileJournal
from circinus.api.text.screen import interruptible
from circinus.api.use_cases.knowledge import drawn
from circinus.deploy.planning import planner_of
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.query import PlanningLimits
from circinus.profiler.drawing import Drawing
from circinus.profiler.set_scores import Recorded, set_scores_of

_STOP: ContextVar[Event | None] = ContextVar("stop", default=None)
"""Ends the planning of this context when it is set; None: only Ctrl-C does."""
_DEFAULTS = PlanningLimits()

P = ParamSpec("P")


def plan(  # noqa: PLR0913 - a query has as many parts, all but four with a default
    pipeline_or_chain: Plannable,
    data: Data,
    *,
    accuracy: float,
    latency_s: float | None = None,
    cost_usd_per_hour: float | None = None,
    cost_usd_per_1000_requests: float | None = None,
    throughput_per_s: float | None = None,
    latency_statistic: str = "mean",
    holds_for: str = "examples",
    score: Scored | None = None,
    choices: Mapping[str, Sequence[KnobValue]] | None = None,
    name: str | None = None,
    columns: tuple[str, str] = ("input", "expected"),
    infrastructure: str | Path | Infrastructure = "local",
    request_rate_per_s: float | None = None,
    restrictions: Mapping[str, Any] | None = None,
    device: Mapping[str, float] | None = None,
    on_failure: str = "score_zero",
    draws: Sequence[str] = (),
    profiling_s: float = _DEFAULTS.profiling_s,
    profiling_usd: float | None = None,
    response_s: float | None = _DEFAULTS.response_s,
    configurations: int | None = None,
    method: str | Mapping[str, str] | None = None,
    seed: int = 0,
    cold: bool = False,
    executor: str | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> Planned:
    """Return the plans of a pipeline or chain on some data, or why there are none.

    Operators run in processes of their own, copies of this one, so that what was made in a shell
    or a notebook can be planned. Ctrl-C ends it with the plans so far; the same call goes on
    from what was measured.

    Args:
        pipeline_or_chain: a Pipeline, the name of a registered one, `module:attribute`, a
            LangChain Runnable (or what LangChain makes one of), or a compiled LangGraph graph.
        data: pairs (input, expected), a data frame, a Dataset, the path of a file of JSON lines
            or of a folder, or how many examples the pipeline shall make.
        accuracy: least mean score over the data, or least score over the set, in [0, 1].
        latency_s: most seconds per request; may be left out with `throughput_per_s` only.
        cost_usd_per_hour: most US dollars per hour; None: any.
        cost_usd_per_1000_requests: most US dollars of machines and calls for 1,000 requests; None:
            any.
        throughput_per_s: least requests per second, for batch work; None: any.
        latency_statistic: which figure `latency_s` bounds: mean, p50, p90, p95 or p99.
        holds_for: `examples`, or `future`: with 95 % confidence for inputs of the same source.
        score: of a chain: `score(output, expected)`, or `score(output, expected, input)`, in
            [0, 1]; higher is better. Of a chain or a pipeline, a metric of all outputs together: a
            SetMetric, its name (`sklearn.metrics.f1_score`), or a mapping with `function` and
            `arguments`.
        choices: of a chain: values to try for configurable fields without options, by id.
        name: of a chain; None: `chain`.
        columns: of a data frame, those of inputs and expected outputs.
        infrastructure: a preset, the path of a YAML file, or an Infrastructure.
        request_rate_per_s: expected requests per second; None: one request at a time.
        restrictions: what is not left to the planner: `tiers`, `knobs`, `stays_on_device`, as in
            a query file.
        device: `speed_factor`, `bandwidth_mbit_per_s`, `delay_s` of the user's own device.
        on_failure: what an input on which an operator fails means: score_zero, drop or stop.
        draws: operators, by name, that may answer equal inputs differently, as models that sample
            do. Models with a temperature above 0, and operators observed to, need no name here.
        profiling_s: most operator seconds that planning may spend.
        profiling_usd: most US dollars that it may spend; None: any.
        response_s: most seconds until the answer; None: any.
        configurations: most configurations to measure; None: any.
        method: name of a method, or a mapping with parts of one; None: by CIRCINUS_METHOD.
        seed: of every random choice.
        cold: start from nothing that earlier queries measured.
        executor: what runs operators: pool, in-process, worker:TIER, ray; None: by
            CIRCINUS_EXECUTOR.
        workers: how many inputs are measured at once.
        progress: show a bar on a terminal or in a notebook.

    Raises:
        InvalidInput: with every violation: example or field, rule and value. That no plan meets
            the objectives is no error: `best` is None then, and `shortfall` has the reason.
        Unavailable: if nothing can run operators now.
    """
    settings = Settings()
    document = {
        "slo": _present(
            accuracy=accuracy,
            latency_s=latency_s,
            latency_statistic=latency_statistic,
            cost_usd_per_hour=cost_usd_per_hour,
            cost_usd_per_1000_requests=cost_usd_per_1000_requests,
            throughput_per_s=throughput_per_s,
            holds_for=holds_for,
        ),
        "data": {"on_failure": on_failure},
        "limits": {"profiling_s": profiling_s, "response_s": response_s}
        | _present(profiling_usd=profiling_usd, configurations=configurations),
        "seed": seed,
        "cold": cold,
        "draws": list(draws),
        **_present(
            request_rate_per_s=request_rate_per_s,
            restrictions=restrictions,
            device=device,
            planning={"method": method} if isinstance(method, str) else method,
        ),
    }
    handed = handed_over(pipeline_or_chain, score, choices, name)
    local = local_query(handed, data, columns, infrastructure, document, settings)
    choice = settings.executor_with(executor, workers)
    memory, stop = PlanningMemory.of(local, settings), _STOP.get() or Event()
    with interruptible(stop), bar(local.query.pipeline, wanted=progress) as progress_bar:
        observer = BarObserver(progress_bar, local.query.slo, local.infrastructure, stop)
        result = plan_here(
            local.query,
            local.infrastructure,
            handed.pipeline,
            local.dataset,
            observer=observer,
            reference=handed.reference,
            executor=choice,
            prior=PriorWork(journal=memory.journal, history=memory.history, ledger=memory.ledger),
        )
    interrupted = stop.is_set()
    failures = memory.save(local, result, interrupted=interrupted)
    remarks = (*local.remarks, *memory.remarks, *result.remarks, *failures)
    planner = planner_of(local.query.planning)
    drawing = drawn(planner, handed.pipeline, local.dataset, local.query.seed)
    return Planned(
        PlannedFindings(
            request=local.request,
            query=local.query,
            infrastructure=local.infrastructure,
            graph=handed.pipeline.graph,
            drawing=drawing,
            result=replace(result, remarks=remarks, configurations=()),
            trials=tuple(observer.trials.values()),
            measured=_scored(handed.pipeline, local.dataset, memory.journal, drawing),
            interrupted=interrupted,
        ),
        handed,
    )


def _scored(
    pipeline: Pipeline, dataset: Dataset, journal: FileJournal, drawing: Drawing
) -> tuple[Recorded, ...]:
    """Return what was measured, with scores that need no metric any more."""
    measured, scores = tuple(journal.everything()), set_scores_of(pipeline, dataset, journal)
    if scores is None:
        return measured
    return tuple(scores.scored(measured, drawing.order, len(pipeline.operators)))


def _awaitable(function: Callable[P, Planned]) -> Callable[P, Coroutine[Any, Any, Planned]]:
    @wraps(function)
    async def run(*arguments: P.args, **named: P.kwargs) -> Planned:
        stop = Event()
        before = _STOP.set(stop)
        try:  # the thread has the context of now
            work = asyncio.ensure_future(asyncio.to_thread(function, *arguments, **named))
        finally:
            _STOP.reset(before)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            with suppress(Exception):  # it ends soon; its result is no longer needed
                await asyncio.shield(work)
            raise

    run.__doc__ = """Plan as `plan` does, with the same arguments, while the event loop goes on.

    Cancelling the task ends planning and keeps what was measured: the same call goes on from it.
    """
    return run


plan_async = _awaitable(plan)


def _present(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
