"""What a configuration's work takes under many deployments at once.

| symbol | meaning |
| --- | --- |
| P, O, T, n | deployments, operators, tiers, inputs |

With a request rate the wait for a free copy of every tier's group is added: mean
waits to a mean; to a percentile the same percentile of each wait, which is more
than the percentile of the sum asks for (it is never less in practice). The operators of a plan on
one tier form a group that serves one request at a time; its copies are taken as an M/M/c queue.

| symbol | meaning |
| --- | --- |
| rate | requests per second |
| S | mean seconds that a request keeps a copy busy |
| c | copies |
| a = rate x S | offered load |
| rho = a / c | utilisation |

Service times vary less than exponential ones, so the waiting times here are on the
safe side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, pdtr

from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import (
    Composition,
    TierArray,
    TierSums,
    Work,
    busy_seconds,
    compose,
)
from circinus.pipelines.model.profile import BoolArray, FloatArray, IntArray
from circinus.pipelines.model.query import PlanningContext
from circinus.pipelines.model.shares import FULL_STEPS, SHARE_STEP
from circinus.pipelines.model.slo import LatencyStatistic
from circinus.planner.deployment.callers import limited
from circinus.planner.deployment.placement import Placements
from circinus.planner.deployment.slices import crowding_of

HIGHEST_UTILISATION = 0.7
"""Copies are added until rho is at most this: beyond it waiting grows steeply with every burst. Of
the limits of endpoints at most so much is used, too."""

_ROUNDING = 1e-9  # a / 0.7 that is a whole number up to rounding asks for no further copy

_CHUNK_ELEMENTS = 1_000_000
"""Deployments are composed in chunks of about so many floats: bounded memory, warm caches."""

Figure = Callable[[FloatArray], FloatArray]
"""Seconds of every input -> one figure per deployment, (p, n) -> (p,)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """What deployments give."""

    latency_s: FloatArray  # the figure asked for, waits included, shape (P,)
    tier_wait_s: FloatArray  # the part of it that is waiting for a tier's copies, shape (P, T)
    service_s: FloatArray  # mean seconds that a request keeps a tier's group busy, shape (P, T)
    replicas: IntArray  # copies of each tier's group, 0 on unused tiers, shape (P, T)
    # Copies needed over copies that the machines hold, the largest of all tiers, or use of what
    # an endpoint's limits allow, whichever is more, shape (P,).
    crowding: FloatArray

    @property
    def fits(self) -> BoolArray:
        """Whether machines hold all copies, and endpoints' limits all calls, shape (P,)."""
        return self.crowding <= 1


def predict(
    context: PlanningContext,
    placements: Placements,  # P
    work: Work,
    steps: TierArray,  # (P, T)
    figure: Figure | None = None,
) -> Prediction:
    """Return what deployments take, in a figure of the latencies; None: the SLO's statistic.

    Steps are of `SHARE_STEP`, the share of each tier's operators, `>= 1` on used tiers.
    """
    figure = figure or context.statistic.of
    shares = shares_of(placements, steps)
    latency = _composed(context, placements.tiers, work, shares, figure)
    service = _service_seconds(context, placements, work, shares)
    used = placements.widths > 0
    replicas, wait = _queued(context, service, used)
    places = copies_held(context.infrastructure, placements, steps)
    crowding = (replicas / np.maximum(places, 1)).max(axis=1)
    if context.further:
        together = crowding_of(context, steps * placements.widths, replicas)
        crowding = np.maximum(crowding, together * (1 - _ROUNDING))
    most = HIGHEST_UTILISATION if context.slo.throughput_per_s is None else 1.0
    return Prediction(
        latency_s=latency + wait.sum(axis=1),
        tier_wait_s=wait,
        service_s=service,
        replicas=replicas,
        crowding=np.maximum(
            crowding, limited(context, placements.called, work, most) * (1 - _ROUNDING)
        ),
    )


def meets(context: PlanningContext, prediction: Prediction) -> BoolArray:  # (P,)
    """Return which deployments meet the latency SLO on the machines that there are."""
    return np.asarray((prediction.latency_s <= context.slo.latency_s) & prediction.fits)


