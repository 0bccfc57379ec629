"""What requests to plans give: predicted beside observed, and whether everything worked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import RenderableType
from rich.text import Text
from scipy import stats

from circinus.api.cli.rendering import formats, tables
from circinus.api.client import Client
from circinus.api.phases import QueryPhase
from circinus.api.schemas.planning import MethodView
from circinus.api.schemas.plans import PlanView
from circinus.api.schemas.progress import QueryView
from circinus.api.schemas.service import ExampleReference, RequestBody
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError, InvalidInput
from circinus.pipelines.slo import ANY_LATENCY_S, Estimate, LatencyStatistic, SloState

LEAST_REQUESTS = 200
CONFIDENCE = 0.95

_MOST_FAILURES_TOLD = 3
_STYLES = {
    SloState.MET: "green",
    SloState.LIKELY: "green",
    SloState.UNPROVEN: "yellow",
    SloState.VIOLATED: "red",
}

Told = Callable[[str, int], None]  # called with the query and the number of its requests done


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTraffic:
    """What the requests to one query gave."""

    latency_s: Sequence[float]  # of every request that was answered
    score: Sequence[float]  # likewise
    failures: Sequence[str]  # of the others, in words
    emulated: bool  # whether a tier or link on the way is

    @property
    def accuracy(self) -> Estimate | None:
        """Mean score, with its interval; None: of fewer than two answers."""
        return _mean(self.score)

    @property
    def mean_s(self) -> Estimate | None:
        """Mean latency, with its interval; None: of fewer than two answers."""
        return _mean(self.latency_s)

    def failures_told(self) -> Sequence[str]:
        """Give the first few unlike failures."""
        return list(dict.fromkeys(self.failures))[:_MOST_FAILURES_TOLD]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedQuery:
    """A query that was served."""

    name: str  # for people
    query: QueryView  # at the end
    plan: PlanView  # that ran
    observed: ObservedTraffic

    @property
    def bound_s(self) -> float:
        """Of its latency."""
        latency_s = self.query.request.slo.latency_s
        return ANY_LATENCY_S if latency_s is None else latency_s

    def document(self) -> dict[str, object]:
        """Give what `--json` tells of it."""
        plan, observed = self.plan, self.observed
        return {
            "name": self.name,
            "query_id": self.query.id,
            "plan_id": plan.id,
            "planning": self.query.planning,
            "objectives": self.query.request.slo,
            "predicted": {"accuracy": plan.accuracy, "latency_s": plan.latency_s},
            "observed": {
                "requests": len(observed.latency_s),
                "failed": len(observed.failures),
                "accuracy": observed.accuracy,
                "mean_s": observed.mean_s,
            },
            "emulated": observed.emulated or bool(plan.emulated),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The end of the demo."""

    served: Sequence[ServedQuery]
    problems: Sequence[str]  # what did not work, in words; empty when everything did
    elapsed_s: float  # on the wall clock
    method: MethodView | None = None  # of the service; None: it was not asked for

    @property
    def worked(self) -> bool:
        """Whether everything did."""
        return not self.problems

    def document(self) -> dict[str, object]:
        """Give the report for machines."""
        return {
            "worked": self.worked,
            "problems": self.problems,
            "method": self.method,
            "elapsed_s": round(self.elapsed_s, 1),
            "queries": [served.document() for served in self.served],
        }


def send(
    client: Client, query_id: str, requests: int, told: Told, *, seed: int
) -> ObservedTraffic:
    """Send requests to a query that serves, one after the other, with the inputs of a seed."""
    replies, failures = [], []
    for index in range(requests):
        example = ExampleReference(index=index, seed=seed, count=requests)
        try:
            replies.append(client.request(query_id, RequestBody(example=example)))
        except CircinusError as error:
            failures.append(str(error))
        told(query_id, index + 1)
    return ObservedTraffic(
        latency_s=[reply.latency_s for reply in replies],
        score=[reply.score for reply in replies if reply.score is not None],
        failures=failures,
        emulated=any(reply.emulated for reply in replies),
    )


