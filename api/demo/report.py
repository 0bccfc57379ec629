"""Results of requests to plans: predicted beside observed, and whether everything worked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf, log

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from circinus.api.client import Client
from circinus.api.demo.changes import MissingMachines, ThinnedLink
from circinus.api.demo.sending import CONFIDENCE, ObservedTraffic, Progress, send
from circinus.api.phases import QueryPhase
from circinus.api.schemas.planning import MethodView
from circinus.api.schemas.plans import OutlookView, PlanView
from circinus.api.schemas.progress import QueryView
from circinus.api.text import formats, tables
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.slo import ANY_LATENCY_S, LatencyStatistic, SloState

LEAST_REQUESTS = 120
REQUESTS = 200
"""That are sent to verify a plan by default."""

_MOST_FAILURES = 3  # unlike ones that are printed
_OFF = 1.5  # times: what the machine of another day may differ by is less
_STYLES = {
    SloState.MET: "green",
    SloState.LIKELY: "green",
    SloState.UNPROVEN: "yellow",
    SloState.VIOLATED: "red",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedQuery:
    """A query that was served."""

    name: str  # for people
    query: QueryView  # at the end
    plan: PlanView  # that ran
    observed: ObservedTraffic

    @property
    def statistic(self) -> LatencyStatistic:
        """Which figure of the latencies is bounded."""
        return self.query.request.slo.latency_statistic

    @property
    def bound_s(self) -> float:
        """Of its latency."""
        latency_s = self.query.request.slo.latency_s
        return ANY_LATENCY_S if latency_s is None else latency_s

    @property
    def predicted(self) -> PlanView | OutlookView:
        """Return the prediction for these inputs.

        Where at least half were not planned on, it is the plan's for future inputs: its
        intervals are wider.
        """
        ahead, observed = self.plan.future, self.observed
        were_met = 2 * observed.planned_on > len(observed.latency_s)
        return self.plan if ahead is None or were_met else ahead

    def document(self) -> dict[str, object]:
        """Return its document for `--json`."""
        plan, observed, predicted = self.plan, self.observed, self.predicted
        return {
            "name": self.name,
            "query_id": self.query.id,
            "plan_id": plan.id,
            "placement": plan.placement,
            "cost_usd_per_hour": plan.cost_usd_per_hour,
            "planning": self.query.planning,
            "objectives": self.query.request.slo,
            "predicted": {"accuracy": predicted.accuracy, "latency_s": predicted.latency_s},
            "observed": {
                "requests": len(observed.latency_s),
                "failed": len(observed.failures),
                "accuracy": observed.accuracy,
                "mean_s": observed.latency(LatencyStatistic.MEAN),
                "latency_s": observed.latency(self.statistic),
                "planned_on": observed.planned_on,
            },
            "off": list(_off(self)),
            "emulated": observed.emulated or bool(plan.emulated),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The end of the demo."""

    served: Sequence[ServedQuery]
    problems: Sequence[str]  # what did not work, in words; empty when everything did
    elapsed_s: float  # on the wall clock
    method: MethodView | None = None  # of the service; None: it was not requested
    # What a thinner link and missing machines led to; None: nothing of the kind was tried.
    link: ThinnedLink | None = None
    machines: MissingMachines | None = None

    @property
    def worked(self) -> bool:
        """Whether everything did."""
        return not self.problems

    def document(self) -> dict[str, object]:
        """Return the report for machines."""
        return {
            "worked": self.worked,
            "problems": self.problems,
            "method": self.method,
            "elapsed_s": round(self.elapsed_s, 1),
            "queries": [served.document() for served in self.served],
            "link": self.link,
            "machines": self.machines,
        }


def verified(
    client: Client,
    query_id: str,
    requests: int | None,
    seed: int,
    clock: Clock,
    progress: Progress,
) -> Report:
    """Send requests, at least 2, to a query, and return how its plan performed.

    None: `REQUESTS`, or as many as its pipeline has examples if these are fewer. A problem is a
    request that failed, an answer without a score, and an objective that the whole confidence
    interval of the observations breaks; an interval that covers it is none. InvalidInput if the
    query does not serve, or was planned on the inputs of this seed; Refused and Unavailable as of
    the client.
    """
    start = clock.now()
    query = client.query(query_id)
    deployed = client.deployment(query_id).plan_id
    if query.phase is not QueryPhase.SERVING or deployed is None:
        raise InvalidInput.of("phase", "must be serving", query.phase.value)
    if query.request.data.examples is not None and seed == query.request.data.seed:
        raise InvalidInput.of("seed", "must not be that of the query's data", seed)
    plan = client.plan(deployed)
    if requests is None:
        known = {each.name: each.examples for each in client.pipelines().items}
        requests = min(REQUESTS, known.get(query.request.pipeline) or REQUESTS)
    observed = send(client, query_id, requests, progress, seed=seed)
    served = ServedQuery(name=query_id, query=query, plan=plan, observed=observed)
    problems = tuple(_broken(served))
    return Report(served=(served,), problems=problems, elapsed_s=clock.now() - start)


