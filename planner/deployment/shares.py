"""The least shares with which a configuration still meets its latency SLO.

Circinus 4.2, algorithm 1, ParetoOptimize: "multi-dimensional binary search to tighten
resource usage until the latency SLO is violated". It lowers one tier's share after the other,
each as far as it goes; where two tiers could give up a step each, that finds the two corners and
nothing between, and the cheapest deployment is often between. Here, for every placement that
meets the SLO on full machines, the search lists every share vector from which no tier can take
a step, over a grid of 20 steps per tier. Only if these are too many to try, tiers are lowered one
by one, in every order of them: the tier that comes first saves most, so the orders give plans
of unlike demand. All operators of a tier have the same share. Where the GPUs of a tier give some
shares only, the result is raised to the next of them: latency falls with every share, so the
least vector of given shares that holds is above some minimal one, and above it raised.

A dedicated tier without price keeps its full share: nobody else could have what is
left over, and slack is worth more on tiers that cost.

| symbol | meaning |
| --- | --- |
| P, O, T | placements, operators, tiers |
| A | allocations found |
| k_t | share of tier t in steps of `SHARE_STEP` |
| c_t(k) | copies that tier t needs at that share |

One request at a time: latency falls with every k_t, so for given shares of all tiers but
one the least share of that one is found by bisection. A vector is minimal when it is
feasible and neither it nor any vector with one step less elsewhere allows less.

With a request rate or a throughput the demand c_t(k) k of a tier does not fall with k: a
share may be lowered into more copies. Then of each tier the steps count that no larger
step matches in demand and waiting; all combinations of these are tried.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from circinus.pipelines.model.latency import TierArray, Work
from circinus.pipelines.model.profile import BoolArray, FloatArray
from circinus.pipelines.model.query import PlanningContext
from circinus.pipelines.model.shares import FULL_STEPS, SHARE_STEP
from circinus.pipelines.model.slo import LatencyStatistic
from circinus.planner.deployment.costs import Costs, costs, one_by_one, usd_of_inputs
from circinus.planner.deployment.pareto import undominated
from circinus.planner.deployment.placement import Placements, raised
from circinus.planner.deployment.prediction import Latencies, copies_held, meets, predict
from circinus.planner.deployment.slices import by_tier, packed

MOST_ROWS = 20_000
"""Deployments tried at once; where exactness takes more, tiers are lowered one by one."""

_ALL_ORDERS = 4
"""Up to so many tiers are tried in all orders; more in every rotation, both ways round."""

Deployments = tuple[TierArray, TierArray]
"""Rows of placements, shape (A,), and their steps, shape (A, T)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allocations:
    """Deployments with what they ask and give."""

    placements: Placements  # where operators are, A of them
    steps: TierArray  # share per tier in steps of `SHARE_STEP`, shape (A, T)
    demand: FloatArray  # machines asked of each tier, replicas included, shape (A, T)
    cost_usd_per_hour: FloatArray  # of machines and calls, (A,)
    # of both for 1,000 requests, (A,); None: nothing in the query depends on it
    cost_usd_per_1000_requests: FloatArray | None
    latency_s: FloatArray  # in the SLO's statistic, shape (A,)
    fits: BoolArray  # whether the machines hold all copies, shape (A,)

    def __len__(self) -> int:
        """Return A."""
        return len(self.steps)

    def take(self, rows: TierArray) -> Allocations:
        """Return those of some rows, in that order."""
        per_1000 = self.cost_usd_per_1000_requests
        return Allocations(
            placements=self.placements.take(rows),
            steps=self.steps[rows],
            demand=self.demand[rows],
            cost_usd_per_hour=self.cost_usd_per_hour[rows],
            cost_usd_per_1000_requests=None if per_1000 is None else per_1000[rows],
            latency_s=self.latency_s[rows],
            fits=self.fits[rows],
        )


def tightened(context: PlanningContext, placements: Placements, work: Work) -> Allocations:
    """Return the tightest allocations of every placement that meets the SLO at full shares.

    With a rate also of those that meet it in more copies of less alone, where these are few enough
    to try: requests wait less for several, and small ones fit where large ones do not.
    """
    full = predict(context, placements, work, placements.full_steps)
    met = meets(context, full)
    # deviates: free-tiers-stay-full
    free = [t.dedicated and t.price_usd_per_hour == 0 for t in context.infrastructure.tiers]
    lowered = (placements.widths > 0) & ~np.array(free)
    start = np.flatnonzero(met)
    rows, steps = _tightest(context, placements.take(start), work, lowered[start])
    rows = start[rows]
    if context.requests_per_s is not None:
        unwaited_s = full.latency_s - full.tier_wait_s.sum(axis=1)
        others = np.flatnonzero(~met & (unwaited_s <= context.slo.latency_s))
        of, more = _in_more_copies(context, placements.take(others), work, lowered[others])
        rows, steps = np.concatenate([rows, others[of]]), np.concatenate([steps, more])
    every = allocations(context, placements.take(rows), work, steps)
    # Copies of a raised share may be more machines than there are: what batches gains less by it.
    return every if every.fits.all() else every.take(np.flatnonzero(every.fits))


