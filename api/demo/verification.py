"""One deployed plan, asked for what it promised: predicted beside observed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from api.client import Client
from api.demo.cases import Case
from api.demo.report import Report, Served
from api.demo.traffic import Observed, send
from api.phases import Phase
from api.schemas import QueryView
from pipelines.clock import Clock
from pipelines.errors import InvalidInput
from pipelines.slo import ANY_LATENCY_S, LatencyStatistic, SloState


def verify(
    client: Client,
    query_id: str,
    requests: int,
    seed: int,
    clock: Clock,
    told: Callable[[str, int], None],
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
        clock: Says how long it took.
        told: Called with the query and the number of requests done.

    Raises:
        InvalidInput: If the query does not serve, or was planned on these inputs.
        Refused: If the service knows no such query.
        Unavailable: If it does not answer.
    """
    start = clock.now()
    query = client.query(query_id)
    deployed = client.deployment(query_id).plan_id
    if query.phase is not Phase.SERVING or deployed is None:
        raise InvalidInput.of("phase", "must be serving", query.phase.value)
    if seed == query.request.data.seed:
        raise InvalidInput.of("seed", "must not be that of the query's data", seed)
    plan = client.plan(deployed)
    observed = send(client, [query_id], requests, told, seed=seed)[query_id]
    case = Case(name=query_id, request=query.request, ends=Phase.SERVING)
    served = Served(case=case, query=query, plan=plan, observed=observed)
    problems = tuple(_problems(query, observed))
    return Report(served=(served,), problems=problems, elapsed_s=clock.now() - start)


def _problems(query: QueryView, observed: Observed) -> Iterator[str]:
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
