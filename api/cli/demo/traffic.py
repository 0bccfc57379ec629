"""Requests to deployed plans, one after the other, and what they say of one plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from circinus.api.cli.demo.report import ObservedTraffic, Report, ServedQuery
from circinus.api.client import Client
from circinus.api.phases import QueryPhase
from circinus.api.schemas.progress import QueryView
from circinus.api.schemas.service import ExampleReference, RequestBody
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError, InvalidInput
from circinus.pipelines.slo import ANY_LATENCY_S, LatencyStatistic, SloState

Told = Callable[[str, int], None]
"""Called with the query and the number of its requests done."""


def send(
    client: Client, query_id: str, requests: int, told: Told, *, seed: int
) -> ObservedTraffic:
    """Send requests to a query that serves, with the inputs of a seed."""
    latency_s: list[float] = []
    score: list[float] = []
    failures: list[str] = []
    emulated = False
    for index in range(requests):
        example = ExampleReference(index=index, seed=seed, count=requests)
        try:
            reply = client.request(query_id, RequestBody(example=example))
        except CircinusError as error:
            failures.append(str(error))
        else:
            latency_s.append(reply.latency_s)
            emulated = emulated or reply.emulated
            if reply.score is not None:
                score.append(reply.score)
        told(query_id, index + 1)
    return ObservedTraffic(
        latency_s=tuple(latency_s),
        score=tuple(score),
        failures=tuple(failures),
        emulated=emulated,
    )


def verified(
    client: Client, query_id: str, requests: int, seed: int, clock: Clock, told: Told
) -> Report:
    """Send requests to a query, one after the other, and give what they say of its plan.

    A problem is a request that failed, an answer without a score, and an objective that the whole
    confidence interval of what was observed breaks; an interval that covers it is none. Of
    latencies the mean is judged, where that is the objective.

    Args:
        client: Of the service.
        query_id: Of a query that serves.
        requests: At least 2, for an interval.
        seed: Of the inputs: unlike that of the query's data.
        clock: Times it.
        told: Hears of progress.

    Raises:
        InvalidInput: If the query does not serve, or was planned on these inputs.
        Refused: If the service knows no such query.
        Unavailable: If it does not answer.
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
    problems = tuple(_problems(query, observed))
    return Report(served=(served,), problems=problems, elapsed_s=clock.now() - start)


def _problems(query: QueryView, observed: ObservedTraffic) -> Iterator[str]:
    slo = query.request.slo
    for failure in observed.failures_told():
        yield f"{len(observed.failures)} requests failed, such as: {failure}"
    if len(observed.score) != len(observed.latency_s):
        yield "answers were not scored"
    accuracy, mean_s = observed.accuracy, observed.mean_s
    if accuracy is not None and accuracy.at_least(slo.accuracy) is SloState.VIOLATED:
        yield f"accuracy {accuracy.value:.4g} is below the objective, {slo.accuracy:g}"
    if slo.latency_statistic is not LatencyStatistic.MEAN:
        return  # tails have no such interval
    bound_s = ANY_LATENCY_S if slo.latency_s is None else slo.latency_s
    if mean_s is not None and mean_s.at_most(bound_s) is SloState.VIOLATED:
        yield f"mean latency {mean_s.value:.4g} s is above the objective, {bound_s:g} s"
