"""Requests of the demo, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from api.client import Client
from api.demo.cases import HELD_OUT_SEED
from api.schemas import ExampleReference, RequestBody
from pipelines.errors import CircinusError
from pipelines.slo import Estimate

CONFIDENCE = 0.95

_FEWEST = 2
_MOST_FAILURES_TOLD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the requests to one query gave.

    Attributes:
        latency_s: Of every request that was answered.
        score: Of every request that was answered.
        failures: Of the others, in words.
        emulated: Whether a tier or link on the way is emulated.
    """

    latency_s: tuple[float, ...]
    score: tuple[float, ...]
    failures: tuple[str, ...]
    emulated: bool

    @property
    def accuracy(self) -> Estimate | None:
        """Mean score, with its interval."""
        return _mean(self.score)

    @property
    def mean_s(self) -> Estimate | None:
        """Mean latency, with its interval."""
        return _mean(self.latency_s)

    def failures_told(self) -> Sequence[str]:
        """Give the first few unlike failures."""
        return list(dict.fromkeys(self.failures))[:_MOST_FAILURES_TOLD]


def send(
    client: Client,
    query_ids: Sequence[str],
    requests: int,
    told: Callable[[str, int], None],
    *,
    seed: int = HELD_OUT_SEED,
) -> Mapping[str, Observed]:
    """Send requests with held-out inputs to every query.

    Args:
        client: Of the service.
        query_ids: The queries, all serving.
        requests: For each of them.
        told: Called with the query and the number of its requests done.
        seed: Of the inputs; unlike that of those that were planned on.
    """
    # One query after the other: this computer's few cores stand for many machines, and requests
    # side by side would slow each other down as they would not on those.
    return {query_id: _send(client, query_id, requests, told, seed=seed) for query_id in query_ids}


def _send(
    client: Client,
    query_id: str,
    requests: int,
    told: Callable[[str, int], None],
    *,
    seed: int,
) -> Observed:
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
    return Observed(
        latency_s=tuple(latency_s),
        score=tuple(score),
        failures=tuple(failures),
        emulated=emulated,
    )


def _mean(values: Sequence[float]) -> Estimate | None:
    """Give the mean with its Student interval; None of fewer than two values."""
    n = len(values)
    if n < _FEWEST:
        return None
    mean = float(np.mean(values))
    spread = float(np.std(values, ddof=1)) / n**0.5
    half = spread * float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1))
    return Estimate(value=mean, low=mean - half, high=mean + half, confidence=CONFIDENCE, inputs=n)