def effective_latency(context: PlanningContext, prediction: Prediction) -> FloatArray:  # (P,)
    """Return latencies that also show where machines do not hold the copies.

    Then it is the SLO's bound or the latency, whichever is more, times how many times too many
    the copies are: always above the bound, and the more so the less they fit.
    """
    crowded = np.maximum(prediction.latency_s, context.slo.latency_s) * prediction.crowding
    return np.where(prediction.fits, prediction.latency_s, crowded)


def effective_latencies(
    context: PlanningContext, placements: Placements, work: Work, steps: TierArray
) -> FloatArray:  # (P,)
    """Return `effective_latency` of deployments that have at most their full steps.

    One request at a time needs one copy, which a machine holds: then latency is all there is.
    """
    if context.requests_per_s is not None:
        return effective_latency(context, predict(context, placements, work, steps))
    shares = shares_of(placements, steps)
    return _composed(context, placements.tiers, work, shares, context.statistic.of)


class Latencies:
    """Effective latencies of deployments, many of which are on the same placements."""

    def __init__(self, context: PlanningContext, placements: Placements, work: Work) -> None:
        self._context, self._placements, self._work = context, placements, work
        self._composition: Composition | None = None  # None: each look works it out anew
        self._sums: TierSums | None = None
        queued = context.requests_per_s is not None
        if not queued and len(placements) * work.operator_s.size <= _CHUNK_ELEMENTS:
            graph, infrastructure = context.graph, context.infrastructure
            self._composition = Composition.of(graph, infrastructure, work, placements.tiers)
            self._sums = TierSums.of(
                self._composition, placements.tiers, len(infrastructure.tiers)
            )

    def of(self, rows: TierArray, steps: TierArray) -> FloatArray:  # (A,), (A, T) -> (A,)
        """Return `effective_latencies` of placements by number, which may repeat.

        Those of chains are sums over tiers, exact to the last bit beside the bound of the SLO.
        """
        if (sums := self._sums) is None:
            return self._exact(rows, steps)
        widths, statistic = self._placements.widths[rows], self._context.statistic
        shares = np.where(widths > 0, steps * SHARE_STEP * widths, 1.0)
        latency_s = _in_chunks(
            len(rows),
            self._work,
            lambda some: statistic.of(sums.seconds(rows[some], shares[some])),
        )
        bound_s = self._context.slo.latency_s
        close = np.flatnonzero(np.abs(latency_s - bound_s) <= _ROUNDING * bound_s)
        if close.size:
            latency_s[close] = self._exact(rows[close], steps[close])
        return latency_s

    def _exact(self, rows: TierArray, steps: TierArray) -> FloatArray:
        context, spots = self._context, self._placements.take(rows)
        if (known := self._composition) is None:
            return effective_latencies(context, spots, self._work, steps)
        shares, statistic = shares_of(spots, steps), context.statistic
        return _in_chunks(
            len(rows),
            self._work,
            lambda some: statistic.of(known.take(rows[some]).seconds(shares[some])),
        )


def fastest(context: PlanningContext, placements: Placements, work: Work) -> Placements:
    """Return the one of placements that has the least effective latency at full shares."""
    quick = condensed(context, work)
    latencies_s = effective_latencies(context, placements, quick, placements.full_steps)
    return placements.take(np.array([int(np.argmin(latencies_s))]))


def least_latencies(
    context: PlanningContext, placements: Placements, works: Sequence[Work]
) -> FloatArray:  # (C,)
    """Return the `least_latency` of each of several configurations.

    Where nothing waits for copies, all are composed at once.
    """
    if context.requests_per_s is not None:
        return np.array([least_latency(context, placements, work) for work in works])
    if not works:
        return np.zeros(0)
    quick = [condensed(context, work) for work in works]
    best = _composed_each(context, placements, quick).argmin(axis=0)
    least = np.zeros(len(works))
    for spot in np.unique(best).tolist():
        mine = np.flatnonzero(best == spot)
        there = placements.take(np.array([spot]))
        least[mine] = _composed_each(context, there, [works[i] for i in mine.tolist()])[0]
    return least