def allocations(
    context: PlanningContext, placements: Placements, work: Work, steps: TierArray
) -> Allocations:
    """Return given deployments with what they ask and give; equal ones once.

    Steps are at most the full ones, and raised to those that GPUs give.
    """
    steps = raised(context.infrastructure, placements, steps)
    both = np.concatenate([placements.tiers, steps], axis=1)
    _, once = np.unique(both, axis=0, return_index=True)
    placements, steps = placements.take(once), steps[once]
    prediction = predict(context, placements, work, steps)
    demand = np.round(steps * SHARE_STEP * placements.widths * prediction.replicas, 9)
    price = np.array([tier.price_usd_per_hour for tier in context.infrastructure.tiers])
    cost = _costs(context, placements, work, steps, demand @ price)
    return Allocations(
        placements=placements,
        steps=steps,
        demand=by_tier(context, demand),
        cost_usd_per_hour=cost.per_hour,
        cost_usd_per_1000_requests=cost.per_1000,
        latency_s=prediction.latency_s,
        fits=prediction.fits & packed(context, steps * placements.widths, prediction.replicas),
    )


def _costs(
    context: PlanningContext,
    placements: Placements,
    work: Work,
    steps: TierArray,
    machines_usd_per_hour: FloatArray,  # (A,)
) -> Costs:
    usd, rate = float(usd_of_inputs(work).mean()), context.requests_per_s
    if rate is not None:
        return costs(machines_usd_per_hour, usd, rate)
    if not context.by_request and context.slo.cost_usd_per_1000_requests is None:
        return Costs(machines_usd_per_hour, None)
    mean = predict(context, placements, work, steps, figure=LatencyStatistic.MEAN.of)
    return costs(machines_usd_per_hour, usd, one_by_one(mean.latency_s))


# deviates: all-minimal-shares
def _tightest(
    context: PlanningContext,
    placements: Placements,
    work: Work,
    lowered: BoolArray,  # tiers whose shares may be lowered, (P, T)
) -> Deployments:
    at_rate = context.requests_per_s is not None
    by_request = context.by_request or context.slo.cost_usd_per_1000_requests is not None
    deployments = [(np.zeros(0, dtype=np.int64), placements.full_steps[:0])]
    few = np.zeros(len(placements), dtype=np.bool_)  # where every minimal deployment can be found
    groups, which = np.unique(lowered, axis=0, return_inverse=True)
    for g, group in enumerate(groups):
        rows, tiers = np.flatnonzero(which.ravel() == g), np.flatnonzero(group).tolist()
        spots, some = placements.take(rows), list[Deployments]()
        if not tiers:
            some.append((np.arange(len(rows)), spots.full_steps))
        elif at_rate:
            least = combinations(context, spots, work, tiers)
            some.append(_cornered(context, spots, work, tiers) if least is None else least)
        elif len(rows) * FULL_STEPS ** (len(tiers) - 1) > MOST_ROWS:
            some.append(_cornered(context, spots, work, tiers))
        else:
            few[rows] = True
        if by_request and not at_rate and len(tiers) > 1:
            some.append(_cheapest_by_request(context, spots, work, tiers))
        deployments += [(rows[of], steps) for of, steps in some]
    if few.any():
        rows = np.flatnonzero(few)
        of, steps = minimal(context, placements.take(rows), work, lowered[rows])
        deployments.append((rows[of], steps))
    of_each, steps_of_each = zip(*deployments, strict=True)
    return np.concatenate(of_each), np.concatenate(steps_of_each)


def _in_more_copies(
    context: PlanningContext,
    placements: Placements,
    work: Work,
    lowered: BoolArray,  # tiers whose shares may be lowered, (P, T)
) -> Deployments:
    """Return deployments for a rate of placements that do not meet the SLO at full shares."""
    deployments = [(np.zeros(0, dtype=np.int64), placements.full_steps[:0])]
    groups, which = np.unique(lowered, axis=0, return_inverse=True)
    for g, group in enumerate(groups):
        rows, tiers = np.flatnonzero(which.ravel() == g), np.flatnonzero(group).tolist()
        some = combinations(context, placements.take(rows), work, tiers) if tiers else None
        if some is not None:
            deployments.append((rows[some[0]], some[1]))
    of_each, steps_of_each = zip(*deployments, strict=True)
    return np.concatenate(of_each), np.concatenate(steps_of_each)