def _broken(served: ServedQuery) -> Iterator[str]:
    """Yield what did not work, in words."""
    slo, observed = served.query.request.slo, served.observed
    for failure in [*dict.fromkeys(observed.failures)][:_MOST_FAILURES]:
        yield f"{len(observed.failures)} requests failed, such as: {failure}"
    if len(observed.score) != len(observed.latency_s):
        yield "answers were not scored"
    accuracy = observed.accuracy
    if accuracy is not None and accuracy.at_least(slo.accuracy) is SloState.VIOLATED:
        yield f"accuracy {accuracy.value:.4g} is below the objective, {slo.accuracy:g}"
    if observed.latency_state(served.statistic, served.bound_s) is SloState.VIOLATED:
        value = served.statistic.of(np.array(observed.latency_s))
        figure = f"{served.statistic.value} latency {formats.seconds(float(value))}"
        yield f"{figure} is above the objective, {formats.seconds(served.bound_s)}"


def _unsure(served: ServedQuery) -> Iterator[str]:
    """Yield how many requests would bound a percentile, where these do not."""
    latency, quantile = served.observed.latency(served.statistic), served.statistic.quantile
    if latency is None or quantile is None or latency.confidence >= CONFIDENCE:
        return
    # Some request is above the percentile with the confidence of one side.
    enough = ceil(log((1 - CONFIDENCE) / 2) / log(quantile))
    yield (
        f"the interval of the {served.statistic.value} latency holds with "
        f"{latency.confidence:.0%} only: {enough} requests would bound it from above"
    )


def _off(served: ServedQuery) -> Iterator[str]:
    """Yield the predictions that are off, and why that may be."""
    predicted, observed = served.predicted.latency_s, served.observed.latency(served.statistic)
    if observed is None or not predicted.value or not observed.value:
        return
    apart = (predicted.low or 0.0) > observed.high or (predicted.high or inf) < observed.low
    factor = predicted.value / observed.value
    if apart and not 1 / _OFF < factor < _OFF:
        why = "planned while the machine was busy, or tiers that are faster than stated"
        if factor < 1:
            why = "served while the machine is busy, or tiers that are slower than stated"
        yield (
            f"{served.statistic.value} latency was predicted as {formats.latency(predicted)}, "
            f"{factor:.2g} times what was observed: {why}"
        )


def problems_of(served: Sequence[ServedQuery]) -> Iterator[str]:
    """Yield what did not work about the requests of the demo, missed objectives among it."""
    answered = sum(len(item.observed.latency_s) for item in served)
    if answered < LEAST_REQUESTS:
        yield f"only {answered} requests were answered, {LEAST_REQUESTS} should be"
    for item in served:
        yield from (f"{item.name}: {problem}" for problem in _broken(item))


def comparison(served: Sequence[ServedQuery]) -> Iterator[RenderableType]:
    """Yield predicted beside observed, for every query that was served."""
    known = sum(item.observed.planned_on for item in served)
    title = f"Predicted and observed, on inputs of which {known or 'none'} were planned on"
    rows = (row for item in served for row in _compared(item))
    yield tables.table(title, "query", "objective", "predicted", "observed", "SLO", rows=rows)
    yield f"  In brackets: {CONFIDENCE:.0%} confidence intervals. An SLO is met or violated"
    yield "  when the whole interval says so, else likely or unproven."
    for item in served:
        yield from (f"  {line}" for line in (*_unsure(item), *_off(item)))
    emulated = sorted({tier for item in served for tier in item.plan.emulated})
    parts = [f"the speed of {', '.join(emulated)}"] if emulated else []
    if any(item.observed.emulated for item in served):
        parts.append("the links between tiers")
    waits = f"Emulated on this computer by waiting: {' and '.join(parts)}."
    yield f"  {waits if parts else 'Nothing was emulated.'}"


def _compared(item: ServedQuery) -> Iterator[Sequence[RenderableType]]:
    slo, predicted, bound_s = item.query.request.slo, item.predicted, item.bound_s
    accuracy, statistic = item.observed.accuracy, item.statistic
    yield (
        item.name,
        f"accuracy >= {slo.accuracy:g}",
        formats.accuracy(predicted.accuracy),
        formats.accuracy(accuracy),
        _state(None if accuracy is None else accuracy.at_least(slo.accuracy)),
    )
    yield (
        "",
        f"{statistic.value} latency <= {formats.seconds(bound_s)}",
        formats.latency(predicted.latency_s),
        formats.latency(item.observed.latency(statistic)),
        _state(item.observed.latency_state(statistic, bound_s)),
    )


def _state(state: SloState | None) -> Text:
    return Text(formats.UNKNOWN) if state is None else Text(state.value, style=_STYLES[state])