def _composed_each(
    context: PlanningContext, placements: Placements, works: Sequence[Work]
) -> FloatArray:  # (P, C)
    """Return the SLO's statistic of the latencies of each work at full shares."""
    parts = zip(*((w.operator_s, w.output_bytes, w.input_bytes[None]) for w in works), strict=True)
    operator_s, output_bytes, input_bytes = (np.concatenate(part, axis=1) for part in parts)
    joined = Work(
        operator_s=operator_s,
        output_bytes=output_bytes,
        input_bytes=input_bytes[0],
        waited_s=_joined_waits(works),
    )
    ends = np.cumsum([len(work.input_bytes) for work in works])

    def each(latencies: FloatArray) -> FloatArray:  # (P, n) -> (P, C)
        if ends[-1] == len(works):  # an input each: every statistic is that
            return latencies
        pieces = np.split(latencies, ends[:-1], axis=1)
        return np.stack([context.statistic.of(piece) for piece in pieces], axis=1)

    shares = shares_of(placements, placements.full_steps)
    return _composed(context, placements.tiers, joined, shares, each)


def _joined_waits(works: Sequence[Work]) -> FloatArray | None:  # (O, n)
    if all(work.waited_s is None for work in works):
        return None
    each = [np.zeros_like(w.operator_s) if w.waited_s is None else w.waited_s for w in works]
    return np.concatenate(each, axis=1)


def least_latency(context: PlanningContext, placements: Placements, work: Work) -> float:
    """Return the effective latency of the `fastest` of placements, of every input.

    Exact to the last bit where it is attained.
    """
    best = fastest(context, placements, work)
    return float(effective_latencies(context, best, work, best.full_steps)[0])


def condensed(context: PlanningContext, work: Work) -> Work:
    """Return work on fewer inputs with the same statistic under every deployment, up to rounding.

    In a chain nothing waits for anything else, so latency is a sum, and the mean of sums is the
    sum of means: one average input stands for all. Elsewhere the work itself is given.
    """
    is_mean = context.statistic is LatencyStatistic.MEAN
    return mean_work(work) if context.graph.is_chain and is_mean else work


def mean_work(work: Work) -> Work:
    """Return the average input's work, n = 1."""
    return Work(
        operator_s=work.operator_s.mean(axis=1, keepdims=True),
        output_bytes=work.output_bytes.mean(axis=1, keepdims=True),
        input_bytes=work.input_bytes.mean(keepdims=True),
        used=None if work.used is None else work.used.mean(axis=2, keepdims=True),
        waited_s=None if work.waited_s is None else work.waited_s.mean(axis=1, keepdims=True),
    )


def allocation_of(placements: Placements, steps: TierArray) -> FloatArray:  # (P, O)
    """Return the share of a machine of each operator; 1 on tiers that have none."""
    rows = np.arange(len(steps))[:, None]
    own = np.round(steps[rows, placements.tiers] * SHARE_STEP, 9)
    return np.asarray(np.where(placements.widths[rows, placements.tiers] > 0, own, 1.0))


def shares_of(placements: Placements, steps: TierArray) -> FloatArray:  # (P, O)
    """Return the share of the slice in which each operator runs; 1 on tiers that have none.

    The operators there run one at a time, each on all of what they ask for together.
    """
    rows = np.arange(len(steps))[:, None]
    widths = np.maximum(placements.widths[rows, placements.tiers], 1)
    return np.asarray(np.round(allocation_of(placements, steps) * widths, 9))


def _composed(
    context: PlanningContext, tiers: TierArray, work: Work, shares: FloatArray, figure: Figure
) -> FloatArray:  # (P,)
    graph, infrastructure = context.graph, context.infrastructure
    return _in_chunks(
        len(tiers),
        work,
        lambda some: figure(compose(graph, infrastructure, work, tiers[some], shares[some])),
    )


