"""What a configuration's work takes under many deployments at once.

| symbol | meaning |
| --- | --- |
| P, O, T, n | deployments, operators, tiers, inputs |

With a request rate the wait for a free copy of every tier's group is added: mean
waits to a mean; to a percentile the same percentile of each wait, which is more
than the percentile of the sum asks for (it is never less in practice).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.fitting import fitted
from pipelines.graph import PipelineGraph
from pipelines.infrastructure import SHARE_STEP, Infrastructure
from pipelines.latency import TierArray, Work, busy_seconds, compose
from pipelines.profile import FloatArray
from pipelines.query import Query
from pipelines.slo import LatencyStatistic, Slo
from planner.placement import FULL_STEPS, Placements
from planner.replicas import copies, mean_wait_s, quantile_wait_s

_CHUNK_ELEMENTS = 1_000_000
"""Deployments are composed in chunks of about so many floats: bounded memory, warm caches."""

Figure = Callable[[FloatArray], FloatArray]
"""Seconds of every input -> one figure per deployment, (p, n) -> (p,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What stays the same through the search of one query."""

    graph: PipelineGraph
    infrastructure: Infrastructure
    query: Query

    @property
    def slo(self) -> Slo:
        """The query's objectives."""
        return self.query.slo

    @property
    def statistic(self) -> LatencyStatistic:
        """Which figure of the latencies the SLO bounds."""
        return self.query.slo.latency_statistic


def scene_of(query: Query, graph: PipelineGraph, infrastructure: Infrastructure) -> Scene:
    """Give the scene of a query: its own device, and no knob value that it rules out.

    Raises:
        InvalidInput: If the query does not fit, see `pipelines.fitting.fitted`.
    """
    own = fitted(query, graph, infrastructure)
    return Scene(graph=own.graph, infrastructure=own.infrastructure, query=query)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """What deployments give.

    Attributes:
        latency_s: The figure asked for, waits included, shape (P,).
        tier_wait_s: The part of it that is waiting for a tier's copies, shape (P, T).
        service_s: Mean seconds that a request keeps a tier's group busy, shape (P, T).
        replicas: Copies of each tier's group, 0 on unused tiers, shape (P, T).
        crowding: Copies needed over copies that the machines hold, the largest of all tiers,
            shape (P,).
    """

    latency_s: FloatArray
    tier_wait_s: FloatArray
    service_s: FloatArray
    replicas: npt.NDArray[np.int64]
    crowding: FloatArray

    @property
    def wait_s(self) -> FloatArray:
        """The part of the latency that is waiting, shape (P,)."""
        return np.asarray(self.tier_wait_s.sum(axis=1))

    @property
    def fits(self) -> npt.NDArray[np.bool_]:
        """Whether the machines hold all copies, shape (P,)."""
        return self.crowding <= 1


def predict(
    scene: Scene,
    placements: Placements,  # P
    work: Work,
    steps: TierArray,  # (P, T)
    figure: Figure | None = None,
) -> Prediction:
    """Give what deployments take.

    Args:
        scene: The query and where it runs.
        placements: Where operators are.
        work: Of the configuration.
        steps: Share of each tier's operators in steps of `SHARE_STEP`, `>= 1` on used tiers.
        figure: Figure of the latencies; None: the SLO's statistic.
    """
    figure = figure or scene.statistic.of
    shares = shares_of(placements, steps)
    latency = _composed(scene, placements.tiers, work, shares, figure)
    service = _service_seconds(scene, placements, work, shares)
    used = placements.widths > 0
    replicas, wait = _queued(scene, service, used)
    return Prediction(
        latency_s=latency + wait.sum(axis=1),
        tier_wait_s=wait,
        service_s=service,
        replicas=replicas,
        crowding=_crowding(scene.infrastructure, placements, steps, replicas),
    )


def meets(scene: Scene, prediction: Prediction) -> npt.NDArray[np.bool_]:  # (P,)
    """Give which deployments meet the latency SLO on the machines that there are."""
    return np.asarray((prediction.latency_s <= scene.slo.latency_s) & prediction.fits)


def effective_latency(scene: Scene, prediction: Prediction) -> FloatArray:  # (P,)
    """Give latencies that also say when machines do not hold the copies.

    Then it is the SLO's bound or the latency, whichever is more, times how many times too many
    the copies are: always above the bound, and the more so the less they fit.
    """
    crowded = np.maximum(prediction.latency_s, scene.slo.latency_s) * prediction.crowding
    return np.where(prediction.fits, prediction.latency_s, crowded)


def effective_latencies(
    scene: Scene, placements: Placements, work: Work, steps: TierArray
) -> FloatArray:  # (P,)
    """Give `effective_latency` of deployments that have at most their full steps.

    One request at a time needs one copy, which a machine holds: then latency is all there is.
    """
    if scene.query.request_rate_per_s is not None or scene.slo.throughput_per_s is not None:
        return effective_latency(scene, predict(scene, placements, work, steps))
    shares = shares_of(placements, steps)
    return _composed(scene, placements.tiers, work, shares, scene.statistic.of)


def condensed(scene: Scene, work: Work) -> Work:
    """Give work on fewer inputs with the same statistic under every deployment, up to rounding.

    In a chain nothing waits for anything else, so latency is a sum, and the mean of sums is the
    sum of means: one average input stands for all. Elsewhere the work itself is given.
    """
    is_chain = len(scene.graph.sinks) == 1 and all(len(p) <= 1 for p in scene.graph.parents)
    is_mean = scene.statistic is LatencyStatistic.MEAN
    return mean_work(work) if is_chain and is_mean else work


def mean_work(work: Work) -> Work:
    """Give the average input's work, n = 1."""
    return Work(
        operator_s=work.operator_s.mean(axis=1, keepdims=True),
        output_bytes=work.output_bytes.mean(axis=1, keepdims=True),
        input_bytes=work.input_bytes.mean(keepdims=True),
    )


def shares_of(placements: Placements, steps: TierArray) -> FloatArray:  # (P, O)
    """Give the share of a machine of each operator."""
    own = steps[np.arange(len(steps))[:, None], placements.tiers]
    return np.asarray(np.round(own * SHARE_STEP, 9))


def _composed(
    scene: Scene, tiers: TierArray, work: Work, shares: FloatArray, figure: Figure
) -> FloatArray:  # (P,)
    chunk = max(_CHUNK_ELEMENTS // max(work.operator_s.size, 1), 1)
    figures = [
        figure(
            compose(
                scene.graph,
                scene.infrastructure,
                work,
                tiers[start : start + chunk],
                shares[start : start + chunk],
            )
        )
        for start in range(0, len(tiers), chunk)
    ]
    return np.concatenate(figures) if figures else np.zeros(0)


def _service_seconds(
    scene: Scene, placements: Placements, work: Work, shares: FloatArray
) -> FloatArray:  # (P, T)
    """Give the longest chain of operators within each tier's group, of mean seconds."""
    graph = scene.graph
    tiers = placements.tiers
    busy = busy_seconds(graph, scene.infrastructure, mean_work(work), tiers, shares)[:, :, 0]
    chain = np.zeros_like(busy)
    service = np.zeros(placements.widths.shape)
    rows = np.arange(len(tiers))
    for o, lineage in enumerate(graph.lineages):
        before = [
            np.where(tiers[:, a] == tiers[:, o], chain[:, a], 0.0) for a in lineage if a != o
        ]
        chain[:, o] = busy[:, o] + (np.maximum.reduce(before) if before else 0.0)
        service[rows, tiers[:, o]] = np.maximum(service[rows, tiers[:, o]], chain[:, o])
    return service


def _queued(
    scene: Scene, service: FloatArray, used: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], FloatArray]:  # (P, T), (P, T)
    """Give copies and waits: for a rate of requests, for a throughput, or for one at a time."""
    rate, throughput = scene.query.request_rate_per_s, scene.slo.throughput_per_s
    if rate is not None:
        return _queue(scene.statistic, rate, service, used)
    replicas = used.astype(np.int64)
    if throughput is not None:  # copies are never idle, and nobody waits for an answer
        replicas = np.where(used, copies(throughput, service, utilisation=1.0), 0)
    return replicas, np.zeros(service.shape)


def _queue(
    statistic: LatencyStatistic, rate: float, service: FloatArray, used: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], FloatArray]:  # (P, T), (P, T)
    servers = copies(rate, service)
    quantile = statistic.quantile
    wait = (
        mean_wait_s(rate, service, servers)
        if quantile is None
        else quantile_wait_s(rate, service, servers, quantile)
    )
    return np.where(used, servers, 0), np.where(used, wait, 0.0)


def _crowding(
    infrastructure: Infrastructure,
    placements: Placements,
    steps: TierArray,
    replicas: npt.NDArray[np.int64],
) -> FloatArray:  # (P,)
    machines = np.array([tier.machines for tier in infrastructure.tiers])
    item = np.maximum(steps * placements.widths, 1)
    places = machines * (FULL_STEPS // item)  # copies are never split over machines
    return np.asarray((replicas / np.maximum(places, 1)).max(axis=1))