def _cheapest_by_request(
    context: PlanningContext, placements: Placements, work: Work, tiers: list[int]
) -> Deployments:
    """Return of each placement the deployment in time whose requests cost least.

    Requests come one after the other: one that takes longer keeps all tiers rented for longer, so
    more of a cheap tier than it takes may cost less. None where all are too many to try.
    """
    each = FULL_STEPS ** len(tiers)
    if len(placements) * each > MOST_ROWS:
        return np.zeros(0, dtype=np.int64), placements.full_steps[:0]
    rows = np.repeat(np.arange(len(placements)), each)
    steps = placements.full_steps[rows].copy()
    grid = np.indices((FULL_STEPS,) * len(tiers)).reshape(len(tiers), each).T + 1
    steps[:, tiers] = np.minimum(steps[:, tiers], np.tile(grid, (len(placements), 1)))
    latencies = Latencies(context, placements, work)
    good = np.flatnonzero(latencies.of(rows, steps) <= context.slo.latency_s)
    rows, steps = rows[good], steps[good]
    spots = placements.take(rows)
    price = np.array([tier.price_usd_per_hour for tier in context.infrastructure.tiers])
    machines = (steps * SHARE_STEP * spots.widths) @ price
    cost = _costs(context, spots, work, steps, machines).per_1000
    best = np.lexsort((rows if cost is None else cost, rows))
    firsts = best[np.unique(rows[best], return_index=True)[1]]
    return rows[firsts], steps[firsts]


def _cornered(
    context: PlanningContext, placements: Placements, work: Work, tiers: list[int]
) -> Deployments:
    """Return what lowering one tier after the other finds, in every order of them."""
    if len(tiers) <= _ALL_ORDERS:
        orders = list(itertools.permutations(tiers))
    else:
        turns = [tuple(tiers[i:] + tiers[:i]) for i in range(len(tiers))]
        orders = turns + [turn[::-1] for turn in turns]
    latencies, bound_s = Latencies(context, placements, work), context.slo.latency_s
    rows = np.tile(np.arange(len(placements)), len(orders))
    steps = placements.full_steps[rows]
    for turn in np.array(orders).T:
        steps = _lowered(latencies, bound_s, rows, steps, np.repeat(turn, len(placements)))
    return rows, steps


def _lowered(
    latencies: Latencies,
    bound_s: float,
    rows: TierArray,  # of placements, (A,)
    steps: TierArray,  # (A, T)
    tiers: TierArray,  # (A,)
) -> TierArray:  # (A, T)
    """Return steps that meet the SLO with those of one tier each lowered as far as it goes."""
    steps, every = steps.copy(), np.arange(len(rows))
    # Invariant: with `met` steps the SLO holds, with `missed` it does not (0: no share).
    met = steps[every, tiers]
    missed = np.zeros_like(met)
    while (apart := np.flatnonzero(met - missed > 1)).size:
        middle = (met[apart] + missed[apart]) // 2
        tried = steps[apart]
        tried[every[: len(apart)], tiers[apart]] = middle
        ok = latencies.of(rows[apart], tried) <= bound_s
        met[apart] = np.where(ok, middle, met[apart])
        missed[apart] = np.where(ok, missed[apart], middle)
    steps[every, tiers] = met
    return steps


def minimal(
    context: PlanningContext,
    placements: Placements,
    work: Work,
    lowered: BoolArray,  # tiers to lower, at least one of each placement, (P, T)
) -> Deployments:
    """Return all minimal deployments for one request at a time, without rate and throughput.

    Placements meet the SLO at full shares; tiers that are not lowered keep their full share.
    """
    full, bound_s = placements.full_steps, context.slo.latency_s
    latencies, count = Latencies(context, placements, work), lowered.shape[1]
    last = count - 1 - lowered[:, ::-1].argmax(axis=1)  # for each share of the others its least
    gridded = lowered & (np.arange(count) != last[:, None])
    of, tier = np.nonzero(gridded)
    least = np.ones_like(full)
    least[of, tier] = _lowered(latencies, bound_s, of, full[of], tier)[np.arange(len(of)), tier]
    rows, steps = _grid(full, gridded, least)
    good = latencies.of(rows, steps) <= bound_s
    rows, steps = rows[good], steps[good]
    steps = _lowered(latencies, bound_s, rows, steps, last[rows])
    return _without_slack(rows, steps, gridded[rows], steps[np.arange(len(rows)), last[rows]])