def verified(
    client: Client, query_id: str, requests: int, seed: int, clock: Clock, told: Told
) -> Report:
    """Send requests, at least 2, to a query, and give what they say of its plan.

    A problem is a request that failed, an answer without a score, and an objective that the whole
    confidence interval of what was observed breaks; an interval that covers it is none. Of
    latencies the mean is judged, where that is the objective. InvalidInput if the query does not
    serve, or was planned on the inputs of this seed; Refused and Unavailable as of the client.
    """
    start = clock.now()
    query = client.query(query_id)
    deployed = client.deployment(query_id).plan_id
    if query.phase is not QueryPhase.SERVING or deployed is None:
        raise InvalidInput.of("phase", "must be serving", query.phase.value)
    if seed == query.request.data.seed:
        raise InvalidInput.of("seed", "must not be that of the query's data", seed)
    plan = client.plan(deployed)
    observed = send(client, query_id, requests, told, seed=seed)
    served = ServedQuery(name=query_id, query=query, plan=plan, observed=observed)
    problems = tuple(_broken(served))
    return Report(served=(served,), problems=problems, elapsed_s=clock.now() - start)


def _broken(served: ServedQuery) -> Iterator[str]:
    slo, observed = served.query.request.slo, served.observed
    for failure in observed.failures_told():
        yield f"{len(observed.failures)} requests failed, such as: {failure}"
    if len(observed.score) != len(observed.latency_s):
        yield "answers were not scored"
    accuracy, mean_s = observed.accuracy, observed.mean_s
    if accuracy is not None and accuracy.at_least(slo.accuracy) is SloState.VIOLATED:
        yield f"accuracy {accuracy.value:.4g} is below the objective, {slo.accuracy:g}"
    if slo.latency_statistic is not LatencyStatistic.MEAN:
        return  # tails have no such interval
    if mean_s is not None and mean_s.at_most(served.bound_s) is SloState.VIOLATED:
        yield f"mean latency {mean_s.value:.4g} s is above the objective, {served.bound_s:g} s"


def problems_of(served: Sequence[ServedQuery]) -> Iterator[str]:
    """Give what did not work about the requests of the demo."""
    answered = sum(len(item.observed.latency_s) for item in served)
    if answered < LEAST_REQUESTS:
        yield f"only {answered} requests were answered, {LEAST_REQUESTS} should be"
    for item in served:
        for failure in item.observed.failures_told():
            yield f"a request to {item.name} failed: {failure}"
        if len(item.observed.score) != len(item.observed.latency_s):
            yield f"answers of {item.name} were not scored"


def comparison(served: Sequence[ServedQuery]) -> Iterator[RenderableType]:
    """Give predicted beside observed, for every query that was served."""
    title = "Predicted and observed (on inputs that were not planned on)"
    rows = (row for item in served for row in _compared(item))
    yield tables.table(title, "query", "objective", "predicted", "observed", "SLO", rows=rows)
    yield f"  In brackets: {CONFIDENCE:.0%} confidence intervals. An SLO is met or violated"
    yield "  when the whole interval says so, else likely or unproven."
    emulated = sorted({tier for item in served for tier in item.plan.emulated})
    parts = [f"the speed of {', '.join(emulated)}"] if emulated else []
    if any(item.observed.emulated for item in served):
        parts.append("the links between tiers")
    waits = f"Emulated on this computer by waiting: {' and '.join(parts)}."
    yield f"  {waits if parts else 'Nothing was emulated.'}"


def _compared(item: ServedQuery) -> Iterator[Sequence[RenderableType]]:
    slo, plan, bound_s = item.query.request.slo, item.plan, item.bound_s
    accuracy, mean_s = item.observed.accuracy, item.observed.mean_s
    yield (
        item.name,
        f"accuracy >= {slo.accuracy:g}",
        formats.accuracy(plan.accuracy),
        formats.accuracy(accuracy),
        _state(None if accuracy is None else accuracy.at_least(slo.accuracy)),
    )
    yield (
        "",
        f"mean latency <= {formats.seconds(bound_s)}",
        formats.latency(plan.latency_s),
        formats.latency(mean_s),
        _state(None if mean_s is None else mean_s.at_most(bound_s)),
    )


def _state(state: SloState | None) -> Text:
    return Text(formats.UNKNOWN) if state is None else Text(state.value, style=_STYLES[state])


def _mean(values: Sequence[float]) -> Estimate | None:
    """Give the mean with its Student interval; None of fewer than two values."""
    n = len(values)
    if n < 2:
        return None
    mean = float(np.mean(values))
    spread = float(np.std(values, ddof=1)) / n**0.5
    half = spread * float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1))
    return Estimate(value=mean, low=mean - half, high=mean + half, confidence=CONFIDENCE, inputs=n)