def _in_chunks(count: int, work: Work, figures: Callable[[slice], FloatArray]) -> FloatArray:
    """Return the figures of so many deployments, worked out for some at a time."""
    chunk = max(_CHUNK_ELEMENTS // max(work.operator_s.size, 1), 1)
    parts = [figures(slice(start, start + chunk)) for start in range(0, count, chunk)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _service_seconds(
    context: PlanningContext, placements: Placements, work: Work, shares: FloatArray
) -> FloatArray:  # (P, T)
    """Return the seconds of all operators of each tier's group, which runs one at a time."""
    graph = context.graph
    tiers = placements.tiers
    busy = busy_seconds(graph, context.infrastructure, mean_work(work), tiers, shares)[:, :, 0]
    service = np.zeros(placements.widths.shape)
    rows = np.arange(len(tiers))
    for o in range(len(graph.operators)):
        service[rows, tiers[:, o]] += busy[:, o]
    return np.where(placements.widths > 0, service, 0.0)


# deviates: request-rates
def _queued(
    context: PlanningContext, service: FloatArray, used: BoolArray
) -> tuple[IntArray, FloatArray]:  # (P, T), (P, T)
    """Return copies and waits: for a rate of requests, for a throughput, or for one at a time."""
    rate, throughput = context.query.request_rate_per_s, context.slo.throughput_per_s
    if rate is not None:
        servers, quantile = copies(rate, service), context.statistic.quantile
        if quantile is None:
            wait = mean_wait_s(rate, service, servers)
        else:
            wait = quantile_wait_s(rate, service, servers, quantile)
        return np.where(used, servers, 0), np.where(used, wait, 0.0)
    replicas = used.astype(np.int64)
    if throughput is not None:  # copies are never idle, and nobody waits for an answer
        replicas = np.where(used, copies(throughput, service, utilisation=1.0), 0)
    return replicas, np.zeros(service.shape)


def copies_held(
    infrastructure: Infrastructure, placements: Placements, steps: TierArray
) -> IntArray:  # (P, T)
    """Return the copies of each tier's group that its machines hold; none is split."""
    machines = np.array([tier.machines for tier in infrastructure.tiers])
    item = np.maximum(steps * placements.widths, 1)
    return np.asarray(machines * (FULL_STEPS // item))


def copies(
    rate: float, service_s: FloatArray, *, utilisation: float = HIGHEST_UTILISATION
) -> IntArray:
    """Return the fewest copies with rho <= `utilisation`, at least 1, same shape."""
    needed = np.ceil(rate * service_s / utilisation - _ROUNDING)
    return np.asarray(np.maximum(needed, 1).astype(np.int64))


def waiting_probability(servers: IntArray, load: FloatArray) -> FloatArray:
    """Return the probability that a request has to wait (Erlang C), same shape.

    C = B / (1 - rho (1 - B)), with Erlang's loss B(c, a) = Poisson(a) probability of c over that
    of at most c: in this form neither a factorial nor a long sum can overflow. For c `>= 1` and a
    in [0, c).
    """
    safe = np.maximum(load, np.finfo(float).tiny)
    point = np.exp(servers * np.log(safe) - safe - gammaln(servers + 1.0))
    loss = point / pdtr(servers, safe)
    return np.asarray(loss / (1 - load / servers * (1 - loss)))


def mean_wait_s(rate: float, service_s: FloatArray, servers: IntArray) -> FloatArray:
    """Return the mean seconds that requests wait: C S / (c - a), same shape."""
    load = rate * service_s
    return np.asarray(waiting_probability(servers, load) * service_s / (servers - load))


def quantile_wait_s(
    rate: float, service_s: FloatArray, servers: IntArray, quantile: float
) -> FloatArray:
    """Return the seconds that the fraction `quantile` of requests do not wait longer than.

    From Pr[W > t] = C exp(-(c - a) t / S); 0 where fewer than 1 - quantile wait at all.
    """
    load = rate * service_s
    tail = waiting_probability(servers, load) / (1 - quantile)
    log_tail = np.log(np.maximum(tail, 1.0))
    return np.asarray(log_tail * service_s / (servers - load))
