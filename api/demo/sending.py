"""Requests to a deployed plan, and their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from circinus.api.client import Client
from circinus.api.schemas.deployments import ExampleReference, Late, RequestBody
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.model.slo import Estimate, LatencyStatistic, SloState
from circinus.planner.models.ahead import MOST_EXAMPLES, accuracy_observed
from circinus.planner.models.estimates import latency_at_least, latency_estimate

CONFIDENCE = 0.95

Progress = Callable[[str, int, int], None]
"""Called with the query, the number of its requests done, and that of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTraffic:
    """The results of the requests to one query."""

    latency_s: Sequence[float]  # of every request that was answered
    score: Sequence[float]  # likewise
    failures: Sequence[str]  # of the others, in words
    emulated: bool  # whether a tier or link on the way is
    planned_on: int = 0  # how many of the inputs planning had measured

    @property
    def accuracy(self) -> Estimate | None:
        """Mean score, 0 for a request that failed, with its interval; None: no answer has one."""
        scores = np.array([*self.score, *(0.0 for _ in self.failures)])
        return accuracy_observed(scores) if self.score else None

    def latency(self, statistic: LatencyStatistic) -> Estimate | None:
        """Return that figure of the latencies, with its interval; None: of fewer than two answers.

        The mean has Student's interval, a percentile lies between two order statistics.
        """
        if len(self.latency_s) < 2:
            return None
        seconds = np.array(self.latency_s)
        return latency_estimate(seconds, statistic=statistic, population=MOST_EXAMPLES)

    def latency_state(self, statistic: LatencyStatistic, bound_s: float) -> SloState | None:
        """Return the state of a latency objective; None: unknown.

        Few requests cannot bound a percentile from above, but may well show that it is missed.
        """
        estimate = self.latency(statistic)
        if estimate is None:
            return None
        least = latency_at_least(
            np.array(self.latency_s),
            statistic=statistic,
            population=MOST_EXAMPLES,
            confidence=CONFIDENCE,
        )
        return SloState.VIOLATED if least > bound_s else estimate.at_most(bound_s)


def send(
    client: Client, query_id: str, requests: int, progress: Progress, *, seed: int
) -> ObservedTraffic:
    """Send requests to a query that serves, one after the other, with the inputs of a seed."""
    replies, failures = [], []
    for index in range(requests):
        try:
            replies.append(client.request(query_id, example_body(index, requests, seed=seed)))
        except CircinusError as error:
            failures.append(str(error))
        progress(query_id, index + 1, requests)
    return ObservedTraffic(
        latency_s=[reply.latency_s for reply in replies],
        score=[reply.score for reply in replies if reply.score is not None],
        failures=failures,
        emulated=any(reply.emulated for reply in replies),
        planned_on=sum(bool(reply.planned_on) for reply in replies),
    )


def example_body(index: int, count: int, *, seed: int) -> RequestBody:
    """Return a request with an example of the pipeline that is answered however late."""
    example = ExampleReference(index=index, seed=seed, count=count)
    return RequestBody(example=example, late=Late.SERVE)