def _grid(full: TierArray, gridded: BoolArray, least: TierArray) -> Deployments:  # (P, T) each
    """Return full steps with all of each gridded tier's, from the least ones on."""
    rows, steps = np.arange(len(full)), full.copy()
    for tier in np.flatnonzero(gridded.any(axis=0)).tolist():
        varied = gridded[rows, tier]
        first = np.where(varied, least[rows, tier], full[rows, tier])
        times = full[rows, tier] - first + 1
        start = np.repeat(first, times)
        along = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        rows, steps = np.repeat(rows, times), np.repeat(steps, times, axis=0)
        steps[:, tier] = start + along
    return rows, steps


def _without_slack(
    rows: TierArray,  # of placements, (A,)
    steps: TierArray,  # (A, T)
    gridded: BoolArray,  # (A, T)
    needed: TierArray,  # steps of the tier that is not gridded, (A,)
) -> Deployments:
    """Return those where no step less of a gridded tier needs as few of the other one."""
    place = (FULL_STEPS + 1) ** np.arange(steps.shape[1])
    key = rows * (FULL_STEPS + 1) ** steps.shape[1] + np.where(gridded, steps, 0) @ place
    order = np.argsort(key)
    minimal = np.ones(len(rows), dtype=np.bool_)
    for tier in range(steps.shape[1]):
        before = key - place[tier]
        at = order[np.minimum(np.searchsorted(key, before, sorter=order), len(order) - 1)]
        minimal &= ~(gridded[:, tier] & (key[at] == before)) | (needed[at] > needed)
    return rows[minimal], steps[minimal]


def combinations(
    context: PlanningContext, placements: Placements, work: Work, tiers: list[int]
) -> Deployments | None:
    """Return the least demanding deployments for a rate; None: more than `MOST_ROWS` to try.

    Of deployments with equal demand the one with the fewest copies, then the fastest.
    """
    worthwhile = _worthwhile(context, placements, work, tiers)
    if worthwhile.sum(axis=2).prod(axis=1).sum() > MOST_ROWS:
        return None
    tried = [
        (row, combination)
        for row, options in enumerate(worthwhile)
        for combination in itertools.product(*(np.flatnonzero(of_tier) + 1 for of_tier in options))
    ]
    rows = np.array([row for row, _ in tried], dtype=np.int64)
    steps = placements.full_steps[rows].copy()
    if not tried:
        return rows, steps
    steps[:, tiers] = np.array([combination for _, combination in tried])
    prediction = predict(context, placements.take(rows), work, steps)
    good = np.flatnonzero(meets(context, prediction))
    demand = np.round(steps * placements.widths[rows] * prediction.replicas, 9)[:, tiers]
    copies = prediction.replicas.sum(axis=1)
    # The first of equal rows remains.
    good = good[np.lexsort((prediction.latency_s[good], copies[good]))]
    front: list[int] = []
    for row in np.unique(rows):
        mine = good[rows[good] == row]
        front += mine[undominated(demand[mine].astype(np.float64))].tolist() if len(mine) else []
    chosen = np.array(front, dtype=np.int64)
    return rows[chosen], steps[chosen]


def _worthwhile(
    context: PlanningContext, placements: Placements, work: Work, tiers: list[int]
) -> BoolArray:  # (P, tiers, FULL_STEPS)
    """Return the steps of each tier that machines hold and that no larger one equals.

    What a tier asks and how long requests wait there does not depend on the shares of others.
    """
    full = placements.full_steps
    shape = (len(placements), len(tiers), FULL_STEPS)
    demand, wait = np.full(shape, np.inf), np.full(shape, np.inf)
    for k in range(1, FULL_STEPS + 1):
        steps = np.minimum(full, k)
        prediction = predict(context, placements, work, steps)
        needed = k * placements.widths * prediction.replicas
        held = copies_held(context.infrastructure, placements, steps)
        granted = raised(context.infrastructure, placements, steps) == steps
        possible = ((k <= full) & granted & (prediction.replicas <= held))[:, tiers]
        demand[:, :, k - 1] = np.where(possible, needed[:, tiers], np.inf)
        wait[:, :, k - 1] = np.where(possible, prediction.tier_wait_s[:, tiers], np.inf)
    worthwhile = np.isfinite(demand)
    for k in range(FULL_STEPS - 1):
        later = slice(k + 1, None)
        matched = (demand[:, :, later] <= demand[:, :, [k]]) & (
            wait[:, :, later] <= wait[:, :, [k]]
        )
        worthwhile[:, :, k] &= ~matched.any(axis=2)
    return np.asarray(worthwhile)
